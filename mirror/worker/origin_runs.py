"""Reading which way another link's batches came: the entries of its state that are written before the batches are."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from uuid import UUID

from broker.client.cluster import Cluster
from broker.client.errors import LogUnreadable
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
        self._topic = f"{STATE_PREFIX}{link}"
        self._runs: dict[_Writer, list[OriginRun]] = {}
        self._untold: set[tuple[_Writer, int]] = set()
        self._forgotten_to: dict[_Writer, int] = {}
        """Sequences before it may have been told, and are not known any more."""
        self._read_to: dict[TopicPartition, int] = {}
        """Of each unit's part."""
        self._topic_id: UUID | None = None
        self._turn = asyncio.Lock()

    def find(self, where: TopicPartition, header: BatchHeader) -> Way | None:
        """How the batch came to the link's source; None: not known. Call `learn` first."""
        writer = (where, header.producer_id, header.producer_epoch)
        run = find_run(self._runs.get(writer, ()), header.base_sequence)
        return run.way if run is not None else None

    async def learn(self, where: TopicPartition, headers: list[BatchHeader]) -> None:
        """Make sure that all is known that the link has said of these batches. Raises ClientError.

        It says so before it sends them, so reading on from where it was read tells. What was forgotten is read once
        more, and so is a topic that was made anew. What is known stays known meanwhile, for it stays true, and others
        plan by it.
        """
        async with self._turn:
            lacking = self._lacks(where, headers)
            if any(sequence < self._forgotten_to.get(writer, 0) for writer, sequence in lacking):
                self._begin()
            if lacking:
                await self._read_on()
                self._untold.update(self._lacks(where, headers))

    def forget_before(self, where: TopicPartition, header: BatchHeader) -> None:
        """The partition is read from this batch on: what was said of earlier ones by its writer is not needed."""
        writer = (where, header.producer_id, header.producer_epoch)
        runs = self._runs.get(writer, [])
        gone = bisect_right(runs, header.base_sequence, key=lambda run: run.end)
        if gone:
            self._forgotten_to[writer] = runs[gone - 1].end
            del runs[:gone]

    def _lacks(self, where: TopicPartition, headers: list[BatchHeader]) -> list[tuple[_Writer, int]]:
        batches = [
            ((where, h.producer_id, h.producer_epoch), h.base_sequence) for h in headers if not self.find(where, h)
        ]
        return [batch for batch in batches if batch not in self._untold]

    async def _read_on(self) -> None:
        """Read to the present end; from the start, where the topic is another than before."""
        topic = (await describe_topics(self._cluster, [self._topic])).get(self._topic)
        if topic is None:
            return
        parts = [TopicPartition(self._topic, part.partition) for part in topic.partitions]
        ends = await log_end_offsets(self._cluster, parts)
        if topic.topic_id != self._topic_id or any(ends[part] < self._read_to.get(part, 0) for part in parts):
            self._begin()
            self._topic_id = topic.topic_id
        for part in parts:
            start = self._read_to.get(part, 0)
            try:
                await scan_records(self._cluster, part, OffsetSpan(start, ends[part]), self._apply)
            except LogUnreadable:
                continue  # what is behind the damage is not told: its batches stop their partition, and say so
            self._read_to[part] = max(start, ends[part])

    def _begin(self) -> None:
        self._read_to.clear()
        self._forgotten_to.clear()

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
