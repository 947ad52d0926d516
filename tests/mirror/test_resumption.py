"""What resuming a link means, by what is known of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.client.site import Site
from mirror.errors import GapNotOpen
from mirror.link import Link
from mirror.offsets.entries import Gap, GapKind, GapStatus, LinkRun, Owner, RunState, Writer
from mirror.offsets.hold_entries import Hold, HoldReason
from mirror.offsets.state_entries import StateEntries
from mirror.resumption import GapName, ResumeBlocker, ResumePlan, RetryPlan, name_of, plan_resume, plan_retry
from mirror.status import LinkCondition

LINK = Link("east-west", Site("east", "127.0.0.1:1"), Site("west", "127.0.0.1:2"), ("orders",))
GAP = Gap("orders", 0, GapKind.TRUNCATED_START, 5, 9, 5, GapStatus.STOPPED, 0, "")
OTHER = Gap("orders", 1, GapKind.TRUNCATED_END, 50, 40, 50, GapStatus.STOPPED, 0, "")
PASSED = Gap("orders", 2, GapKind.TRUNCATED_END, 50, 40, 50, GapStatus.PASSED, 0, "")


def state_of(run: RunState | None, *gaps: Gap) -> StateEntries:
    return StateEntries(
        LINK,
        exists=True,
        owner=Owner(Writer(7, 1), "host:1", 0),
        run=LinkRun(run, "op-1", 0) if run else None,
        gaps={(gap.topic, gap.partition, gap.source_from, gap.kind): gap for gap in gaps},
    )


def test_a_link_that_never_ran_has_nothing_to_resume() -> None:
    assert plan_resume(LINK, StateEntries(LINK), [name_of(GAP)]) is ResumeBlocker.NEVER_RAN


def test_each_gap_needs_its_own_consent() -> None:
    stopped = state_of(RunState.RUNNING, GAP, OTHER, PASSED)
    assert plan_resume(LINK, stopped, []) is ResumeBlocker.GAPS_NOT_ACCEPTED
    accepted = ResumePlan(LINK.name, LinkCondition.STOPPED_PARTITIONS, "op-1", (OTHER,), (GAP,))
    assert plan_resume(LINK, stopped, [GapName("orders", 1)]) == accepted
    both = plan_resume(LINK, stopped, [GapName("orders", 1), GapName("orders", 0, 5)])
    assert isinstance(both, ResumePlan)
    assert (both.accepts, both.leaves_stopped) == ((OTHER, GAP), ())


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (GapName("orders", 2), "orders:2 does not stand at a gap"),
        (GapName("orders", 7), "orders:7 does not stand at a gap"),
        (GapName("orders", 0, 4), "orders:0@4 is not the gap there; orders:0@5 is"),
    ],
)
def test_a_name_that_is_no_open_gap_changes_nothing(name: GapName, why: str) -> None:
    with pytest.raises(GapNotOpen, match=why):
        plan_resume(LINK, state_of(RunState.RUNNING, GAP, PASSED), [name])


def test_only_a_partition_that_was_never_mirrored_may_begin_anywhere() -> None:
    occupied = Gap("orders", 3, GapKind.TARGET_NOT_EMPTY, 5, 5, 9, GapStatus.STOPPED, 0, "")
    state = state_of(RunState.RUNNING, GAP, occupied)
    for start_at, begins in ((20, 20), (2, 5), (None, 5)):
        starts = {} if start_at is None else {("orders", 3): start_at}
        plan = plan_resume(LINK, state, [GapName("orders", 3)], starts)
        assert isinstance(plan, ResumePlan)
        assert [(gap.source_from, gap.source_to) for gap in plan.accepts] == [(5, begins)]
    with pytest.raises(GapNotOpen, match="no choice"):
        plan_resume(LINK, state, [GapName("orders", 0)], {("orders", 0): 20})


def test_without_a_gap_there_is_nothing_to_resume() -> None:
    assert plan_resume(LINK, state_of(RunState.RUNNING, PASSED), []) is ResumeBlocker.MAY_RUN_ALREADY


def test_a_promoted_link_may_leave_its_gaps_open() -> None:
    promoted = state_of(RunState.PROMOTED, GAP)
    left = ResumePlan(LINK.name, LinkCondition.PROMOTED, "op-1", (), (GAP,))
    assert plan_resume(LINK, promoted, []) == left
    paused = ResumePlan(LINK.name, LinkCondition.PAUSED, "op-1", (), (GAP,))
    assert plan_resume(LINK, state_of(RunState.PAUSED, GAP), []) == paused


HOLD = Hold("orders", 4, HoldReason.ERROR_AT_TARGET, "may not be written", 5, 60_005)


def test_what_is_held_is_tried_again_only_where_a_mirror_may_run() -> None:
    held = replace(state_of(RunState.RUNNING, GAP), holds={("orders", 4): HOLD})
    assert plan_retry(LINK, held) == RetryPlan(LINK.name, (HOLD,))
    assert plan_retry(LINK, state_of(RunState.RUNNING, GAP)) is ResumeBlocker.NOTHING_HELD
    paused_topic = replace(HOLD, topic="gates", reason=HoldReason.PAUSED)
    both = replace(held, holds={("orders", 4): HOLD, ("gates", 4): paused_topic})
    assert plan_retry(LINK, both) == RetryPlan(LINK.name, (HOLD,)), "no try ends a pause"
    assert plan_retry(LINK, replace(held, holds={("gates", 4): paused_topic})) is ResumeBlocker.NOTHING_HELD
    promoted = replace(state_of(RunState.PROMOTED), holds={("orders", 4): HOLD})
    assert plan_retry(LINK, promoted) is ResumeBlocker.PROMOTED
    paused = replace(state_of(RunState.PAUSED), holds={("orders", 4): HOLD})
    assert plan_retry(LINK, paused) is ResumeBlocker.PAUSED
    assert plan_retry(LINK, StateEntries(LINK)) is ResumeBlocker.NEVER_RAN
