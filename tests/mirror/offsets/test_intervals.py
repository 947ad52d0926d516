"""Which intervals a batch needs, and what an offset in a gap means: the next mirrored record, never an earlier one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.offsets.intervals import End, Interval, Piece, intervals_for, translate, translate_back


def forth(intervals: list[Interval], source: int, end: End) -> int:
    """Translate as the map does: from the last interval that begins at or before the offset."""
    index = max(at for at, interval in enumerate(intervals) if interval.source_start <= source)
    return translate(intervals, index, source, end)


def back(intervals: list[Interval], target: int, end: End) -> int:
    index = max(at for at, interval in enumerate(intervals) if interval.target_start <= target)
    return translate_back(intervals, index, target, end)


@pytest.mark.parametrize(
    ("pieces", "target_base", "expected"),
    [
        ([Piece(10, 0)], 20, ()),
        ([Piece(13, 0)], 20, (Interval(13, 20),)),
        ([Piece(10, 0)], 22, (Interval(10, 22),)),
        ([Piece(13, 0)], 22, (Interval(10, 22), Interval(13, 22))),
        ([Piece(13, 0)], 21, (Interval(10, 21), Interval(13, 21))),
        ([Piece(10, 0), Piece(15, 2)], 20, (Interval(15, 22),)),
        ([Piece(10, 0), Piece(15, 2)], 25, (Interval(10, 25), Interval(15, 27))),
        ([Piece(13, 0), Piece(15, 1), Piece(20, 3)], 20, (Interval(13, 20), Interval(15, 21), Interval(20, 23))),
    ],
    ids=[
        "it goes on",
        "an offset gap here",
        "an offset gap there",
        "both",
        "both, by one",
        "inside",
        "inside and there",
        "everywhere",
    ],
)
def test_a_batch_costs_an_interval_per_offset_gap(
    pieces: list[Piece], target_base: int, expected: tuple[Interval, ...]
) -> None:
    assert intervals_for(End(10, 20), pieces, target_base) == expected


def test_an_offset_in_an_offset_gap_of_the_source_is_the_record_behind_it() -> None:
    intervals, end = [Interval(0, 0), Interval(10, 5)], End(12, 7)
    assert [forth(intervals, source, end) for source in range(13)] == [0, 1, 2, 3, 4, 5, 5, 5, 5, 5, 5, 6, 7]


def test_an_offset_in_an_offset_gap_of_the_target_goes_back_to_the_record_behind_it() -> None:
    intervals, end = [Interval(0, 0), Interval(3, 8)], End(5, 10)
    assert [back(intervals, target, end) for target in range(11)] == [0, 1, 2, 3, 3, 3, 3, 3, 3, 4, 5]


def test_where_both_have_an_offset_gap_neither_offset_falls_into_the_other() -> None:
    intervals, end = [Interval(0, 0), *intervals_for(End(3, 3), [Piece(9, 0)], 7)], End(11, 9)
    assert intervals == [Interval(0, 0), Interval(3, 7), Interval(9, 7)]
    assert [forth(intervals, source, end) for source in (2, 3, 5, 8, 9, 10)] == [2, 7, 7, 7, 7, 8]
    assert [back(intervals, target, end) for target in (2, 3, 6, 7, 8)] == [2, 9, 9, 9, 10]


def test_nothing_translates_behind_the_end() -> None:
    intervals = [Interval(0, 0)]
    assert forth(intervals, 50, End(10, 10)) == 10
    assert back(intervals, 50, End(10, 10)) == 10


def test_what_was_written_ahead_does_not_move_the_end() -> None:
    intervals = [Interval(0, 0), Interval(20, 10)]
    assert forth(intervals, 15, End(8, 8)) == 8
    assert back(intervals, 9, End(8, 8)) == 8


@given(
    st.integers(0, 20),
    st.integers(0, 20),
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4)), min_size=1, max_size=6),
    st.integers(0, 5),
)
def test_every_record_of_a_batch_has_its_own_offset_both_ways(
    source: int, target: int, runs: list[tuple[int, int]], target_offset_gap: int
) -> None:
    """Runs of (offset gap before it, records) are sent at once behind one record at (source, target)."""
    end, base = End(source + 1, target + 1), target + 1 + target_offset_gap
    pieces: list[Piece] = []
    offsets: list[int] = []
    here = end.source_next
    for offset_gap, count in runs:
        here += offset_gap
        if offset_gap or not pieces:
            pieces.append(Piece(here, len(offsets)))
        offsets += range(here, here + count)
        here += count
    intervals = [Interval(source, target), *intervals_for(end, pieces, base)]
    after = End(here, base + len(offsets))
    for ordinal, offset in enumerate(offsets):
        assert forth(intervals, offset, after) == base + ordinal
        assert back(intervals, base + ordinal, after) == offset
    translated = [forth(intervals, offset, after) for offset in range(source, here + 1)]
    assert translated == sorted(translated), "a group that reads on never goes back"
