"""What resuming a link means, and what stands in the way: decisions as functions of the link's state. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mirror.link import Link
from mirror.offsets.entries import Gap
from mirror.offsets.state import StateEntries
from mirror.status import LinkCondition, condition_of


class ResumeBlocker(StrEnum):
    """Why there is no plan to resume a link."""

    NEVER_RAN = "never_ran"
    MAY_RUN_ALREADY = "may_run_already"
    GAPS_NOT_ACCEPTED = "gaps_not_accepted"
    """Partitions stand still at gaps, and nobody consented to giving up the gaps' records."""


@dataclass(frozen=True, slots=True)
class ResumePlan:
    """What `resume_link` will do. `operation_id`: of the last operation on the link, "" where there was none."""

    link: str
    condition: LinkCondition
    operation_id: str
    gaps_accepted: tuple[Gap, ...]
    gaps_left: tuple[Gap, ...]


def plan_resume(link: Link, entries: StateEntries, *, accept_gaps: bool) -> ResumePlan | ResumeBlocker:
    """What resuming would change, or why it would change nothing.

    A promoted link may be resumed with its gaps left open; one that only stands at gaps needs them accepted.
    """
    condition = condition_of(entries)
    gaps = tuple(entries.open_gaps().values())
    if condition is LinkCondition.NEVER_RAN:
        return ResumeBlocker.NEVER_RAN
    if condition is not LinkCondition.PROMOTED and not gaps:
        return ResumeBlocker.MAY_RUN_ALREADY
    if condition is not LinkCondition.PROMOTED and not accept_gaps:
        return ResumeBlocker.GAPS_NOT_ACCEPTED
    return ResumePlan(
        link=link.name,
        condition=condition,
        operation_id=entries.run.operation_id if entries.run is not None else "",
        gaps_accepted=gaps if accept_gaps else (),
        gaps_left=() if accept_gaps else gaps,
    )
