"""What may be compared, and that nothing else is called equal."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitoring.audit.model import FrozenPartition, NotCompared, ProvedPart, Segment, Side, Span, Step
from monitoring.audit.ranges import comparable
from monitoring.audit.reasons import Reason


def frozen(**changes: Any) -> FrozenPartition:
    values: dict[str, Any] = {
        "topic": "flights",
        "partition": 0,
        "target_topic": "flights",
        "source": Span(0, 100),
        "target": Span(0, 100),
        "steps": (Step(0, 0),),
        "mirrored_end": (100, 100),
    }
    return FrozenPartition(**(values | changes))


def reasons(left_out: tuple[NotCompared, ...]) -> dict[tuple[Side, Reason], Span]:
    return {(item.side, item.reason): item.span for item in left_out}


def test_a_whole_copy_is_compared_wholly() -> None:
    partition, left_out = comparable(frozen())
    assert partition is not None
    assert (partition.source, partition.target) == (Span(0, 100), Span(0, 100))
    assert partition.segments == (Segment(0, 0, 100),)
    assert left_out == ()


def test_lag_is_stated_not_compared() -> None:
    partition, left_out = comparable(frozen(mirrored_end=(70, 70), target=Span(0, 70)))
    assert partition is not None
    assert partition.source == Span(0, 70)
    assert reasons(left_out) == {(Side.SOURCE, Reason.NOT_MIRRORED_YET): Span(70, 100)}


def test_retention_at_either_site_cuts_both() -> None:
    partition, left_out = comparable(frozen(source=Span(30, 100), target=Span(10, 100)))
    assert partition is not None
    assert (partition.source, partition.target) == (Span(30, 100), Span(30, 100))
    assert reasons(left_out) == {(Side.TARGET, Reason.EXPIRED_AT_SOURCE): Span(10, 30)}
    partition, left_out = comparable(frozen(source=Span(10, 100), target=Span(30, 100)))
    assert partition is not None
    assert (partition.source, partition.target) == (Span(30, 100), Span(30, 100))
    assert reasons(left_out) == {(Side.SOURCE, Reason.EXPIRED_AT_TARGET): Span(10, 30)}


def test_a_marker_at_the_target_belongs_to_no_segment() -> None:
    partition, _ = comparable(frozen(target=Span(0, 101), steps=(Step(0, 0), Step(40, 41)), mirrored_end=(100, 101)))
    assert partition is not None
    assert partition.segments == (Segment(0, 0, 40), Segment(41, 40, 60))
    assert partition.target == Span(0, 101)
    assert partition.foreign == ()


def test_offset_gaps_on_both_sides_at_once_give_exact_segments() -> None:
    # Source offsets 40 and 41 have no record (a marker and an aborted one), target offset 40 is a marker.
    steps = (Step(0, 0), Step(40, 41), Step(42, 41))
    partition, _ = comparable(frozen(target=Span(0, 99), steps=steps, mirrored_end=(100, 99)))
    assert partition is not None
    assert partition.segments == (Segment(0, 0, 40), Segment(41, 42, 58))


def test_local_writers_of_a_shared_target_are_left_out() -> None:
    partition, left_out = comparable(
        frozen(
            target=Span(0, 120),
            steps=(Step(0, 5), Step(40, 60)),
            mirrored_end=(100, 120),
            shared_target=True,
            local_tail=True,
        )
    )
    assert partition is not None
    assert partition.target == Span(5, 120)
    assert partition.foreign == (Span(45, 60),)
    assert reasons(left_out)[Side.TARGET, Reason.WRITTEN_BY_OTHERS] == Span(45, 60)


def test_intervals_written_ahead_do_not_count() -> None:
    partition, _ = comparable(frozen(steps=(Step(0, 0), Step(100, 105)), mirrored_end=(100, 100)))
    assert partition is not None
    assert partition.segments == (Segment(0, 0, 100),)


def test_a_target_that_lost_its_tail_is_compared_to_the_mirrored_end() -> None:
    partition, _ = comparable(frozen(target=Span(0, 90)))
    assert partition is not None
    assert (partition.source, partition.target) == (Span(0, 100), Span(0, 90))


def test_a_source_that_lost_its_tail_is_a_finding() -> None:
    _, left_out = comparable(frozen(source=Span(0, 80)))
    assert reasons(left_out) == {(Side.SOURCE, Reason.SOURCE_TRUNCATED): Span(80, 100)}
    assert Reason.SOURCE_TRUNCATED.is_finding


def test_a_partition_the_map_does_not_know_is_never_equal() -> None:
    for changes, reason in (
        ({"mirrored_end": None, "steps": ()}, Reason.NEVER_MIRRORED),
        ({"target": None}, Reason.TARGET_MISSING),
        ({"recreated": True}, Reason.SOURCE_RECREATED),
    ):
        partition, left_out = comparable(frozen(**changes))
        assert partition is None
        sides = [Side.SOURCE] if reason is Reason.TARGET_MISSING else list(Side)
        assert reasons(left_out) == {(side, reason): Span(0, 100) for side in sides}
        assert reason.is_finding


def test_an_accepted_gap_is_left_out_and_said() -> None:
    partition, left_out = comparable(
        frozen(target=Span(0, 90), steps=(Step(0, 0), Step(20, 10)), mirrored_end=(100, 90), gaps=(Span(10, 20),))
    )
    assert partition is not None
    assert partition.left_out == (Span(10, 20),)
    assert reasons(left_out) == {(Side.SOURCE, Reason.GAP_ACCEPTED): Span(10, 20)}


@given(
    runs=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 6)), min_size=1, max_size=8),
    trims=st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(0, 3)),
)
def test_segments_pair_exactly_the_records_both_sites_have(
    runs: list[tuple[int, int, int]], trims: tuple[int, int, int]
) -> None:
    """Against a brute-force list of (source, target) pairs, with offset gaps on both sides and both starts trimmed."""
    pairs: list[tuple[int, int]] = []
    steps: list[Step] = []
    source, target = 0, 0
    for source_offset_gap, target_offset_gap, length in runs:
        if target_offset_gap and source_offset_gap and pairs:
            steps.append(Step(source, target + target_offset_gap))
        source, target = source + source_offset_gap, target + target_offset_gap
        steps.append(Step(source, target))
        pairs += [(source + i, target + i) for i in range(length)]
        source, target = source + length, target + length
    source_start, target_start, lag = trims
    source_start, target_start = min(source_start, source), min(target_start, target)
    partition, _ = comparable(
        frozen(
            source=Span(source_start, source + lag),
            target=Span(target_start, target),
            steps=tuple(steps),
            mirrored_end=(source, target),
        )
    )
    assert partition is not None
    expected = [(s, t) for s, t in pairs if s >= source_start and t >= target_start]
    found = [(g.source_start + i, g.target_start + i) for g in partition.segments for i in range(g.length)]
    assert found == expected
    assert [s for s, _ in pairs if partition.source.start <= s < partition.source.end] == [s for s, _ in expected]
    assert [t for _, t in pairs if partition.target.start <= t < partition.target.end] == [t for _, t in expected]


def test_an_empty_partition_is_an_equal_copy_of_nothing() -> None:
    partition, left_out = comparable(frozen(source=Span(5, 5), target=Span(0, 0), steps=(), mirrored_end=None))
    assert partition is not None
    assert (partition.source.offsets, partition.target.offsets) == (0, 0)
    assert left_out == ()


def test_records_behind_the_mirrored_end_are_compared_unless_others_may_write_there() -> None:
    partition, left_out = comparable(frozen(target=Span(0, 103)))
    assert partition is not None
    assert partition.target == Span(0, 103)
    assert left_out == ()
    partition, left_out = comparable(frozen(target=Span(0, 103), local_tail=True))
    assert partition is not None
    assert partition.target == Span(0, 100)
    assert reasons(left_out) == {(Side.TARGET, Reason.BEYOND_THE_MIRROR): Span(100, 103)}


def test_what_a_shared_link_passed_over_at_the_source_is_left_out() -> None:
    steps = (Step(0, 0), Step(50, 40))
    changes = {"target": Span(0, 90), "steps": steps, "mirrored_end": (100, 90), "shared_target": True}
    partition, left_out = comparable(frozen(**changes))
    assert partition is not None
    assert partition.left_out == (Span(40, 50),)
    assert reasons(left_out) == {(Side.SOURCE, Reason.WRITTEN_BY_OTHERS): Span(40, 50)}
    partition, left_out = comparable(frozen(**changes, gaps=(Span(40, 44),)))
    assert partition is not None
    assert partition.left_out == (Span(40, 50),)
    assert reasons(left_out) == {
        (Side.SOURCE, Reason.GAP_ACCEPTED): Span(40, 44),
        (Side.SOURCE, Reason.WRITTEN_BY_OTHERS): Span(44, 50),
    }
    partition, _ = comparable(frozen(target=Span(0, 90), steps=steps, mirrored_end=(100, 90)))
    assert partition is not None
    assert partition.left_out == ()


def test_what_stands_before_the_first_mirrored_record_is_compared_on_an_exclusive_target() -> None:
    changes = {"target": Span(0, 102), "steps": (Step(0, 2),), "mirrored_end": (100, 102)}
    partition, left_out = comparable(frozen(**changes))
    assert partition is not None
    assert (partition.target, left_out) == (Span(0, 102), ())
    partition, left_out = comparable(frozen(**changes, shared_target=True))
    assert partition is not None
    assert partition.target == Span(2, 102)
    assert reasons(left_out) == {(Side.TARGET, Reason.BEFORE_THE_MIRROR): Span(0, 2)}


def test_what_lies_between_the_intervals_is_counted_in_one_line() -> None:
    steps = tuple(Step(10 * n, 15 * n) for n in range(10))
    _, left_out = comparable(
        frozen(target=Span(0, 145), steps=steps, mirrored_end=(100, 145), shared_target=True, local_tail=True)
    )
    (item,) = left_out
    assert (item.side, item.reason, item.span, item.offsets) == (
        Side.TARGET,
        Reason.WRITTEN_BY_OTHERS,
        Span(10, 135),
        45,
    )


def test_a_source_that_was_recreated_empty_is_a_finding() -> None:
    for mirrored_end in ((100, 100), None):
        partition, left_out = comparable(frozen(source=Span(0, 0), recreated=True, mirrored_end=mirrored_end))
        assert partition is None
        assert reasons(left_out) == {
            (Side.SOURCE, Reason.SOURCE_RECREATED): Span(0, 0),
            (Side.TARGET, Reason.SOURCE_RECREATED): Span(0, 100),
        }


def test_a_target_that_is_gone_with_all_that_the_source_had_is_a_finding() -> None:
    partition, left_out = comparable(frozen(source=Span(100, 100), target=None))
    assert partition is None
    assert reasons(left_out) == {(Side.SOURCE, Reason.TARGET_MISSING): Span(100, 100)}


def test_without_a_record_at_either_site_nothing_is_left_out() -> None:
    for changes in ({"target": None}, {"compacted": True, "target": None}):
        partition, left_out = comparable(frozen(source=Span(0, 0), steps=(), mirrored_end=None, **changes))
        assert (partition, left_out) == (None, ())


@pytest.mark.parametrize("reason", [Reason.SOURCE_DELETED, Reason.NOT_READABLE])
def test_what_the_freeze_left_out_is_left_out_at_both_sites(reason: Reason) -> None:
    partition, left_out = comparable(frozen(source=Span(0, 0), left_out=reason))
    assert partition is None
    assert [(item.side, item.reason, item.offsets) for item in left_out] == [
        (Side.SOURCE, reason, 0),
        (Side.TARGET, reason, 100),
    ]


def test_a_partition_that_only_the_target_has_is_one_too_many_wholly() -> None:
    changes: dict[str, Any] = {"source": Span(0, 0), "target": Span(3, 9), "steps": (), "mirrored_end": None}
    partition, left_out = comparable(frozen(**changes))
    assert partition is not None
    assert (partition.source, partition.target, left_out) == (Span(0, 0), Span(3, 9), ())
    for shared in (True, False):
        partition, left_out = comparable(frozen(**changes, local_tail=True, shared_target=shared))
        assert partition is not None
        assert partition.target.offsets == 0
        assert reasons(left_out) == {(Side.TARGET, Reason.BEYOND_THE_MIRROR): Span(3, 9)}


def earlier(*ends: int) -> ProvedPart:
    return ProvedPart(Span(*sorted(ends[:2])), Span(*sorted(ends[2:])), 0, 0, 1, "run-1")


@given(
    logs=st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
    end=st.one_of(st.none(), st.tuples(st.integers(0, 9), st.integers(0, 9))),
    shared=st.booleans(),
    tail=st.booleans(),
    opened=st.tuples(st.integers(0, 2), st.integers(0, 4)),
    proved=st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
    since=st.none() | st.integers(0, 9),
    asked=st.booleans(),
)
def test_each_offset_is_compared_proved_or_left_out(
    logs: tuple[int, int, int, int],
    end: tuple[int, int] | None,
    shared: bool,
    tail: bool,
    opened: tuple[int, int],
    proved: tuple[int, int, int, int] | None,
    since: int | None,
    asked: bool,
) -> None:
    """Of both sites, whatever was found: none of them is dropped without a word, and none is twice."""
    at_source, at_target = Span(*sorted(logs[:2])), Span(*sorted(logs[2:]))
    steps = () if end is None else (Step(min(2, end[0]), min(3, end[1])),)
    found = frozen(
        source=at_source,
        target=at_target,
        steps=steps,
        mirrored_end=end,
        shared_target=shared,
        local_tail=shared or tail,
        open_at_source=Span(at_source.end, at_source.end + opened[0]) if opened[0] else None,
        open_at_target=Span(max(at_target.start, at_target.end - opened[1]), at_target.end) if opened[1] else None,
        proved=() if proved is None else (earlier(*proved),),
        since=since,
        is_asked=asked,
    )
    partition, left_out = comparable(found)
    for side, log in ((Side.SOURCE, Span(at_source.start, at_source.end + opened[0])), (Side.TARGET, at_target)):
        seen = dict.fromkeys(range(log.start, log.end), 0)
        if partition is not None:
            read = partition.source if side is Side.SOURCE else partition.target
            dropped = partition.left_out if side is Side.SOURCE else partition.foreign
            parts = [part.source if side is Side.SOURCE else part.target for part in partition.proved]
            for offset in [each for span in (*parts, read) for each in range(span.start, span.end)]:
                if offset in seen and not any(span.start <= offset < span.end for span in dropped):
                    seen[offset] += 1
        told = sum(
            item.offsets for item in left_out if item.side is side and item.reason is not Reason.SOURCE_TRUNCATED
        )
        assert max(seen.values(), default=0) <= 1
        assert told + sum(seen.values()) >= log.offsets


def test_behind_an_open_transaction_at_the_target_nothing_is_compared() -> None:
    partition, left_out = comparable(frozen(source=Span(0, 120), open_at_target=Span(60, 100)))
    assert partition is not None
    assert (partition.source, partition.target, partition.segments) == (Span(0, 60), Span(0, 60), (Segment(0, 0, 60),))
    assert reasons(left_out) == {
        (Side.SOURCE, Reason.OPEN_TRANSACTION): Span(60, 100),
        (Side.SOURCE, Reason.NOT_MIRRORED_YET): Span(100, 120),
        (Side.TARGET, Reason.OPEN_TRANSACTION): Span(60, 100),
    }


def test_an_open_transaction_of_others_behind_the_mirrored_end_hides_no_mirrored_record() -> None:
    partition, left_out = comparable(frozen(target=Span(0, 105), open_at_target=Span(102, 105)))
    assert partition is not None
    assert (partition.source, partition.target) == (Span(0, 100), Span(0, 102))
    assert reasons(left_out) == {(Side.TARGET, Reason.OPEN_TRANSACTION): Span(102, 105)}


def test_what_is_behind_an_open_transaction_at_the_source_is_said() -> None:
    for changes in ({}, {"compacted": True}):
        _, left_out = comparable(frozen(open_at_source=Span(100, 130), **changes))
        assert reasons(left_out)[Side.SOURCE, Reason.OPEN_TRANSACTION] == Span(100, 130)


def test_what_is_proved_is_not_read_again() -> None:
    part = ProvedPart(Span(0, 60), Span(0, 60), 60, 60, 1, "run-1")
    partition, left_out = comparable(frozen(proved=(part,)))
    assert partition is not None
    assert (partition.source, partition.target, partition.segments) == (
        Span(60, 100),
        Span(60, 100),
        (Segment(60, 60, 40),),
    )
    assert (partition.proved, left_out) == ((part,), ())


@pytest.mark.parametrize(
    ("begins", "since", "read", "told"),
    [
        (0, None, Span(60, 100), []),
        (0, 50, Span(60, 100), []),
        (0, 70, Span(70, 100), [Span(60, 70)]),
        (20, None, Span(0, 100), []),
        (20, 10, Span(10, 100), [Span(0, 10)]),
        (20, 30, Span(60, 100), [Span(0, 20)]),
        (20, 70, Span(70, 100), [Span(0, 20), Span(60, 70)]),
    ],
)
def test_what_is_older_than_asked_for_is_left_out_unless_it_is_proved(
    begins: int, since: int | None, read: Span, told: list[Span]
) -> None:
    part = ProvedPart(Span(begins, 60), Span(begins, 60), 1, 1, 1, "run-1")
    partition, left_out = comparable(frozen(proved=(part,), since=since))
    assert partition is not None
    assert (partition.source, partition.target) == (read, read)
    for side in Side:
        assert [item.span for item in left_out if item.side is side] == told
    assert {item.reason for item in left_out} <= {Reason.BEFORE_SINCE}


def test_of_a_topic_that_was_not_asked_for_only_what_is_proved_counts() -> None:
    part = ProvedPart(Span(0, 60), Span(0, 60), 60, 60, 1, "run-1")
    partition, left_out = comparable(frozen(proved=(part,), is_asked=False))
    assert partition is not None
    assert (partition.source.offsets, partition.target.offsets, partition.proved) == (0, 0, (part,))
    assert reasons(left_out) == dict.fromkeys(((side, Reason.NOT_ASKED) for side in Side), Span(60, 100))
