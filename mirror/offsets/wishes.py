"""What operators write into the state of a link that runs, as nobody's producer: gaps accepted, topics paused, resumed.

A command that fenced the link for it would end the session of all partitions. Its owner finds out from the answers to
what it writes itself (`StateLog.others`), and reads no more than what others wrote in between.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

from broker.client.cluster import Cluster
from broker.client.scan import OffsetSpan, scan_batches
from broker.wire.batch import BatchHeader
from broker.wire.records import Record, decode_records
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets.acceptance_entries import Acceptance
from mirror.offsets.entries import decode_entry, decode_key
from mirror.offsets.state_writer import StateLog
from mirror.offsets.topic_entries import TopicPause, VoidPause

Wish: TypeAlias = Acceptance | TopicPause | VoidPause


class WishReader:
    """Reads what comes between the batches of the owner's `log`, which has read its state up to `read_to`."""

    def __init__(self, link: Link, log: StateLog, read_to: int) -> None:
        self._where = TopicPartition(link.state_topic, link.state_partition)
        self._log = log
        log.follow(read_to)

    def on_wish(self, heard: Callable[[], None]) -> None:
        """Call this when there may be one."""
        self._log.on_others(heard)

    async def read(self, target: Cluster) -> list[Wish]:
        """Those that were heard of since the last call, in their order. Raises ClientError."""
        found: list[Wish] = []

        def visit(_where: TopicPartition, header: BatchHeader, batch: memoryview) -> None:
            if header.is_control or header.producer_id == self._log.writer.producer_id:
                return
            for record in decode_records(batch):
                with suppress(ValueError, KeyError, TypeError, IndexError):  # whoever begins with the state says so
                    if (wish := _wish(record)) is not None:
                        found.append(wish)

        spans, self._log.others = self._log.others, []
        for start, end in spans:
            await scan_batches(target, {self._where: OffsetSpan(start, end)}, visit)
        return found


def _wish(record: Record) -> Wish | None:
    """Raises ValueError, KeyError, TypeError, IndexError for what cannot be read."""
    key = decode_key(record.key or b"")
    if record.value is not None:
        entry = decode_entry(key, record.value)
        return entry if isinstance(entry, Acceptance | TopicPause) else None
    return VoidPause(key[1]) if key[0] == "paused" else None
