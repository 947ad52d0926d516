"""A loss that grows while a person reads: as its pace made likely, or beyond that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deploy.cli.loss_lines import headline
from failover.losses.statements import Certainty, LossGrowth, LossTotal, PartitionLoss, growth, sum_losses, total_loss
from mirror.api import Ceased, LastLook
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


GONE = PartitionLoss("flights", 1, Certainty.AT_LEAST, 5, None, 0, 5, seen_at_ms=10_000, ceased=Ceased(10_250, 4.0))
"""Its broker died; the source's others go on."""
LIVING = PartitionLoss("flights", 0, Certainty.EXACT, 3, 3, 0, 3, seen_at_ms=3_600_000)


@pytest.mark.parametrize("stated_at_ms", [11_000, 3_600_000, 36_000_000])
def test_what_a_dead_broker_may_have_taken_does_not_grow_while_the_others_go_on(stated_at_ms: int) -> None:
    """It was said to have gone on at the pace of all the source's partitions, for as long as nobody looked at it."""
    last = LastLook(stated_at_ms - 100, None, (Growth(60_000, 24_000),), 400.0)
    total = total_loss([LIVING, GONE], stated_at_ms, last, is_source_there=True)
    assert (total.offsets, total.likely_offsets) == (8, 9)
    assert (total.seen_at_ms, total.unanswered_at_ms, total.ceased_per_s) == (10_000, 10_250, 4.0)
    assert (total.ceased_partitions, total.seen_seconds) == (1, None), "the windows of its pace are of the others"
    assert sum_losses([total, total]).likely_offsets == 18


@pytest.mark.parametrize("ceased", [Ceased(None, None), Ceased(10_250, None), Ceased(None, 4.0)])
def test_where_nobody_saw_when_a_broker_ceased_to_answer_nothing_is_called_likely(ceased: Ceased) -> None:
    last = LastLook(3_599_900, None, (Growth(60_000, 24_000),), 400.0)
    total = total_loss([LIVING, replace(GONE, ceased=ceased)], 3_600_000, last, is_source_there=True)
    assert (total.offsets, total.likely_offsets, total.certainty) == (8, None, Certainty.AT_LEAST)


def test_a_source_that_died_wholly_behind_one_of_its_brokers_is_judged_part_by_part() -> None:
    last = LastLook(20_000, 21_000, (Growth(10_000, 4_000),), 400.0)
    other = PartitionLoss("flights", 0, Certainty.AT_LEAST, 3, None, 0, 3, seen_at_ms=20_000)
    total = total_loss([other, GONE], 90_000, last)
    assert (total.offsets, total.likely_offsets) == (8, 8 + 400 + 1)
    assert (total.seen_at_ms, total.unanswered_at_ms) == (10_000, 21_000)


@pytest.mark.parametrize(("seen_beyond", "likely"), [(0, 5 + 100), (40, 5 + 60), (100, 5), (101, 5)])
def test_what_was_seen_beyond_a_look_is_among_what_was_written_since(seen_beyond: int, likely: int) -> None:
    """How far a group has read, or a later fetch went, counted as seen, and once more as likely since the look."""
    dead = PartitionLoss("flights", 1, Certainty.AT_LEAST, 5, None, 0, 5, seen_at_ms=10_000, seen_beyond=seen_beyond)
    alone = replace(dead, ceased=Ceased(10_250, 400.0))
    last = LastLook(10_000, 10_250, (Growth(10_000, 4_000),), 400.0)
    assert total_loss([dead], 90_000, last).likely_offsets == likely
    assert total_loss([LIVING, alone], 90_000, last, is_source_there=True).likely_offsets == 3 + likely


def test_a_source_that_answers_is_not_said_to_have_been_away_where_a_transaction_is_open_there() -> None:
    held = PartitionLoss("flights", 0, Certainty.AT_LEAST, 3, 3, 0, 3, seen_at_ms=90_000, open_offsets=4)
    total = total_loss([held], 90_000, LastLook(30_000, None, (Growth(10_000, 4_000),), 400.0), is_source_there=True)
    assert (total.likely_offsets, total.seen_at_ms, total.unanswered_at_ms) == (7, 90_000, None)
    assert "nothing says when it ceased" not in headline(total, "east")
    assert "it answers" in headline(total, "east")


@pytest.mark.parametrize("stated_at_ms", [120_000, 9_000_000])
def test_what_a_source_that_nobody_watched_may_have_written_ends_where_it_was_found_dead(stated_at_ms: int) -> None:
    """It grew with the hours of who took the operation up: 17,909 when it was planned, and 85,533 in its result."""
    loss = PartitionLoss("flights", 0, Certainty.AT_LEAST, 4, None, 1, 5, seen_at_ms=20_000)
    look = LastLook(20_000, None, (Growth(60_000, 600),), 10.0)
    total = total_loss([loss], stated_at_ms, look, found_dead_at_ms=100_000)
    assert (total.likely_offsets, total.found_dead_at_ms) == (804, 100_000)
    said = headline(total, "east")
    assert "had it gone on so until 1970-01-01T00:01:40.000Z, when it was found dead, 4 to 804 offsets would be" in said
    both = sum_losses([total, replace(total, found_dead_at_ms=90_000)])
    assert (both.likely_offsets, both.found_dead_at_ms) == (1_608, 100_000)
    assert sum_losses([total, replace(total, found_dead_at_ms=None)]).found_dead_at_ms is None
    early = headline(total_loss([loss], stated_at_ms, look, found_dead_at_ms=22_000), "east")
    assert early.startswith("lost: likely 4 to 24 offsets. Seen at east")
    assert "it was found dead at 1970-01-01T00:00:22.000Z, and nothing says when it ceased to answer" in early
    watched = total_loss([loss], stated_at_ms, replace(look, unanswered_at_ms=21_000), found_dead_at_ms=100_000)
    assert watched.likely_offsets == 14


def test_of_a_source_that_is_gone_and_was_never_seen_nothing_is_called_none() -> None:
    total = total_loss([], 90_000)
    assert (total.records, total.certainty) == (None, Certainty.UNKNOWN)
    assert headline(total, "east") == "lost: how much is unknown: nothing was ever seen of what east has"
    assert total_loss([], 90_000, is_source_there=True).certainty is Certainty.EXACT
