"""What the target lost of its own, beside what a link was still to bring: the statement's ends and counts. Pure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from failover.losses.lacked_of import with_lacked
from failover.losses.statements import Certainty, PartitionLoss
from failover.observing.snapshot import Lacked

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
