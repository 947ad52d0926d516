"""What a drill finds of groups: where each would go on, and what of it is not carried over. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from failover.drilling.findings import DrillFinding, age_words, is_old_age
from failover.limits import DRILL_GROUP_SYNC_MAX_AGE_MS
from failover.observing.open_transactions import PendingOffsets
from failover.observing.snapshot import Snapshot
from failover.planning.moves import MoveKind
from failover.planning.plan import OperationPlan
from mirror.api import GroupAction, GroupSyncs


@dataclass(frozen=True, slots=True)
class GroupDrill:
    """One group if the source died now. Times are the worker's, None for never.

    `kept_partitions`: it goes on where the mirror last carried it. `unknown_partitions`: nobody can tell where.
    `waiting`: what is not carried over now, as partitions by reason. `is_unanswered`: nothing can be asked of it at the
    target.
    """

    group: str
    synced_at_ms: int | None
    sync_age_ms: int | None
    kept_partitions: int
    unknown_partitions: int
    waiting: Mapping[str, int] = field(default_factory=dict)
    is_unanswered: bool = False


def drilled_groups(plan: OperationPlan, syncs: GroupSyncs, now_ms: int) -> Iterable[GroupDrill]:
    for group in plan.snapshot.groups:
        kinds = [move.kind for move in plan.moves if move.group == group.group]
        entry = syncs.by_group.get(group.group)
        reasons = dict(Counter(action.value for action in entry.waiting.values())) if entry is not None else {}
        if entry is not None and entry.failure:
            reasons["failed"] = len(group.partitions)
        synced_at_ms = group.synced_at_ms
        yield GroupDrill(
            group.group,
            synced_at_ms,
            None if synced_at_ms is None else now_ms - synced_at_ms,
            sum(kind is not MoveKind.UNKNOWN for kind in kinds),
            sum(kind is MoveKind.UNKNOWN for kind in kinds),
            reasons,
            bool(group.unanswered),
        )


def of_groups(groups: Sequence[GroupDrill], link: str) -> Iterable[DrillFinding]:
    """One a group: unknown before held, held before old. What is on its way is none, nor what has its own name."""
    for group in groups:
        step = f"farshore group describe --link {link} --group {group.group}"
        why = ", ".join(f"{count} {reason}" for reason, count in sorted(group.waiting.items()))
        not_carried = {reason: count for reason, count in group.waiting.items() if reason != GroupAction.BEFORE_LOG}
        is_old = len(not_carried) == len(group.waiting) and is_old_age(group.sync_age_ms, DRILL_GROUP_SYNC_MAX_AGE_MS)
        if group.is_unanswered:
            continue  # which is found already, and why
        if group.unknown_partitions:
            text = f"where it would go on is unknown in {_partitions(group.unknown_partitions)}"
            yield DrillFinding("group_unknown", group.group, f"{text} ({why})" if why else text, step)
        elif not_carried and (is_old or not_carried.keys() - {GroupAction.HOLD_NOT_MIRRORED}):
            text = f"not carried over in {_partitions(sum(not_carried.values()))} ({why})"
            yield DrillFinding("group_held", group.group, text, step)
        elif is_old:
            text = f"{age_words(group.sync_age_ms)} to be equal at both sites"
            yield DrillFinding("group_sync_old", group.group, text, step)


def of_unseen_groups(groups: Sequence[GroupDrill], live: Snapshot | None) -> Iterable[DrillFinding]:
    """Those at the source that would not even be named, were it gone."""
    known = {group.group for group in groups}
    for group in live.groups if live is not None else ():
        if group.group not in known and group.partitions:
            text = "it has offsets at the source, and the link has not seen it yet"
            yield DrillFinding("group_not_carried", group.group, text)


def of_pending(pending: PendingOffsets, source: str) -> Iterable[DrillFinding]:
    """What a switchover would wait for, and be refused for in the end."""
    for group in sorted(pending.held):
        text = f"its offsets are in a transaction at {source} that does not end: a switchover waits for that, and if "
        text += "it died now the group would go on where it stood before"
        yield DrillFinding("offsets_pending", group, text, "`kafka-transactions.sh list` says whose are ongoing")


def _partitions(count: int) -> str:
    return f"{count} partition{'' if count == 1 else 's'}"
