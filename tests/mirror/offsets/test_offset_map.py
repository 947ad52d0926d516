"""The map against a brute-force list of (source, target) pairs, both ways."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from mirror.offsets.intervals import End, Interval, Piece, intervals_for
from mirror.offsets.offset_map import OffsetMap, PartitionMap


@dataclass(frozen=True)
class Step:
    """A batch: offsets skipped at the source and at the target before it, then its records (True: mirrored). Those of
    one that `is_left` are stepped over by a new session, as a person wanted.
    """

    source_offset_gap: int
    target_offset_gap: int
    records: list[bool]
    is_left: bool = False


steps = st.lists(
    st.builds(
        Step,
        st.integers(0, 5),
        st.sampled_from([0, 0, 0, 1, 4]),
        st.lists(st.sampled_from([True, True, True, False]), min_size=1, max_size=6),
        st.sampled_from([False, False, False, True]),
    ),
    max_size=12,
)


def build(steps: list[Step], first: tuple[int, int]) -> tuple[PartitionMap, list[tuple[int, int]]]:
    """Mirror the steps as the worker does -> the map, and the (source, target) pair of every mirrored record."""
    found = PartitionMap()
    found.advance(intervals_for(End(first[0], -1), (Piece(first[0], 0),), first[1]), End(*first))
    source, target = first
    pairs: list[tuple[int, int]] = []
    for step in steps:
        source += step.source_offset_gap
        offsets = [source + at for at, mirrored in enumerate(step.records) if mirrored]
        source += len(step.records)
        if step.is_left:
            target += step.target_offset_gap
            step_behind(found, End(source, target))
            continue
        if not offsets:
            continue
        target += step.target_offset_gap
        pieces = [
            Piece(offset, ordinal)
            for ordinal, offset in enumerate(offsets)
            if ordinal == 0 or offset != offsets[ordinal - 1] + 1
        ]
        assert found.end is not None
        intervals = intervals_for(found.end, pieces, target)
        pairs += [(offset, target + ordinal) for ordinal, offset in enumerate(offsets)]
        target += len(offsets)
        found.advance(intervals, End(offsets[-1] + 1, target))
    found.position = source
    return found, pairs


def step_behind(found: PartitionMap, end: End) -> None:
    """As a session does that is opened behind what was left."""
    assert found.end is not None
    found.intervals.go_on([Interval(found.end.source_next, end.target_next)], found.end)
    found.intervals.put(Interval(*end))
    found.end, found.position = end, end.source_next


@given(steps, st.integers(0, 50), st.integers(0, 50))
@example([Step(0, 0, [True, False, True])], 0, 0)
@example([Step(0, 0, [True]), *[Step(0, 1, [True], is_left=True)] * 2, Step(0, 4, [True])], 0, 0)
def test_every_source_offset_translates_to_the_next_mirrored_record(
    steps: list[Step], source: int, target: int
) -> None:
    found, pairs = build(steps, (source, target))
    assert found.end is not None
    for offset in range(source, found.position + 1):
        expected = next((there for here, there in pairs if here >= offset), found.end.target_next)
        assert found.to_target(offset) == expected, (offset, found.intervals)
    assert found.to_target(found.position + 1) is None
    assert found.to_target(source - 1) is None


@given(steps, st.integers(0, 50), st.integers(0, 50))
@example([Step(0, 0, [True]), Step(0, 1, [True], is_left=True), Step(0, 0, [False])], 0, 0)
def test_every_target_offset_translates_back(steps: list[Step], source: int, target: int) -> None:
    found, pairs = build(steps, (source, target))
    assert found.end is not None
    first = found.intervals[0].target_start  # a target offset gap before the first record belongs to no interval
    for offset in range(first, found.end.target_next):
        expected = next((here for here, there in pairs if there >= offset), found.end.source_next)
        assert found.to_source(offset) == expected, (offset, found.intervals)
    assert found.to_source(found.end.target_next) == found.position
    assert found.to_source(found.end.target_next + 1) is None
    assert found.to_source(target - 1) is None


@given(steps)
def test_only_offset_gaps_cost_intervals(steps: list[Step]) -> None:
    found, pairs = build(steps, (0, 0))
    offset_gaps = sum((after[0] - before[0], after[1] - before[1]) != (1, 1) for before, after in pairwise(pairs))
    assert len(found.intervals) <= 2 * (offset_gaps + sum(step.is_left for step in steps)) + 2


def test_an_unknown_partition_has_no_translation() -> None:
    offset_map = OffsetMap()
    assert offset_map.to_target("flights", 0, 0) is None
    assert offset_map.to_source("flights", 0, 0) is None
    assert offset_map.mirrored_end("flights", 0) is None
    assert offset_map.intervals("flights", 0) == ()


def test_a_batch_that_landed_elsewhere_takes_the_place_of_what_was_written_ahead() -> None:
    found = PartitionMap([Interval(0, 0), Interval(10, 10), Interval(20, 15)], End(10, 10))
    found.advance([Interval(10, 12)], End(13, 15))
    assert found.intervals == [Interval(0, 0), Interval(10, 12)]
    assert (found.end, found.position) == (End(13, 15), 13)
    assert [found.to_target(offset) for offset in (9, 10, 12, 13)] == [9, 12, 14, 15]


def test_what_is_written_ahead_is_not_mirrored_yet() -> None:
    found = PartitionMap([Interval(0, 0), Interval(10, 20)], End(5, 5), 5)
    assert [found.to_target(offset) for offset in (4, 5, 6, 10, 11)] == [4, 5, None, None, None]
    assert [found.to_source(offset) for offset in (4, 5, 6, 20)] == [4, 5, None, None]


def test_a_known_position_behind_the_end_is_all_mirrored() -> None:
    found = OffsetMap({("flights", 0): PartitionMap([Interval(0, 0)], End(5, 5), 9)})
    assert [found.to_target("flights", 0, offset) for offset in (5, 8, 9, 10)] == [5, 5, 5, None]
    assert found.to_source("flights", 0, 5) == 9
    assert found.mirrored_end("flights", 0) == End(9, 5)


def test_an_old_position_does_not_pull_the_end_back() -> None:
    found = OffsetMap({("flights", 0): PartitionMap([Interval(0, 0)], End(5, 5), 2)})
    assert found.mirrored_end("flights", 0) == End(5, 5)
    assert found.to_target("flights", 0, 5) == 5
    assert found.to_source("flights", 0, 5) == 5


def test_declined_partitions_are_unknown_and_the_others_are_not() -> None:
    one, two = PartitionMap([Interval(0, 0)], End(5, 5), 5), PartitionMap([Interval(0, 3)], End(5, 8), 5)
    whole = OffsetMap({("flights", 1): two, ("flights", 0): one})
    part = whole.without({("flights", 0)})
    assert list(whole.partitions()) == [("flights", 0), ("flights", 1)]
    assert list(part.partitions()) == [("flights", 1)]
    assert part.to_target("flights", 0, 1) is None
    assert part.mirrored_end("flights", 0) is None
    assert part.to_target("flights", 1, 1) == 4
    assert whole.to_target("flights", 0, 1) == 1, "declining is for one asker, not for the map"


def test_a_partition_that_was_only_asked_for_is_not_mirrored() -> None:
    found = OffsetMap()
    found.partition("flights", 0)
    assert found.mirrored_end("flights", 0) is None
    assert found.to_target("flights", 0, 0) is None
    assert found.partition("flights", 0) is found.partition("flights", 0)
    assert found.partition("flights", 0) == PartitionMap()


def test_the_map_names_its_partitions_and_what_it_knows_of_each() -> None:
    east, west = PartitionMap([Interval(4, 0)], End(9, 5), 11), PartitionMap([Interval(0, 3), Interval(7, 20)])
    found = OffsetMap({("orders", 1): west, ("flights", 0): east})
    assert list(found.partitions()) == [("flights", 0), ("orders", 1)]
    assert found.intervals("flights", 0) == (Interval(4, 0),)
    assert found.intervals("orders", 1) == (Interval(0, 3), Interval(7, 20))
    assert found.intervals("orders", 0) == ()
    assert (found.find("flights", 0), found.find("flights", 1)) == (east, None)
    assert found.mirrored_end("flights", 0) == End(11, 5)
    assert found.mirrored_end("orders", 1) is None
    left = found.without({("flights", 0)})
    assert (list(left.partitions()), left.find("orders", 1)) == ([("orders", 1)], west)


def test_an_offset_gap_right_before_the_end_goes_along_with_what_others_write_behind_it() -> None:
    """They counted as the gap's records."""
    found = PartitionMap([Interval(0, 0), Interval(20, 23), Interval(31, 23)], End(31, 23), 31)
    assert found.advance([Interval(31, 40)], End(33, 42)) == (Interval(20, 40), Interval(31, 40))
    assert found.intervals == [Interval(0, 0), Interval(20, 40), Interval(31, 40)]
    assert [found.to_target(offset) for offset in (19, 20, 30, 31, 32)] == [19, 40, 40, 40, 41]
    assert found.advance([Interval(33, 50)], End(34, 51)) == (Interval(33, 50),), "that one has records behind it"
