"""What a failover would do and find if the source died now: the plan of a dead source, while it lives. Pure.

The plan is made as if no broker of the source answered, from what the target keeps: a drill that asked the source would
be told more than the day itself will tell. What the source says of itself now is held beside it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from broker.base.durations import human_seconds
from broker.base.errors import FarshoreError
from failover.drilling.findings import DrillFinding, age_words, is_old_age
from failover.drilling.groups import GroupDrill, drilled_groups, of_groups, of_pending, of_unseen_groups
from failover.drilling.moved import MovedLink
from failover.freezing.choice import UNFROZEN, Freezing
from failover.limits import DRILL_ENDS_MAX_AGE_MS
from failover.losses.statements import LossTotal
from failover.observing.contact import SiteFinding
from failover.observing.open_transactions import PendingOffsets
from failover.observing.snapshot import LeftRange, PartitionView, Snapshot
from failover.planning.gates import RefusalReason
from failover.planning.lost_records import lost_at_target
from failover.planning.plan import Elsewhere, OperationPlan, plan_failover
from failover.planning.staying import Stay
from mirror.api import GroupSyncs, LinkCondition, LinkStatus, SourceParting


@dataclass(frozen=True, slots=True)
class TargetGates:
    """What else a failover looks at: the target's role, an operation that has not ended, and who else took over."""

    freezing: Freezing
    under_way: FarshoreError | None = None
    elsewhere: tuple[Elsewhere, ...] = ()
    lacks: tuple[SourceParting, ...] = ()
    """What links back had mirrored from the target, and it lacks: a move there would lose it."""


NONE_PENDING: Final = PendingOffsets()
OPEN: Final = TargetGates(UNFROZEN)


@dataclass(frozen=True, slots=True)
class AuditNote:
    """What the link's last audit said of when it was frozen, and how much it covered; "" and None: there was none."""

    verdict: str = ""
    at_ms: int | None = None
    is_equal: bool = True
    coverage_percent: float | None = None


@dataclass(frozen=True, slots=True)
class LinkDrill:
    """One link. `is_ready`: no finding. `loss` is what a failover would state; `lag_records` and `lag_seconds` are what
    the source has and the target has not, None while it does not answer. `ends_age_ms`: since the source's ends were
    last seen. `pending_groups`: with offsets in open transactions at the source, not carried before these end; one that
    stays is a finding. `stays`: what it would leave of groups. `left_at_source`: what somebody left there before, which
    is not among the loss. `moved`: of a link that is promoted, of which no `loss` is stated: it brings nothing that
    the source's death could end, and what that would take along is at the source alone already. Without either the
    link could not be looked at.
    """

    link: str
    source: str
    target: str
    is_ready: bool
    at_ms: int
    source_answers: bool
    worker: str
    heartbeat_age_ms: int | None
    ends_age_ms: int | None
    lag_records: int | None
    lag_seconds: float | None
    loss: LossTotal | None
    groups: tuple[GroupDrill, ...]
    pending_groups: tuple[str, ...]
    partitions_not_mirrored: tuple[str, ...]
    audit_verdict: str
    audit_at_ms: int | None
    audit_age_ms: int | None
    audit_coverage_percent: float | None
    findings: tuple[DrillFinding, ...]
    stays: tuple[Stay, ...] = ()
    left_at_source: tuple[LeftRange, ...] = ()
    moved: MovedLink | None = None

    @property
    def lacks_at_target(self) -> bool:
        """Whether it was found, while the source lives, that the target lacks records of its own, or may."""
        return any(one.kind in _LACKING for one in self.findings)


_LACKING: Final = frozenset({RefusalReason.TARGET_LACKS.value, RefusalReason.TARGET_NOT_COMPARED.value})
_REFUSALS: dict[RefusalReason, tuple[str, str]] = {
    RefusalReason.LINK_NOT_RUNNING: (
        "the link was already moved: its target is promoted",
        "farshore link describe --link {link}",
    ),
    RefusalReason.MOVE_UNTOLD: (
        "the link is promoted by {detail}, of which its target's journal has nothing: whether its groups were moved is "
        "not known",
        "farshore group list --site {target}",
    ),
    RefusalReason.TARGET_WAS_LEFT: (
        "the link is promoted from an earlier move, and {target} was left since and refuses writes: what came to its "
        "source behind that was not mirrored",
        "farshore link resume --link {link}",
    ),
    RefusalReason.MOVED_BACK: (
        "the link was moved before, and its clients went back along {detail} since: it was not let run again",
        "farshore link resume --link {link}",
    ),
    RefusalReason.NOTHING_MIRRORED: ("nothing was ever mirrored along it", "farshore mirror run --link {link}"),
    RefusalReason.GROUP_ACTIVE_AT_TARGET: ("it has consumers at the target, so its offsets cannot be set", ""),
    RefusalReason.MEMBERS_UNKNOWN_AT_TARGET: ("whether it has consumers at the target cannot be told", ""),
    RefusalReason.PARTITION_UNANSWERED: ("it does not answer at the target: {detail}", ""),
    RefusalReason.GROUP_UNANSWERED: ("nothing can be asked or set of it at the target: {detail}", ""),
    RefusalReason.CLOSED_AT_TARGET: (
        "it refuses writes to topics of the link ({detail}), and would go on to",
        "farshore site thaw --site {target} {topics}",
    ),
    RefusalReason.ACTIVE_ELSEWHERE: (
        "{detail} is the active site, to which that link was moved, or from which it brings the source's topics",
        "farshore site role",
    ),
    RefusalReason.MOVING_ELSEWHERE: (
        "it takes topics of it to {detail}, or back from there, and has not ended",
        "farshore operation show {subject}",
    ),
    RefusalReason.DECLARED_OTHERWISE: (
        "this file declares it otherwise than its worker ran it, which had {detail}",
        "farshore mirror run --link {link}",
    ),
}
"""The other gates of a failover are about the source, which is taken to be dead, or are told here by themselves."""


def judge_drill(
    status: LinkStatus,
    blind: Snapshot | None,
    live: Snapshot | None,
    syncs: GroupSyncs,
    audit: AuditNote,
    now_ms: int,
    trouble: str = "",
    gates: TargetGates = OPEN,
    *,
    returns_active: Sequence[int] = (),
    pending: PendingOffsets = NONE_PENDING,
    moved: MovedLink | None = None,
) -> LinkDrill:
    """`blind`: both sites as they would be seen with the source dead, None where the target does not tell.
    `live`: as they are, None where the source does not tell, and `moved`: what it told of a promoted link. `trouble`:
    what a look, or a part, failed with. `returns_active`: its brokers that would take writes as soon as they are back.
    """
    plan = None if blind is None else _plan(blind, gates)
    groups = () if plan is None else tuple(drilled_groups(plan, syncs, now_ms))
    not_mirrored = _not_mirrored(blind, live)
    ends_age_ms = None if blind is None or blind.last_look is None else now_ms - blind.last_look.at_ms
    findings = [
        *_of_looks(status, blind, live, trouble),
        *_of_operations(gates.under_way, status.link),
        *(() if plan is None else _of_plan(plan)),
        *_of_return(status, blind, returns_active),
        *_of_lacks(gates.lacks, status.link, status.target),
        *_of_ends(status, blind, ends_age_ms),
        *(DrillFinding("not_mirrored", where, "nothing of it was ever mirrored") for where in not_mirrored),
        *of_groups(groups, status.link),
        *(DrillFinding("group_before_log", *told) for told in lost_at_target(plan, live)),
        *of_unseen_groups(groups, live),
        *of_pending(pending, status.source),
        *_of_audit(audit, status.link),
    ]
    return LinkDrill(
        link=status.link,
        source=status.source,
        target=status.target,
        is_ready=not findings,
        at_ms=now_ms,
        source_answers=status.source_answers,
        worker=status.worker,
        heartbeat_age_ms=status.heartbeat_age_ms,
        ends_age_ms=ends_age_ms,
        lag_records=status.lag_records,
        lag_seconds=status.lag_seconds,
        loss=None if plan is None or plan.snapshot.is_promoted else plan.loss,
        groups=groups,
        pending_groups=tuple(sorted(pending.groups.union(live.pending_groups if live is not None else ()))),
        partitions_not_mirrored=not_mirrored,
        audit_verdict=audit.verdict,
        audit_at_ms=audit.at_ms,
        audit_age_ms=None if audit.at_ms is None else max(0, now_ms - audit.at_ms),
        audit_coverage_percent=audit.coverage_percent,
        findings=tuple(findings),
        moved=_moved(status, blind, moved, trouble),
    )


def _moved(status: LinkStatus, blind: Snapshot | None, told: MovedLink | None, trouble: str) -> MovedLink | None:
    if blind is None or not blind.is_promoted:
        return None
    return told or MovedLink(why_not_known=trouble or f"{status.source} does not answer")


def _plan(blind: Snapshot, gates: TargetGates) -> OperationPlan:
    return plan_failover(
        blind,
        allow_data_loss=True,
        even_if_source_answers=False,
        freezing=gates.freezing,
        elsewhere=gates.elsewhere,
    )


def _where(topic: str | None, partition: int | None) -> str:
    if topic is None:
        return ""
    return topic if partition is None else f"{topic}-{partition}"


def _of_looks(
    status: LinkStatus, blind: Snapshot | None, live: Snapshot | None, trouble: str
) -> Iterable[DrillFinding]:
    """What the status finds; and what nobody looked at is not known to be ready, unless the site is lost, which is
    found already.
    """
    for one in status.findings:
        yield DrillFinding(one.kind.value, _where(one.topic, one.partition), one.detail, one.next_step)
    because = f": {trouble}" if trouble else ""
    if blind is None and status.target_answers:
        text = f"{status.target} could not be looked at, so nothing of a failover is known"
        yield DrillFinding("not_looked_at", status.link, text + because)
    elif blind is not None and live is None and status.source_answers:
        text = f"{status.source} could not be looked at, so what only it knows is not told"
        yield DrillFinding("not_looked_at", status.link, text + because)
    elif live is not None and trouble:
        text = f"not all of {status.source} could be looked at: what it did not tell is as {status.target} keeps it"
        yield DrillFinding("not_looked_at", status.link, f"{text}, or not known ({trouble})")
    if live is not None and live.source_finding is SiteFinding.REPLACED:
        text = "another cluster answers in its place than the one that was mirrored from"
        yield DrillFinding(RefusalReason.SOURCE_REPLACED.value, status.source, text)


def _of_operations(under_way: FarshoreError | None, link: str) -> Iterable[DrillFinding]:
    if under_way is not None:
        yield DrillFinding("operation_under_way", link, str(under_way), under_way.hint)


def _of_plan(plan: OperationPlan) -> Iterable[DrillFinding]:
    """The refusals that a dead source leaves, but for unknown moves, which each group tells with its partitions."""
    for refusal in plan.refusals:
        if refusal.reason in _REFUSALS:
            detail, step = _REFUSALS[refusal.reason]
            names = {"link": plan.snapshot.link, "target": plan.snapshot.target, "subject": refusal.subject}
            told = detail.format(detail=refusal.detail, target=plan.snapshot.target)
            step = step.format(topics=refusal.topic_options, **names)
            yield DrillFinding(refusal.reason.value, refusal.subject, told, step)
    if plan.snapshot.is_map_lost:
        yield _map_lost(plan.snapshot)
    in_doubt = [] if plan.snapshot.is_map_lost else [view for view in plan.snapshot.partitions if not view.trusted]
    for view in in_doubt:
        step = "the link's mirror compares both logs where it runs"
        if view.held_since_ms is None:  # then there is no gap to accept
            step += f"; where it stands still: farshore link resume --link {plan.snapshot.link} --gap "
            step += f"{shlex.quote(view.name)} --dry-run, then without --dry-run"
        text = "recreated or cut at one of the sites, or not compared since its leader went: its loss would be unknown"
        yield DrillFinding(RefusalReason.OFFSETS_IN_DOUBT.value, f"{view.topic}-{view.partition}", text, step)


def _map_lost(seen: Snapshot) -> DrillFinding:
    text = f"its state at {seen.target} is gone, and the offset map with it: a loss would be unknown, and no group "
    text += "could be moved but to a time"
    step = f"farshore mirror run --link {seen.link}; then farshore link resume --link {seen.link} --gap "
    step += "TOPIC:PARTITION --adopt for each that status names"
    return DrillFinding(RefusalReason.MAP_LOST.value, seen.link, text, step)


def _of_lacks(lacks: Iterable[SourceParting], link: str, target: str) -> Iterable[DrillFinding]:
    listed = f"farshore stranded list --link {link}"
    for one in lacks:
        if one.is_known:
            text = f"no link brings what {target} had before: {one.in_words(target)}"
            step = f"bring the newer disk of {target} back, or have it begin with empty disks; {listed}"
            yield DrillFinding(RefusalReason.TARGET_LACKS.value, str(one.where), text, step)
        else:
            step = f"see to the reason; {listed} looks again"
            yield DrillFinding(RefusalReason.TARGET_NOT_COMPARED.value, str(one.where), one.in_words(target), step)


def _of_ends(status: LinkStatus, blind: Snapshot | None, ends_age_ms: int | None) -> Iterable[DrillFinding]:
    """Where no worker lives, that is found already, and is why."""
    if blind is None or blind.is_promoted or not status.source_answers:
        return
    if any(f.kind.value in ("silent", "awaited", "never_ran") for f in status.findings):
        return
    if is_old_age(ends_age_ms, DRILL_ENDS_MAX_AGE_MS):
        text = f"where the source's logs end was {age_words(ends_age_ms)}, beside the records: "
        text += "a loss would be stated as less"
        step = "see event=ends_not_kept in the mirror's output"
        if status.condition is LinkCondition.PAUSED:
            step = "a paused link's worker looks, too, where it is no older version: see that it runs, and its output"
        elif status.heartbeat_age_ms is not None and status.heartbeat_age_ms > DRILL_ENDS_MAX_AGE_MS:
            silent = f"no heartbeat of {status.worker} for {human_seconds(status.heartbeat_age_ms / 1000)}"
            step = f"{silent}: restart it, `farshore mirror run --link {status.link}`"  # who hangs writes no line
        yield DrillFinding("ends_not_seen", status.source, text, step)


def _of_return(status: LinkStatus, blind: Snapshot | None, returns_active: Sequence[int]) -> Iterable[DrillFinding]:
    """The source as it would be back from its loss: clients may reach it before anybody tells it of the failover."""
    if not returns_active or (blind is not None and blind.is_promoted):
        return
    source = status.source
    which = f"broker{'' if len(returns_active) == 1 else 's'} {', '.join(map(str, returns_active))}"
    yield DrillFinding(
        "returns_active",
        source,
        f"{source} would come back active behind a failover, and take writes beside {status.target} ({which})",
        f"start them with site_start_frozen = true; else then, before clients reach it: farshore site standby "
        f"--site {source}",
    )


def _of_audit(audit: AuditNote, link: str) -> Iterable[DrillFinding]:
    if not audit.is_equal:
        step = f"farshore audit run --link {link}"
        yield DrillFinding("audit_differs", link, f"the last audit said {audit.verdict}", step)


def _not_mirrored(blind: Snapshot | None, live: Snapshot | None) -> tuple[str, ...]:
    """Partitions with records of which the target has none; an empty one that is there has nothing to lose, and of one
    whose map is lost nobody knows.
    """
    seen = live or blind
    if seen is None:
        return ()
    return tuple(
        f"{view.topic}-{view.partition}"
        for view in seen.partitions
        if view.is_to_come
        or (view.mirrored_source_next is None and not (seen.is_map_lost and view.target_end) and not _is_empty(view))
    )


def _is_empty(view: PartitionView) -> bool:
    known = view.source_end if view.source_end is not None else view.seen_source_end
    return known is not None and known <= (view.source_start or 0)
