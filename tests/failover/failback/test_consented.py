"""Behind the yes a failback does with its groups what was shown, while the link back goes on bringing what it knows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from failover.failback.consented import does_no_more, is_as_shown
from failover.failback.foreseen import Foreseen, SetBack, SkipsLost
from failover.failback.plan import FailbackPlan, FailbackStep
from failover.planning.moves import GroupTotal

STEPS = (FailbackStep.CARRY, FailbackStep.SET_GROUPS, FailbackStep.SWITCH_OVER, FailbackStep.RESUME)
BARE = FailbackPlan("east-west", "west-east", "east", "west", STEPS, (), 0, "", ())
BACK = SetBack("a", "flights", 0, 53, 39)


def plan(again: int | None, skipped: int | None, *back: SetBack, unknown: bool = False) -> FailbackPlan:
    foreseen = Foreseen(set_back=back, to_be_brought=("a",) if unknown else ())
    return replace(BARE, foreseen=foreseen, group_totals=(GroupTotal("a", again, skipped),))


UNKNOWN = plan(None, None, unknown=True)


def losing(records: int | None) -> FailbackPlan:
    skips = (SkipsLost("a", "flights", 1, records),)
    return replace(UNKNOWN, foreseen=replace(UNKNOWN.foreseen, skips=skips))


@pytest.mark.parametrize(
    ("shown", "now", "expected"),
    [
        (plan(14, 0, BACK), plan(14, 0, replace(BACK, from_offset=58)), True),
        (plan(14, 0, BACK), plan(0, 0), True),
        (plan(0, 0), plan(14, 0, BACK), False),
        (plan(14, 0), plan(14, 0, BACK), False),
        (plan(3, 0), plan(4, 0), False),
        (plan(3, 0), plan(3, 1), False),
        (plan(0, 0), UNKNOWN, False),
        (UNKNOWN, plan(14, 2, BACK), True),
        (UNKNOWN, UNKNOWN, True),
        (BARE, plan(0, 0), True),
        (BARE, plan(1, 0), False),
        (UNKNOWN, losing(9), False),
        (losing(9), losing(8), True),
        (losing(9), losing(None), False),
    ],
)
def test_less_than_was_shown_is_as_shown_and_more_is_not(
    shown: FailbackPlan, now: FailbackPlan, expected: bool
) -> None:
    assert does_no_more(shown, now) is expected
    assert is_as_shown(shown, now) is expected


def test_what_is_not_of_groups_is_to_be_the_same() -> None:
    now = replace(plan(0, 0), stays_paused=("flights",))
    assert does_no_more(plan(0, 0), now)
    assert not is_as_shown(plan(0, 0), now)
