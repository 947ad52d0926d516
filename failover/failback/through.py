"""Which groups read through a stranded tail when they come back: it lies between what both sites had and what is newer.
Pure.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from failover.observing.snapshot import GroupView
from mirror.api import StrandedTail


@dataclass(frozen=True, slots=True)
class ReadsTail:
    """A group comes to so many records that only the old source has (None: not known), and may have read them there."""

    group: str
    topic: str
    partition: int
    records: int | None


def reads_through(
    tails: Iterable[StrandedTail], groups: Iterable[GroupView], coming: Container[str]
) -> tuple[ReadsTail, ...]:
    """`groups` as a look along the link back sees them: those that stand before the end of what was mirrored."""
    places = [(group.group, at) for group in groups if group.group in coming for at in group.partitions]
    return tuple(
        ReadsTail(name, *tail.where, tail.records)
        for tail in tails
        for name, at in places
        if (at.topic, at.partition) == (tail.target_topic, tail.partition)
        and at.source_offset is not None
        and at.source_offset < tail.mirrored_target_next
    )
