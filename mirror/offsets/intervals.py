"""Intervals: where the difference between source and target offsets changes.

A partition's map is a list of intervals. An interval says: the mirrored record at `source_start` lies at
`target_start`, and so on, one by one, until the next interval begins. Where source offsets have a gap (an aborted
transaction, a control record, compaction) or target offsets do (a fence's marker, a local writer), a new interval
begins. A source offset inside of an offset gap has no record; it translates to the next mirrored record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Interval(NamedTuple):
    """Source offset -> target offset, valid from here until the next interval's `source_start`."""

    source_start: int
    target_start: int


class End(NamedTuple):
    """How far a partition is mirrored: the next source offset, and the target offset it will get (if unopposed)."""

    source_next: int
    target_next: int


class Piece(NamedTuple):
    """A run of records without offset gaps inside of one batch: its first source offset, and its place, from 0."""

    source_start: int
    ordinal: int


def intervals_for(end: End, pieces: Sequence[Piece], target_base: int) -> tuple[Interval, ...]:
    """The intervals that a batch needs which lands at `target_base` after `end`. Empty: the last one goes on.

    An offset gap in the target that meets one in the source needs two, so that offsets of the source's gap translate
    behind the target's gap and not into it.
    """
    intervals: list[Interval] = []
    source_next, target_next = end
    if target_base != target_next:
        intervals.append(Interval(source_next, target_base))
    for source_start, ordinal in pieces:
        target = target_base + ordinal
        if intervals:
            last = intervals[-1]
            expected = last.source_start + (target - last.target_start)
        else:
            expected = source_next + (target - target_next)
        if source_start != expected:
            intervals.append(Interval(source_start, target))
    return tuple(intervals)


def again(
    written: Sequence[Interval], intervals: Sequence[Interval], pieces: Sequence[Piece], target_base: int
) -> tuple[Interval, ...]:
    """What is to be written in place of `written` for a batch that landed at `target_base` and needs `intervals`:
    those, and where a piece needs none any more, but was written to begin one, where it is.
    """
    stale = {interval.source_start for interval in written} - {interval.source_start for interval in intervals}
    kept = (Interval(start, target_base + ordinal) for start, ordinal in pieces if start in stale)
    return tuple(sorted((*intervals, *kept)))


def translate(intervals: Sequence[Interval], index: int, source_offset: int, end: End) -> int:
    """Target offset of a source offset at or after `intervals[index]` and before the next interval."""
    interval = intervals[index]
    target = interval.target_start + (source_offset - interval.source_start)
    if index + 1 < len(intervals):
        target = min(target, intervals[index + 1].target_start)
    return min(target, end.target_next)


def translate_back(intervals: Sequence[Interval], index: int, target_offset: int, end: End) -> int:
    """Source offset of a target offset at or after `intervals[index]` and before the next interval's target."""
    interval = intervals[index]
    source = interval.source_start + (target_offset - interval.target_start)
    following = index + 1
    if following < len(intervals) and source >= intervals[following].source_start:
        # An offset gap of the target: go on at the next mirrored record, behind the last interval that starts there.
        landing = intervals[following].target_start
        while following + 1 < len(intervals) and intervals[following + 1].target_start == landing:
            following += 1
        source = intervals[following].source_start
    return min(source, end.source_next)


def pack_intervals(intervals: Sequence[Interval]) -> list[int]:
    """Flat [source, target, source step, target step, ...]: a compacted batch has hundreds of them."""
    packed: list[int] = []
    before = Interval(0, 0)
    for interval in intervals:
        packed += (interval.source_start - before.source_start, interval.target_start - before.target_start)
        before = interval
    return packed


def unpack_intervals(packed: Sequence[int]) -> tuple[Interval, ...]:
    """What `pack_intervals` was given."""
    intervals: list[Interval] = []
    source, target = 0, 0
    for index in range(0, len(packed), 2):
        source += packed[index]
        target += packed[index + 1]
        intervals.append(Interval(source, target))
    return tuple(intervals)
