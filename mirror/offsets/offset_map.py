"""The offset map of a link in memory: exact translation both ways, by bisection."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from mirror.offsets.intervals import End, Interval, translate, translate_back
from mirror.offsets.paged import Intervals

Where: TypeAlias = tuple[str, int]
"""(source topic, partition)"""


@dataclass(slots=True, init=False)
class PartitionMap:
    """The intervals of one partition, sorted by source (and so by target), and the mirrored end.

    Only offsets before the end are mirrored; the intervals may reach beyond it by what was written ahead. Source
    offsets from the end up to `position` hold nothing to mirror (control records, aborted transactions). What lies in
    the target's log from the end up to `looked_to` is others', as who read it saw.
    """

    intervals: Intervals
    end: End | None
    position: int
    looked_to: int

    def __init__(
        self, intervals: Iterable[Interval] = (), end: End | None = None, position: int = 0, looked_to: int = 0
    ) -> None:
        """The map changes `intervals` as records land: it has a copy of them."""
        self.intervals = intervals.copy() if isinstance(intervals, Intervals) else Intervals(intervals)
        self.end, self.position, self.looked_to = end, position, looked_to

    @property
    def complete_to(self) -> int:
        """The target offset before which nothing of the link lies but what the map says."""
        return max(self.looked_to, self.end.target_next if self.end is not None else 0)

    def to_target(self, source_offset: int) -> int | None:
        end = self.end
        if end is None or not self.intervals or source_offset > max(self.position, end.source_next):
            return None
        if source_offset >= end.source_next:
            return end.target_next
        index = self.intervals.at_source(source_offset)
        return translate(self.intervals, index, source_offset, end) if index >= 0 else None

    def to_source(self, target_offset: int) -> int | None:
        end = self.end
        if end is None or not self.intervals or target_offset > end.target_next:
            return None
        if target_offset == end.target_next:
            return max(self.position, end.source_next)
        index = self.intervals.at_target(target_offset)
        return translate_back(self.intervals, index, target_offset, end) if index >= 0 else None

    def advance(self, intervals: Sequence[Interval], end: End) -> tuple[Interval, ...]:
        """A batch landed: its intervals (none if it only continues), and the new end. -> those that hold by it."""
        moved = self.intervals.go_on(intervals, self.end if self.end is not None else end)
        self.end = end
        self.position = end.source_next
        return moved


class OffsetMap:
    """All partitions of a link."""

    def __init__(self, partitions: dict[Where, PartitionMap] | None = None) -> None:
        self._partitions = partitions if partitions is not None else {}

    def partition(self, topic: str, partition: int) -> PartitionMap:
        """The map of one partition, empty when it is new."""
        return self._partitions.setdefault((topic, partition), PartitionMap())

    def put(self, topic: str, partition: int, found: PartitionMap) -> None:
        """From now on that is the map of the partition."""
        self._partitions[topic, partition] = found

    def forget(self, topic: str, partition: int) -> None:
        """Nothing is known of the partition any more, nor by who has its map in hand."""
        found = self._partitions.pop((topic, partition), None)
        if found is not None:
            found.intervals, found.end = Intervals(), None

    def find(self, topic: str, partition: int) -> PartitionMap | None:
        """The map of one partition, if anything is known of it."""
        return self._partitions.get((topic, partition))

    def to_target(self, topic: str, partition: int, source_offset: int) -> int | None:
        """The target offset of the first mirrored record at or after the source offset.

        None before the first mirrored offset and after the mirrored end; exactly at the end, the target's end.
        """
        found = self._partitions.get((topic, partition))
        return found.to_target(source_offset) if found else None

    def to_source(self, topic: str, partition: int, target_offset: int) -> int | None:
        """The source offset of the first mirrored record at or after the target offset; None as in `to_target`."""
        found = self._partitions.get((topic, partition))
        return found.to_source(target_offset) if found else None

    def mirrored_end(self, topic: str, partition: int) -> End | None:
        """(next source offset, next target offset), or None for a partition of which nothing is known."""
        found = self._partitions.get((topic, partition))
        if found is None or found.end is None:
            return None
        return End(max(found.position, found.end.source_next), found.end.target_next)

    def without(self, declined: Container[Where]) -> OffsetMap:
        """The same map, of which the `declined` partitions are not known."""
        return OffsetMap({where: found for where, found in self._partitions.items() if where not in declined})

    def intervals(self, topic: str, partition: int) -> Sequence[Interval]:
        """In order; of the map as it is now."""
        found = self._partitions.get((topic, partition))
        return found.intervals.copy() if found else ()

    def partitions(self) -> Iterator[Where]:
        """All that the map knows, sorted."""
        return iter(sorted(self._partitions))
