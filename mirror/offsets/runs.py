"""The runs of a partition's map: which offsets of a log the link brought, and which lie between them.

A run is as long as the shorter of the two steps to the next interval: where source and target both have an offset gap,
`intervals_for` writes an interval for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from mirror.offsets.intervals import End, Interval
from mirror.offsets.offset_map import PartitionMap
from mirror.offsets.paged import Intervals
from mirror.offsets.pages import open_page


class Run(NamedTuple):
    """`length` records without an offset gap on either side."""

    source: int
    target: int
    length: int


def next_landed(found: PartitionMap, target_offset: int) -> Run | None:
    """The run that holds the first brought record at or after `target_offset`, cut to begin there; None: none is."""
    index = found.intervals.at_target(target_offset)
    return _first_run(found, index, lambda run: target_offset - run.target)


def next_taken(found: PartitionMap, source_offset: int) -> Run | None:
    """As `next_landed`, by an offset of the source's log."""
    index = found.intervals.at_source(source_offset)
    return _first_run(found, index, lambda run: source_offset - run.source)


def landed_before(found: PartitionMap, start: int, source_offset: int) -> Iterator[range]:
    """Of the target's offsets from `start` on those of records that were brought from before `source_offset`."""
    while (run := next_landed(found, start)) is not None and run.source < source_offset:
        yield range(run.target, run.target + min(run.length, source_offset - run.source))
        start = run.target + run.length


def taken_before(found: PartitionMap, start: int, target_offset: int) -> Iterator[range]:
    """Of the source's offsets from `start` on those of taken records that landed before `target_offset`."""
    while (run := next_taken(found, start)) is not None and run.target < target_offset:
        yield range(run.source, run.source + min(run.length, target_offset - run.target))
        start = run.source + run.length


def joined(spans: Iterable[range]) -> Iterator[range]:
    """Sorted ones, with those that meet as one."""
    last: range | None = None
    for span in spans:
        if last is not None and last.stop != span.start:
            yield last
            last = None
        last = span if last is None else range(last.start, span.stop)
    if last is not None:
        yield last


def last_landed(found: PartitionMap) -> Run | None:
    """The last record that the link brought; None where it brought none, or where that lies is not known exactly."""
    for index in reversed(range(len(found.intervals))):
        run = _run(found, index)
        if run is not None and run.length:
            return Run(run.source + run.length - 1, run.target + run.length - 1, 1)
    return None


class OthersCounter:
    """Counts what of a target's log is others', from the end, and opens no more of maps than `intervals_max` in all.

    What it does not open counts as others'.
    """

    def __init__(self, intervals_max: int) -> None:
        self._may_open = intervals_max

    def count(self, found: PartitionMap, start: int, end: int, up_to: int) -> int:
        """How many offsets in [start, end) hold nothing that the link brought; `up_to` at the most, and it looks no
        further then. Raises StateDamaged.
        """
        others, counted_from, last = 0, end, found.end
        if last is None:
            return min(up_to, max(0, end - start))
        following = last
        for source, target in self._backwards(found.intervals):
            length = min(following.source_next, last.source_next) - source
            stop = min(target + length, following.target_next, last.target_next)
            if stop > target:
                others += max(0, counted_from - max(stop, start))
                counted_from = min(counted_from, target)
            if counted_from <= start or others >= up_to:
                break
            following = End(source, target)
        return min(up_to, others + max(0, counted_from - start))

    def _backwards(self, intervals: Intervals) -> Iterator[Interval]:
        yield from reversed(intervals.open)
        for page in reversed(intervals.pages):
            yield page.last
            if page.count > self._may_open:
                return
            self._may_open -= page.count
            columns = open_page(page)
            for at in range(page.count - 2, -1, -1):
                yield Interval(columns.sources[at], columns.targets[at])


def _first_run(found: PartitionMap, index: int, before: Callable[[Run], int]) -> Run | None:
    """The first run from the interval on that is not empty without its records `before` the offset asked for."""
    index = max(0, index)
    while (run := _run(found, index)) is not None:
        skip = max(0, before(run))
        if skip < run.length:
            return Run(run.source + skip, run.target + skip, run.length - skip)
        index += 1
    return None


def _run(found: PartitionMap, index: int) -> Run | None:
    """The run of one interval, maybe of no length; None behind the end."""
    if found.end is None or index >= len(found.intervals):
        return None
    source, target = found.intervals[index]
    following = End(*found.intervals[index + 1]) if index + 1 < len(found.intervals) else found.end
    next_source = min(following.source_next, found.end.source_next)
    next_target = min(following.target_next, found.end.target_next)
    return Run(source, target, max(0, min(next_source - source, next_target - target)))
