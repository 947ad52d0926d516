"""A sample takes the ranges that it says, at both sites the same, and says of the others what follows and no more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitoring import limits
from monitoring.audit.model import ComparablePartition, Segment, Side, Span
from monitoring.audit.reasons import Reason
from monitoring.audit.sample import (
    Sample,
    Sampled,
    choose,
    differing_at_most,
    not_sampled,
    ranges_of,
    sampled,
    spans_of_ranges,
)

WIDTH = 4


@pytest.fixture(scope="module", autouse=True)
def narrow_ranges() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(limits, "AUDIT_RANGE_OFFSETS", WIDTH)
        yield


def whole(number: int, partition: int = 0, compacted: bool = False) -> ComparablePartition:
    span = Span(0, number)
    return ComparablePartition("t", partition, "t", span, span, (Segment(0, 0, number),), compacted=compacted)


@st.composite
def partitions(draw: st.DrawFn) -> ComparablePartition:
    """Intervals with what only one site has before, between and behind them."""
    source = target = draw(st.integers(0, 9))
    start = Span(source, target)
    segments = []
    for _ in range(draw(st.integers(0, 5))):
        source += draw(st.integers(0, 6))
        target += draw(st.integers(0, 6))
        length = draw(st.integers(1, 9))
        segments.append(Segment(target, source, length))
        source, target = source + length, target + length
    source_span = Span(start.start, source + draw(st.integers(0, 5)))
    return ComparablePartition(
        "t", 0, "t", source_span, Span(start.end, target + draw(st.integers(0, 5))), tuple(segments)
    )


def range_at_target(partition: ComparablePartition, offset: int) -> int:
    """As the digests place a record: see `look_up`."""
    at = 0
    for nth, segment in enumerate(partition.segments):
        if nth == 0 or offset >= segment.target_start:
            at = segment.source_start + min(max(0, offset - segment.target_start), segment.length)
    return at - at % WIDTH


@given(partitions())
def test_each_record_is_in_one_range_and_read_with_it_alone(partition: ComparablePartition) -> None:
    ranges = ranges_of(partition)
    for side, span, place in (
        (Side.SOURCE, partition.source, lambda offset: offset - offset % WIDTH),
        (Side.TARGET, partition.target, lambda offset: range_at_target(partition, offset)),
    ):
        for start in ranges:
            read = {
                offset for part in spans_of_ranges(partition, [start], side) for offset in range(part.start, part.end)
            }
            assert read == {offset for offset in range(span.start, span.end) if place(offset) == start}
        assert {place(offset) for offset in range(span.start, span.end)} <= set(ranges)


def test_as_many_ranges_as_are_asked_are_chosen_of_all_partitions_together() -> None:
    parts = [whole(400, 0), whole(37, 1), whole(1_000, 2, compacted=True)]
    chosen = choose(parts, Sample(10, "a"))
    assert sum(map(len, chosen.values())) == 11
    assert all(start in ranges_of(parts[partition]) for (_, partition), starts in chosen.items() for start in starts)
    assert choose(parts, Sample(10, "a")) == chosen != choose(parts, Sample(10, "b"))
    assert sum(map(len, choose(parts, Sample(0.001, "a")).values())) == 1
    assert {place: list(starts) for place, starts in choose(parts, Sample(100, "a")).items()} == {
        ("t", 0): list(range(0, 400, WIDTH)),
        ("t", 1): list(range(0, 37, WIDTH)),
    }


def test_every_range_is_as_likely_as_any_other() -> None:
    drawn = Counter(start for seed in range(2_000) for start in choose([whole(40)], Sample(30, str(seed)))["t", 0])
    assert sum(drawn.values()) == 6_000
    assert all(500 < number < 700 for number in drawn.values())
    assert len(drawn) == 10


def test_what_is_not_chosen_is_told_and_counted() -> None:
    part = whole(38)
    chosen = {("t", 0): (4, 36)}
    assert [(item.side, item.reason, item.offsets) for item in not_sampled([part], chosen)] == [
        (Side.SOURCE, Reason.NOT_SAMPLED, 32),
        (Side.TARGET, Reason.NOT_SAMPLED, 32),
    ]
    assert not_sampled([part], {("t", 0): ranges_of(part)}) == []
    assert sampled(Sample(20, "a"), [part], chosen, 0) == Sampled(20, "a", 10, 2, 0)


def test_what_has_expired_is_neither_of_the_sample_nor_of_all() -> None:
    """A range that begins before what is left of the partition is no range of it."""
    span = Span(8, 38)
    rest = ComparablePartition("t", 0, "t", span, span, (Segment(8, 8, 30),))
    assert sampled(Sample(20, "a"), [rest], {("t", 0): (4, 36)}, 0) == Sampled(20, "a", 8, 1, 0)


@pytest.mark.parametrize(("ranges", "compared"), [(1, 1), (10, 1), (10, 9), (100, 10), (997, 58), (5_000, 300)])
def test_the_bound_is_the_largest_number_that_such_a_sample_would_often_have_missed(ranges: int, compared: int) -> None:
    """Exact integers: one in twenty samples or more has none of so many, and fewer have none of one more."""
    most = differing_at_most(ranges, compared)
    samples = comb(ranges, compared)
    assert 20 * comb(ranges - most, compared) >= samples
    assert 20 * comb(ranges - most - 1, compared) < samples


def test_the_bound_is_about_the_rule_of_three_and_none_where_one_differs() -> None:
    assert 0.9 * 3_000 < differing_at_most(1_000_000, 1_000) < 3_000
    assert Sampled(1, "a", 1_000, 100, 0).at_most == differing_at_most(1_000, 100)
    assert Sampled(1, "a", 1_000, 100, 1).at_most is None
    assert Sampled(100, "a", 1_000, 1_000, 0).at_most == 0
    assert Sampled(1, "a", 0, 0, 0).at_most is None
