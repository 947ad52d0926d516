"""Reading which way another link's batches came: the entries of its state that are written before the batches are."""

from __future__ import annotations

import asyncio
from bisect import bisect_right

from broker.client.cluster import Cluster
from broker.client.offsets import log_end_offsets
from broker.client.scan import OffsetSpan, scan_records
from broker.client.topics import describe_topics
from broker.wire.batch import BatchHeader
from broker.wire.records import Record
from broker.wire.vocabulary import TopicPartition
from mirror.link import STATE_PREFIX
from mirror.offsets.entries import decode_entry, decode_key
from mirror.offsets.origin_entries import OriginRun, OriginRuns, Way, add_run, find_run

_Writer = tuple[TopicPartition, int, int]
"""A partition, a producer id and its epoch."""
_ORIGINS_KEY = b'["origins"'


class OriginReader:
    """What one link's state at a cluster says of its batches there, read as far as was needed."""

    def __init__(self, cluster: Cluster, link: str) -> None:
        self._cluster = cluster
        self._state = TopicPartition(f"{STATE_PREFIX}{link}", 0)
        self._runs: dict[_Writer, list[OriginRun]] = {}
        self._untold: set[tuple[_Writer, int]] = set()
        self._read_to = 0
        self._turn = asyncio.Lock()

    def find(self, where: TopicPartition, header: BatchHeader) -> Way | None:
        """How the batch came to the link's source; None: not known. Call `learn` first."""
        writer = (where, header.producer_id, header.producer_epoch)
        run = find_run(self._runs.get(writer, ()), header.base_sequence)
        return run.way if run is not None else None

    async def learn(self, where: TopicPartition, headers: list[BatchHeader]) -> None:
        """Make sure that all is known that the link has said of these batches. Raises ClientError.

        It says so before it sends them. Where something is missing all is read once more: the topic may be another.
        What is known stays known meanwhile, for it stays true, and others plan by it.
        """
        async with self._turn:
            if not self._lacks(where, headers):
                return
            if await self._read_on() and self._lacks(where, headers):
                self._read_to = 0
                await self._read_on()
            self._untold.update(self._lacks(where, headers))

    def forget_before(self, where: TopicPartition, header: BatchHeader) -> None:
        """The partition is read from this batch on: what was said of earlier ones by its writer is not needed."""
        writer = (where, header.producer_id, header.producer_epoch)
        runs = self._runs.get(writer, [])
        del runs[: bisect_right(runs, header.base_sequence, key=lambda run: run.end)]

    def _lacks(self, where: TopicPartition, headers: list[BatchHeader]) -> list[tuple[_Writer, int]]:
        batches = [
            ((where, h.producer_id, h.producer_epoch), h.base_sequence) for h in headers if not self.find(where, h)
        ]
        return [batch for batch in batches if batch not in self._untold]

    async def _read_on(self) -> bool:
        """Read to the present end -> whether there was something read before, which may have been another topic's."""
        was_read = self._read_to > 0
        if not await describe_topics(self._cluster, [self._state.topic]):
            return was_read
        end = (await log_end_offsets(self._cluster, [self._state]))[self._state]
        if end < self._read_to:
            self._read_to = 0
        await scan_records(self._cluster, self._state, OffsetSpan(self._read_to, end), self._apply)
        self._read_to = max(self._read_to, end)
        return was_read

    def _apply(self, record: Record) -> None:
        """What cannot be read tells nothing: its batches are not clear, and stop their partition alone."""
        if record.value is None or not (record.key or b"").startswith(_ORIGINS_KEY):
            return
        try:
            entry = decode_entry(decode_key(record.key or b""), record.value)
        except (ValueError, KeyError, TypeError, IndexError):
            return
        if isinstance(entry, OriginRuns):
            runs = self._runs.setdefault((TopicPartition(entry.topic, entry.partition), *entry.writer), [])
            for run in entry.runs:
                add_run(runs, run)
