"""A loss that grows while a person reads: as its pace made likely, or beyond that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from failover.losses import Certainty, LossGrowth, LossTotal, PartitionLoss, growth, sum_losses, total_loss
from mirror.api import LastLook
from mirror.offsets.source_ends import Growth

SHOWN = LossTotal(10, None, 1, Certainty.EXACT, stated_at_ms=1_000, fastest_per_s=2.5)


@pytest.mark.parametrize(
    ("offsets", "after_ms", "expected"),
    [
        (10, 0, LossGrowth.NONE),
        (3, 60_000, LossGrowth.NONE),
        (11, 0, LossGrowth.BEYOND),
        (11, 100, LossGrowth.LIKELY),
        (60, 20_000, LossGrowth.LIKELY),
        (61, 20_000, LossGrowth.BEYOND),
        (11, -5_000, LossGrowth.BEYOND),
    ],
)
def test_what_the_pace_that_was_shown_makes_likely(offsets: int, after_ms: int, expected: LossGrowth) -> None:
    now = replace(SHOWN, offsets=offsets, stated_at_ms=1_000 + after_ms, fastest_per_s=99.0)
    assert growth(SHOWN, now) is expected
    bound = replace(SHOWN, certainty=Certainty.AT_LEAST)
    assert growth(bound, replace(now, certainty=Certainty.AT_LEAST)) is expected
    assert growth(bound, now) is expected


def test_without_a_pace_any_growth_is_beyond_it_and_so_is_what_is_less_certain() -> None:
    now = replace(SHOWN, offsets=11, stated_at_ms=90_000)
    assert growth(replace(SHOWN, fastest_per_s=None), now) is LossGrowth.BEYOND
    assert growth(replace(SHOWN, fastest_per_s=None), replace(now, offsets=10)) is LossGrowth.NONE
    assert growth(SHOWN, replace(SHOWN, certainty=Certainty.AT_LEAST)) is LossGrowth.BEYOND


def test_the_pace_of_a_source_that_lives_is_told_beside_what_is_known_exactly() -> None:
    loss = PartitionLoss("flights", 0, Certainty.EXACT, 4, 4, 1, 5)
    total = total_loss([loss], 7_000, LastLook(6_900, None, (), 3.0))
    assert (total.certainty, total.offsets, total.fastest_per_s) == (Certainty.EXACT, 4, 3.0)
    assert (total.likely_offsets, total.seen_at_ms) == (None, None)
    assert sum_losses([total, total]).fastest_per_s == 6.0
    assert sum_losses([total, replace(total, fastest_per_s=None)]).fastest_per_s is None


def test_what_may_be_lost_or_have_come_back_was_shown_so_only_more_of_both_is_a_growth() -> None:
    shown = replace(SHOWN, certainty=Certainty.AT_LEAST, offsets=4, unclear_offsets=6)
    for offsets, unclear, expected in (
        (10, 0, LossGrowth.NONE),
        (0, 10, LossGrowth.NONE),
        (4, 7, LossGrowth.LIKELY),
        (0, 61, LossGrowth.BEYOND),
    ):
        now = replace(shown, offsets=offsets, unclear_offsets=unclear, stated_at_ms=1_400)
        assert growth(shown, now) is expected
    total = total_loss([], 7_000, LastLook(6_900, None, (), 3.0))
    of_both = sum_losses([shown, replace(shown, unclear_offsets=1), total])
    assert (of_both.offsets, of_both.unclear_offsets, of_both.seen_offsets) == (8, 7, 15)


def test_what_is_unclear_is_likely_lost_at_most_and_counts_among_what_was_written_in_that_time() -> None:
    loss = PartitionLoss("flights", 0, Certainty.AT_LEAST, 4, None, 1, 105, unclear_offsets=100)
    total = total_loss([loss], 7_000, LastLook(6_000, None, (Growth(1_000, 52), Growth(2_000, 104)), 3.0))
    assert (total.offsets, total.unclear_offsets) == (4, 100)
    assert (total.likely_offsets, total.seen_seconds) == (107, 2.0)


def test_a_partition_that_was_not_seen_for_long_is_not_said_to_have_been_seen_with_the_others() -> None:
    """Its leader was away for an hour, the others were seen a second ago: what it wrote since then is likely, too."""
    seen = [
        PartitionLoss("flights", 0, Certainty.AT_LEAST, 5, None, 0, 5, seen_at_ms=3_599_000),
        PartitionLoss("flights", 1, Certainty.AT_LEAST, 0, None, 0, 0, seen_at_ms=0),
    ]
    total = total_loss(seen, 3_600_000, LastLook(3_599_000, None, (Growth(60_000, 0),), 10.0))
    assert (total.offsets, total.seen_at_ms, total.likely_offsets) == (5, 0, 5 + 36_000)
