"""Looking again behind the fence: what was promised is held against what is there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

from broker.client.fanout import both
from failover.limits import LOOK_AGAIN_S, TAKEN_OVER_S
from failover.observing.contact import SiteFinding
from failover.observing.sites import Sites
from failover.observing.snapshot import Snapshot
from failover.planning.left import promised
from failover.planning.moves import GroupMove
from failover.planning.plan import OperationPlan
from failover.running.late_commits import SourceReader, source_readers
from failover.running.read_on import GroupAt, ReadOn, who_read_on
from failover.running.steps import Operation
from failover.running.verification import (
    DifferenceKind,
    VerificationDifference,
    held_at_target,
    pending_moves,
    verify_ends,
    verify_groups,
    verify_own,
    verify_readers,
)


async def _look(plan: OperationPlan, sites: Sites) -> Snapshot:
    """Of a failover: brokers that take over from one that went have their time, and what was left has none."""
    if plan.operation is Operation.FAILOVER:
        return await sites.look_past_source(plan.snapshot.unanswered, TAKEN_OVER_S)
    return await sites.look()


async def look_as_found(plan: OperationPlan, sites: Sites) -> Snapshot:
    """As `_look`, again where a source that answered wholly before tells but a part now: a line that was lost must not
    keep groups where the plan had them move. One that went away in between is taken as it is after LOOK_AGAIN_S.
    """
    loop = asyncio.get_running_loop()
    give_up_at_s = loop.time() + LOOK_AGAIN_S
    was_whole = plan.snapshot.source_finding is SiteFinding.ALIVE
    seen = await _look(plan, sites)
    while was_whole and seen.source_finding is SiteFinding.PARTLY_THERE and loop.time() < give_up_at_s:
        seen = await _look(plan, sites)
    return seen


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check found: what is not as it was promised, who read on at the target since it was verified before, who
    reads at the source that a failover has left, and partitions of which a switchover compared no record.
    """

    differences: tuple[VerificationDifference, ...]
    read_on: tuple[ReadOn, ...]
    source_readers: tuple[SourceReader, ...]
    not_compared: tuple[str, ...] = ()


async def verify(
    plan: OperationPlan,
    sites: Sites,
    before: Snapshot,
    moves: tuple[GroupMove, ...],
    operation_id: str,
    verified: Mapping[GroupAt, int] | None,
) -> Checked:
    """Look again: what was promised must be what is there, but for who was `verified` before, and read on since."""
    asked = moves if verified is None else ()
    silent = {group.group for group in before.groups if group.unanswered}
    after, held = await both(_look(plan, sites), held_at_target(sites.target, asked, silent))
    read_on, others = who_read_on(after, moves, verified or {})
    not_compared: tuple[str, ...] = ()
    differences = [
        *map(_pending, await pending_moves(sites.target, after, asked, held)),
        *verify_own(after, operation_id),
        *verify_groups(after, promised(plan, before, others), plan.left_groups),
    ]
    if plan.operation is Operation.SWITCHOVER and sites.source is None and verified is None:
        kind, source = DifferenceKind.SOURCE_NOT_COMPARED, sites.link.source.name
        differences.append(VerificationDifference(kind, source, -1, None, None))
    elif plan.operation is Operation.SWITCHOVER and sites.source is not None:
        differences += verify_readers(after, plan.left_groups)
        was_moved_before = plan.snapshot.is_promoted
        compared = await verify_ends(sites.source, sites.target, before, _as_mirrored(after, was_moved_before))
        differences += compared.differences
        not_compared = tuple(compared.not_compared)
    is_left = plan.operation is Operation.FAILOVER and sites.source is not None
    return Checked(tuple(differences), read_on, source_readers(after) if is_left else (), not_compared)


def _pending(move: GroupMove) -> VerificationDifference:
    subject = f"{move.group} on {move.topic}"
    return VerificationDifference(DifferenceKind.GROUP_PENDING, subject, move.partition, move.target_offset, None)


def _as_mirrored(snapshot: Snapshot, was_moved_before: bool) -> Snapshot:
    """The target's ends as the mirror left them, where applications may have written there since an earlier run."""
    if not was_moved_before:
        return snapshot
    return replace(
        snapshot,
        partitions=tuple(
            view if view.mirrored_target_next is None else replace(view, target_end=view.mirrored_target_next)
            for view in snapshot.partitions
        ),
    )
