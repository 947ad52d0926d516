"""The way back as steps: what the world shows to be done is left out, and nothing is begun that cannot end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.wire.site_role import SiteRole, SiteStanding
from failover.failback.plan import BackLink, FailbackRefusal, FailbackStep, is_back, nothing_left, plan_failback
from failover.failback.stranding import RoleInTheWay, Stranded, count_in, role_in_the_way
from failover.freezing.choice import Freezing
from failover.planning.plan import Elsewhere
from mirror.api import LinkCondition, LinkRun, RunState, StrandedTail

CLOSED = SiteStanding(SiteRole.STANDBY, topics=("flights",))
RUNS = st.none() | st.builds(LinkRun, st.sampled_from(RunState), st.just("op"), st.integers(0, 9))
CONDITIONS = st.sampled_from(LinkCondition)
BACK = st.builds(BackLink, st.just("back"), CONDITIONS, RUNS, st.none() | st.booleans(), st.booleans())
BACKS = st.lists(BACK, max_size=2).map(tuple)
TAILS = st.lists(
    st.builds(
        lambda records, left: StrandedTail("t", 0, "t", 5, 9, records, None, None, left, True, 5),
        st.none() | st.integers(1, 4),
        st.booleans(),
    ),
    max_size=3,
).map(tuple)


@given(RUNS, BACKS, TAILS, st.booleans())
def test_steps_come_in_their_order_and_end_with_the_link_running(
    run: LinkRun | None, backs: tuple[BackLink, ...], tails: tuple[StrandedTail, ...], same: bool
) -> None:
    found = Stranded("link", "east", "west", count_in(tails), tails)
    plan = plan_failback(found, run, backs, "folder", same_names=same)
    assert plan.stranded_records == count_in(tail for tail in tails if not tail.left)
    assert plan.left_records == count_in(tail for tail in tails if tail.left)
    order = list(FailbackStep)
    assert sorted(plan.steps, key=order.index) == list(plan.steps)
    moved = run is not None and run.state is RunState.PROMOTED
    open_one = any(tail.records is None and not tail.left for tail in tails)
    assert (FailbackRefusal.NOT_PROMOTED in plan.refusals) is not moved
    assert (FailbackRefusal.TRANSACTION_OPEN in plan.refusals) is open_one
    both_moved = moved and len(backs) == 1 and backs[0].run is not None and backs[0].run.state is RunState.PROMOTED
    unordered = both_moved and backs[0].is_later is None
    assert (FailbackRefusal.ORDER_UNKNOWN in plan.refusals) is unordered
    if not moved or not same or len(backs) != 1 or open_one or unordered:
        assert plan.refusals
        assert plan.steps == ()
        return
    assert plan.steps[-1] is FailbackStep.RESUME
    saves = any(not tail.left for tail in tails)
    assert (FailbackStep.EXPORT in plan.steps) is (FailbackStep.LEAVE in plan.steps) is saves
    assert (plan.export_to == "folder") is saves
    moves = not is_back(run, backs[0])
    assert (FailbackStep.CARRY in plan.steps) is moves
    assert (FailbackStep.SWITCH_OVER in plan.steps) is (moves or backs[0].is_unfinished)
    if backs[0].condition is LinkCondition.SILENT and not is_back(run, backs[0]):
        assert plan.refusals == (FailbackRefusal.LINK_BACK_SILENT,)


@given(RUNS, BACK, TAILS)
def test_a_link_back_runs_only_when_its_own_tail_is_decided_about(
    run: LinkRun | None, back: BackLink, tails: tuple[StrandedTail, ...]
) -> None:
    undecided = tuple(tail for tail in tails if not tail.left)
    back = replace(back, tails=undecided)
    plan = plan_failback(Stranded("link", "east", "west", 0, ()), run, (back,), "folder", same_names=True)
    resumes = FailbackStep.RESUME_BACK in plan.steps
    assert (FailbackRefusal.BACK_TAIL_UNDECIDED in plan.refusals) is (resumes and bool(undecided))
    assert plan.back_tails == undecided


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (None, None, None),
        (SiteStanding(), CLOSED, None),
        (SiteStanding(), SiteStanding(SiteRole.STANDBY), None),
        (SiteStanding(SiteRole.STANDBY, topics=("other",)), CLOSED, None),
        (CLOSED, CLOSED, RoleInTheWay.SOURCE_CLOSED),
        (SiteStanding(SiteRole.FROZEN), CLOSED, RoleInTheWay.SOURCE_CLOSED),
        (SiteStanding(), SiteStanding(), RoleInTheWay.BOTH_OPEN),
        (None, SiteStanding(SiteRole.STANDBY, topics=("other",)), RoleInTheWay.BOTH_OPEN),
    ],
)
def test_the_source_alone_is_to_take_writes(
    source: SiteStanding | None, target: SiteStanding | None, expected: RoleInTheWay | None
) -> None:
    assert role_in_the_way(Freezing(source, target, topics=("flights",))) is expected


def test_a_third_site_that_took_over_is_said_before_anything_is_saved_or_brought() -> None:
    run = LinkRun(RunState.PROMOTED, "op", 1)
    back = BackLink("back", LinkCondition.RUNNING, None, elsewhere=(Elsewhere("west-north", "north", True),))
    plan = plan_failback(Stranded("link", "east", "west", 0, ()), run, (back,), "folder", same_names=True)
    assert (plan.refusals, plan.active_elsewhere) == ((FailbackRefusal.ACTIVE_ELSEWHERE,), ("north",))
    unknown = replace(back, elsewhere=(Elsewhere("west-north", "north", None),))
    plan = plan_failback(Stranded("link", "east", "west", 0, ()), run, (unknown,), "folder", same_names=True)
    assert plan.refusals == ()


def test_of_one_that_let_the_link_run_is_left_to_look_along_the_link_back() -> None:
    """Without that nobody can say that the other site has nothing of its own."""
    found = Stranded("link", "east", "west", 0, ())
    plan = nothing_left(found, ["back"])
    assert (plan.link_back, plan.steps, plan.refusals) == ("back", (), ())
    assert nothing_left(found, []).refusals == (FailbackRefusal.NO_LINK_BACK,)
    assert nothing_left(found, ["back", "another"]).refusals == (FailbackRefusal.SEVERAL_LINKS_BACK,)


def test_a_link_back_that_leaves_out_a_topic_is_no_way_back() -> None:
    found, run = Stranded("link", "east", "west", 0, ()), LinkRun(RunState.PROMOTED, "op", 0)
    back = BackLink("back", LinkCondition.RUNNING, None)
    plan = plan_failback(found, run, (back,), "folder", same_names=True, not_carried=("orders-a",))
    assert (plan.refusals, plan.steps) == ((FailbackRefusal.BACK_IN_PART,), ())
    assert (plan.links_back, plan.not_carried) == (("back",), ("orders-a",))
    others = (back, replace(back, name="other"))
    plan = plan_failback(found, run, others, "folder", same_names=True)
    assert (plan.refusals, plan.links_back) == ((FailbackRefusal.SEVERAL_LINKS_BACK,), ("back", "other"))
    assert nothing_left(found, ["back"], ("orders-a",)).refusals == (FailbackRefusal.BACK_IN_PART,)
