"""The way back as steps: what the world shows to be done is left out, and nothing is begun that cannot end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from failover.failback.plan import BackLink, FailbackRefusal, FailbackStep, is_back, plan_failback
from failover.failback.stranding import Stranded, count_in
from mirror.api import LinkCondition, LinkRun, RunState, StrandedTail

RUNS = st.none() | st.builds(LinkRun, st.sampled_from(RunState), st.just("op"), st.integers(0, 9))
CONDITIONS = st.sampled_from(LinkCondition)
BACKS = st.lists(st.builds(BackLink, st.just("back"), CONDITIONS, RUNS, st.booleans()), max_size=2).map(tuple)
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
    order = list(FailbackStep)
    assert sorted(plan.steps, key=order.index) == list(plan.steps)
    moved = run is not None and run.state is RunState.PROMOTED
    open_one = any(tail.records is None and not tail.left for tail in tails)
    assert (FailbackRefusal.NOT_PROMOTED in plan.refusals) is not moved
    assert (FailbackRefusal.TRANSACTION_OPEN in plan.refusals) is open_one
    if not moved or not same or len(backs) != 1 or open_one:
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
