"""A loss that grows while a person reads: as its pace made likely, or beyond that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from failover.losses import Certainty, LossGrowth, LossTotal, PartitionLoss, growth, sum_losses, total_loss
from mirror.api import LastLook

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
