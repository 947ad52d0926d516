"""What the target lost of its own, beside what a link was still to bring: ends, counts and words of the loss. Pure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deploy.cli.loss_lines import headline
from failover.losses.lacked_of import with_counted, with_lacked, with_told
from failover.losses.statements import Certainty, LossGrowth, PartitionLoss, growth, sum_losses, total_loss
from failover.observing.snapshot import Lacked
from mirror.api import Ceased, LastLook
from mirror.offsets.source_ends import Growth
from mirror.worker.parted import PartingKind, SourceParting

AT = "flights", 0
NONE = PartitionLoss(*AT, Certainty.EXACT, 0, 0, 60, 60)
LACKED = Lacked(*AT, 30, 50, 20)


def test_where_nothing_is_lacked_after_all_the_statement_is_as_it_was() -> None:
    """Its first offset and its times were changed for 0 records."""
    stated = replace(NONE, offsets=3, records=3, end_offset=63, first_timestamp_ms=7)
    assert with_lacked([stated], [replace(LACKED, records=0)]) == (stated,)


@pytest.mark.parametrize(
    "stated",
    [
        PartitionLoss(*AT, Certainty.UNKNOWN, None, None, None, 70),
        replace(NONE, certainty=Certainty.AT_LEAST, end_offset=64, unclear_offsets=4),
        replace(NONE, certainty=Certainty.AT_LEAST, open_offsets=4),
    ],
    ids=["unknown", "unclear", "open"],
)
def test_what_is_stated_of_the_source_ends_where_it_did(stated: PartitionLoss) -> None:
    """It ended where the lacked ones do, before what may be lost behind them."""
    (loss,) = with_lacked([stated], [LACKED])
    assert (loss.first_offset, loss.end_offset, loss.lacked_records) == (30, stated.end_offset, 20)


def test_where_nothing_else_is_lost_it_ends_with_what_is_lacked() -> None:
    (loss,) = with_lacked([NONE], [LACKED])
    assert (loss.first_offset, loss.end_offset, loss.records) == (30, 50, 20)


LAST = LastLook(6_000, None, (Growth(1_000, 3), Growth(60_000, 90)), 2.0)
SEEN = PartitionLoss(*AT, Certainty.AT_LEAST, 3, None, 60, 63, seen_at_ms=6_000)


def test_no_pace_speaks_of_what_the_target_had_before() -> None:
    """It said `likely 23 to 25 offsets ... what west wrote in 15 s`, of which 20 were years old."""
    alone = total_loss([SEEN], 7_000, LAST)
    total = total_loss(with_lacked([SEEN], [LACKED]), 7_000, LAST)
    assert (total.seen_offsets, total.seen_seconds) == (alone.seen_offsets, alone.seen_seconds) == (3, 1.0)
    assert (total.offsets, total.likely_offsets, total.lacked_records) == (23, 25, 20)
    said = headline(total, "west")
    assert said.startswith(headline(alone, "west").replace(" in 1 partition", ""))
    assert "likely 3 to 5 offsets" in said
    assert said.endswith("Beside that, only at the source: 20 records that the target had before, and lost")
    of_two = sum_losses([total, alone])
    assert (of_two.lacked_offsets, of_two.lacked_records, of_two.seen_offsets) == (20, 20, 6)


@pytest.mark.parametrize("records", [20, None])
def test_of_an_exact_loss_it_is_said_how_much_of_it_the_target_had_before(records: int | None) -> None:
    stated = replace(NONE, offsets=3, records=3, end_offset=63)
    said = headline(total_loss(with_lacked([stated], [replace(LACKED, records=records)])), "west")
    assert said.startswith("only at the source: 23 ")
    had = "20 records" if records else "20 offsets, at most as many records,"
    assert said.endswith(f"Among what is only at the source: {had} that the target had before, and lost")


def test_more_that_is_lacked_is_never_what_the_pace_made_likely() -> None:
    shown = total_loss(with_lacked([SEEN], [LACKED]), 7_000, LAST)
    now = total_loss(with_lacked([SEEN], [replace(LACKED, records=21)]), 17_000, LAST)
    assert growth(shown, shown) is LossGrowth.NONE
    assert growth(shown, now) is LossGrowth.BEYOND


def test_what_cannot_be_compared_has_no_count() -> None:
    (loss,) = with_lacked([NONE], [replace(LACKED, first_offset=None, records=None)])
    assert (loss.certainty, loss.records, loss.lacked_records) == (Certainty.UNKNOWN, None, None)
    assert "0 records" not in headline(total_loss([loss]), "west")


def test_of_a_dead_broker_s_partition_the_pace_is_told_whether_or_not_it_could_be_compared() -> None:
    """The first bound was lost with the second: the upper figure left out what likely came to the dead broker."""
    dead = replace(SEEN, partition=1, ceased=Ceased(6_250, 4.0))
    unknown = Lacked("flights", 1, None, 0, None)
    alone = total_loss([NONE, dead], 7_000, LAST, is_source_there=True)
    total = total_loss(with_lacked([NONE, dead], [unknown]), 7_000, LAST, is_source_there=True)
    assert (total.likely_offsets, total.seen_at_ms) == (alone.likely_offsets, alone.seen_at_ms) == (4, 6_000)
    assert (total.uncompared_partitions, total.unseen_partitions, total.lacked_records) == (1, 0, None)
    said = headline(total, "west")
    assert said.startswith(headline(alone, "west"))
    assert said.endswith("; in 1 partition the target may have lost records of its own, too: that could not be checked")
    lost = PartitionLoss(*AT, Certainty.UNKNOWN, None, None, None, 70)
    assert [one.is_end_seen for one in with_lacked([lost], [LACKED])] == [False], "of the source nothing is known still"


def test_what_was_told_before_stands_where_it_cannot_be_told_any_more() -> None:
    cut = SourceParting(*AT, PartingKind.CUT, 30, 50, "it ends there")
    unknown = replace(cut, kind=PartingKind.NOT_COMPARED)
    assert with_told([unknown], [cut]) == with_told([cut], [unknown]) == (cut,)
    assert with_told([], [cut]) == (), "it was compared, and has all of it"
    assert with_told([unknown], []) == (unknown,)
    uncounted = replace(LACKED, records=None)
    assert with_counted([uncounted], [LACKED]) == with_counted([LACKED], [uncounted]) == (LACKED,)
