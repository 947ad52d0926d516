"""Whether what a link would append is still what somebody said yes to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deploy.cli.link import _is_other
from deploy.cli.stranded_ways import TailsGoing
from mirror.api import StrandedTail

TAIL = StrandedTail("flights", 0, "flights", 4, 6, 2, 0, 0, False, True, 5)
TOLD = TailsGoing(brings=(TAIL,))
MORE = replace(TAIL, end_offset=9, records=5)


@pytest.mark.parametrize(
    ("told", "now", "is_other"),
    [
        (TOLD, TOLD, False),
        (TOLD, TailsGoing(brings=()), False),
        (TOLD, TailsGoing(brings=(MORE,)), True),
        (TOLD, TailsGoing(brings=(replace(MORE, target_wrote=False),)), False),
        (TOLD, TailsGoing(brings=None), True),
        (TailsGoing(brings=None), TailsGoing(brings=None), False),
        (TailsGoing(brings=None), TOLD, False),
        (TOLD, TailsGoing(leaves=(TAIL,)), True),
    ],
)
def test_more_behind_newer_records_or_what_cannot_be_counted_any_more_is_other(
    told: TailsGoing, now: TailsGoing, is_other: bool
) -> None:
    assert _is_other(told, now) is is_other
