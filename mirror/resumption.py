"""What resuming a link means, and what stands in the way: decisions as functions of the link's state. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from mirror.errors import GapNotOpen
from mirror.link import Link
from mirror.offsets.entries import Gap, GapKind
from mirror.offsets.hold_entries import Hold, HoldReason
from mirror.offsets.state_entries import StateEntries
from mirror.outlook import GapOutlook
from mirror.status import LinkCondition, condition_of

NO_STARTS: Final[Mapping[tuple[str, int], int]] = MappingProxyType({})


class GapName(NamedTuple):
    """How an operator names a gap: by its partition, and, to be sure, by the source offset at which it begins."""

    topic: str
    partition: int
    source_from: int | None = None

    def __str__(self) -> str:
        text = f"{self.topic}:{self.partition}"
        return text if self.source_from is None else f"{text}@{self.source_from}"


class ResumeBlocker(StrEnum):
    """Why there is no plan to resume a link, or to try again what it holds."""

    NEVER_RAN = "never_ran"
    MAY_RUN_ALREADY = "may_run_already"
    PROMOTED = "promoted"
    """The target was promoted: nothing is mirrored to it."""
    PAUSED = "paused"
    NOTHING_HELD = "nothing_held"
    GAPS_NOT_ACCEPTED = "gaps_not_accepted"
    """Partitions stand still at gaps, and nobody named one of them."""


@dataclass(frozen=True, slots=True)
class ResumePlan:
    """What `resume_link` will do. `operation_id`: of the last operation on the link, "" where there was none.

    `outlooks` say what accepting each gap means, as both clusters are now. With `adopts` the records that the targets
    hold are taken for the link's own, as they were compared.
    """

    link: str
    condition: LinkCondition
    operation_id: str
    accepts: tuple[Gap, ...]
    leaves_stopped: tuple[Gap, ...]
    outlooks: tuple[GapOutlook, ...] = ()
    adopts: bool = False


def name_of(gap: Gap) -> GapName:
    return GapName(gap.topic, gap.partition, gap.source_from)


def plan_resume(
    link: Link,
    entries: StateEntries,
    named: Sequence[GapName],
    starts: Mapping[tuple[str, int], int] = NO_STARTS,
) -> ResumePlan | ResumeBlocker:
    """What resuming would change, or why it would change nothing. Raises GapNotOpen.

    `starts`: per partition that was never mirrored, and whose target has records, the source offset to begin at.

    A promoted or paused link may be resumed with its gaps left open; one that only stands at gaps needs one named.
    """
    condition = condition_of(entries)
    open_gaps = entries.open_gaps()
    if condition is LinkCondition.NEVER_RAN:
        return ResumeBlocker.NEVER_RAN
    is_stopped = condition in (LinkCondition.PROMOTED, LinkCondition.PAUSED)
    if not is_stopped and not open_gaps and not named:
        return ResumeBlocker.MAY_RUN_ALREADY
    if not is_stopped and not named:
        return ResumeBlocker.GAPS_NOT_ACCEPTED
    accepted = {(name.topic, name.partition): _named(link, open_gaps, name, starts) for name in named}
    return ResumePlan(
        link=link.name,
        condition=condition,
        operation_id=entries.run.operation_id if entries.run is not None else "",
        accepts=tuple(accepted.values()),
        leaves_stopped=tuple(gap for where, gap in open_gaps.items() if where not in accepted),
    )


@dataclass(frozen=True, slots=True)
class RetryPlan:
    """What trying again at once is for: what is held, as the link's state says. The link fences anew for it."""

    link: str
    holds: tuple[Hold, ...]


def plan_retry(link: Link, entries: StateEntries) -> RetryPlan | ResumeBlocker:
    """What is held now, or why a mirror would not try it."""
    condition = condition_of(entries)
    if condition is LinkCondition.NEVER_RAN:
        return ResumeBlocker.NEVER_RAN
    if condition is LinkCondition.PROMOTED:
        return ResumeBlocker.PROMOTED
    if condition is LinkCondition.PAUSED:
        return ResumeBlocker.PAUSED
    holds = tuple(hold for hold in entries.holds.values() if hold.reason is not HoldReason.PAUSED)
    return RetryPlan(link.name, holds) if holds else ResumeBlocker.NOTHING_HELD


def check_adoptable(plan: ResumePlan) -> None:
    """Only what the link never mirrored, as its state says, can be adopted. Raises GapNotOpen."""
    for gap in plan.accepts:
        if gap.kind is not GapKind.TARGET_NOT_EMPTY:
            text = f"link {plan.link}: {name_of(gap)} is a gap of kind {gap.kind}: there is nothing to adopt"
            raise GapNotOpen(text)


def _named(
    link: Link, open_gaps: dict[tuple[str, int], Gap], name: GapName, starts: Mapping[tuple[str, int], int]
) -> Gap:
    gap = open_gaps.get((name.topic, name.partition))
    if gap is None:
        raise GapNotOpen(f"link {link.name}: {name.topic}:{name.partition} does not stand at a gap")
    if name.source_from not in (None, gap.source_from):
        raise GapNotOpen(f"link {link.name}: {name} is not the gap there; {name_of(gap)} is")
    start_at = starts.get((name.topic, name.partition))
    if start_at is None:
        return gap
    if gap.kind is not GapKind.TARGET_NOT_EMPTY:
        raise GapNotOpen(f"link {link.name}: where {name_of(gap)} goes on is no choice, it is a gap of kind {gap.kind}")
    return replace(gap, source_to=start_at) if start_at > gap.source_from else gap
