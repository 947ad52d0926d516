"""What the switchover of a failback would refuse, by who is in the groups that are to come."""

from __future__ import annotations

from dataclasses import replace

import pytest

from failover.failback.foreseen import Foreseen, foreseen
from failover.failback.plan import BackLink, FailbackRefusal, FailbackStep, plan_failback
from failover.failback.stranding import Stranded
from failover.failback.waves import ALL_BACK, GroupsBack
from failover.observing.contact import SiteFinding
from failover.observing.snapshot import GroupView, Snapshot
from failover.planning.gates import GateRefusal, RefusalReason
from mirror.api import LinkCondition, LinkRun, RunState

READER = GroupView("reader", "Stable", "Empty", 2, 0, None, ())
BACK_READER = GroupView("back", "Empty", None, 0, None, None, ())
SNAPSHOT = Snapshot("back", "west", "east", 9, SiteFinding.ALIVE, "running", "", (), (READER, BACK_READER))
AT_WEST = GateRefusal(RefusalReason.GROUP_ACTIVE_AT_SOURCE, "reader")
AT_EAST = GateRefusal(RefusalReason.MEMBERS_UNKNOWN_AT_TARGET, "back")
LOST = LinkRun(RunState.PROMOTED, "failover-1", 1)


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (ALL_BACK, (AT_WEST, AT_EAST)),
        (GroupsBack(("reader",), staying=("back",), is_all=False), (AT_WEST,)),
        (GroupsBack(("back",), staying=("reader",), is_all=False), (AT_EAST,)),
        (GroupsBack((), staying=("back", "reader"), is_all=False), ()),
    ],
)
def test_of_groups_that_come_it_is_seen_who_is_in_them(groups: GroupsBack, expected: tuple[GateRefusal, ...]) -> None:
    assert foreseen(SNAPSHOT, groups).in_use == expected


def test_it_refuses_a_failback_that_moves_groups_still_and_none_whose_move_is_only_to_be_verified() -> None:
    """Applications may have been started at the old source behind a move that is to be looked at once more."""
    used = BackLink("back", LinkCondition.RUNNING, None, foreseen=Foreseen(in_use=(AT_WEST,)))
    found = Stranded("there", "east", "west", 0, ())
    plan = plan_failback(found, LOST, (used,), "", same_names=True)
    assert plan.refusals == (FailbackRefusal.GROUPS_IN_USE,)
    moved = replace(used, run=replace(LOST, operation_id="switchover-2"), is_later=True)
    assert plan_failback(found, LOST, (replace(moved, groups=GroupsBack()),), "", same_names=True).refusals == ()
    unfinished = plan_failback(found, LOST, (replace(moved, is_unfinished=True),), "", same_names=True)
    assert FailbackStep.SWITCH_OVER in unfinished.steps
    assert unfinished.refusals == ()
