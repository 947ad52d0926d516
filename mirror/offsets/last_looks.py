"""Whether a link's worker sees its source just now: by what it writes at the target, and by no clock."""

from __future__ import annotations

from typing import Any

from broker.client.cluster import Cluster
from broker.client.offsets import log_end_offsets
from broker.client.scan import OffsetSpan, scan_records
from broker.client.topics import describe_topics
from broker.wire.records import Record
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets.ends_entries import ends_key, load_entry

LOOKS_BEHIND = 2
"""The first that is written behind the beginning may have been asked for, and answered, before."""


class LastLooks:
    """Follows the worker's word of when its source last answered, from the first reading on."""

    def __init__(self, link: Link, target: Cluster) -> None:
        self._where = TopicPartition(link.ends_topic, 0)
        self._target = target
        self._next: int | None = None
        self._newest_ms: int | None = None
        self._looks = 0

    @property
    def sees_source(self) -> bool:
        """Whether the source answered the worker since the first reading began, and what it asked for last."""
        return self._looks >= LOOKS_BEHIND

    @property
    def is_unsure(self) -> bool:
        """Whether the source answered since, as far as is known, something that may have been asked for before."""
        return 0 < self._looks < LOOKS_BEHIND

    async def read(self) -> None:
        """Raises ClientError."""
        if self._next is None and not await describe_topics(self._target, [self._where.topic]):
            return
        end = (await log_end_offsets(self._target, [self._where]))[self._where]
        if self._next is not None and end > self._next:
            await scan_records(self._target, self._where, OffsetSpan(self._next, end), self._take)
        self._next = end

    def _take(self, record: Record) -> None:
        entry = load_entry(record.value) if record.key == ends_key("seen") else None
        if entry is not None:
            self._take_look(entry)

    def _take_look(self, entry: dict[str, Any]) -> None:
        at_ms = entry.get("at_ms")
        if not isinstance(at_ms, int) or entry.get("unanswered_at_ms") is not None:
            self._looks = 0
        elif self._newest_ms is None or at_ms > self._newest_ms:  # not one of a worker that hung, or said again
            self._newest_ms = at_ms
            self._looks += 1
