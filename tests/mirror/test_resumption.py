"""What resuming a link means, by what is known of it."""

from __future__ import annotations

from broker.client.site import Site
from mirror.link import Link
from mirror.offsets.entries import Gap, GapKind, GapStatus, LinkRun, RunState
from mirror.offsets.state import StateEntries
from mirror.resumption import ResumeBlocker, ResumePlan, plan_resume
from mirror.status import LinkCondition

LINK = Link("east-west", Site("east", "127.0.0.1:1"), Site("west", "127.0.0.1:2"), ("orders",))
GAP = Gap("orders", 0, GapKind.TRUNCATED_START, 5, 9, 5, GapStatus.STOPPED, 0, "")


def state_of(run: RunState | None, *gaps: Gap) -> StateEntries:
    return StateEntries(
        LINK,
        exists=True,
        run=LinkRun(run, "op-1", 0) if run else None,
        gaps={(gap.topic, gap.partition, gap.source_from): gap for gap in gaps},
    )


def test_a_link_that_never_ran_has_nothing_to_resume() -> None:
    assert plan_resume(LINK, StateEntries(LINK), accept_gaps=True) is ResumeBlocker.NEVER_RAN


def test_gaps_need_consent() -> None:
    stopped = state_of(RunState.RUNNING, GAP)
    assert plan_resume(LINK, stopped, accept_gaps=False) is ResumeBlocker.GAPS_NOT_ACCEPTED
    accepted = ResumePlan(LINK.name, LinkCondition.STOPPED_PARTITIONS, "op-1", (GAP,), ())
    assert plan_resume(LINK, stopped, accept_gaps=True) == accepted


def test_a_promoted_link_may_leave_its_gaps_open() -> None:
    promoted = state_of(RunState.PROMOTED, GAP)
    left = ResumePlan(LINK.name, LinkCondition.PROMOTED, "op-1", (), (GAP,))
    assert plan_resume(LINK, promoted, accept_gaps=False) == left
