"""What the switchover among a failback's steps would refuse, or skip, seen before the first of them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from failover.failback.waves import GroupsBack
from failover.observing.snapshot import Snapshot
from failover.planning.gates import GateRefusal
from failover.planning.moves import MoveKind, plan_moves
from failover.planning.plan import in_use, is_coming
from mirror.api import RunState


@dataclass(frozen=True, slots=True)
class SkipsLost:
    """A group that is to come skips so many records at most, by the old source's offsets: that has lost what the group
    reads next at the other site.
    """

    group: str
    topic: str
    partition: int
    records: int | None


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What no carrying mends. `in_doubt`: partitions of the link back where an offset may mean another record;
    `not_movable`: groups that are to come, and of which it is not known where they go on; `in_use`: those with
    consumers, or of which that cannot be told, as gates of the link back say it. `skips`: what groups do not come to.
    """

    in_doubt: tuple[str, ...] = ()
    not_movable: tuple[str, ...] = ()
    in_use: tuple[GateRefusal, ...] = ()
    skips: tuple[SkipsLost, ...] = ()


NOTHING_FORESEEN: Final = Foreseen()


def foreseen(snapshot: Snapshot, groups: GroupsBack) -> Foreseen:
    """`snapshot`: of the link back, which may still have to be let run, and to bring what was written meanwhile."""
    coming = groups.coming
    running = replace(snapshot, link_state=RunState.RUNNING.value)
    to_come = {(view.topic, view.partition) for view in snapshot.partitions if view.mirrored_source_next is None}
    unknown = {
        move.group
        for move in plan_moves(snapshot)
        if move.kind is MoveKind.UNKNOWN and move.group in coming and (move.topic, move.partition) not in to_come
        if not is_coming(move, running)
    }
    doubted = tuple(f"{view.topic}-{view.partition}" for view in snapshot.partitions if not view.trusted)
    moved = [one for one in snapshot.groups if groups.is_all or one.group in coming]
    skips = tuple(
        SkipsLost(move.group, move.target_topic, move.partition, move.skipped_records)
        for move in plan_moves(snapshot, coming)
        if move.kind is MoveKind.AT_START and move.group in coming and move.skipped_records != 0
    )
    return Foreseen(doubted, tuple(sorted(unknown)), in_use(moved), skips)
