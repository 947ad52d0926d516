"""What the switchover among a failback's steps would refuse, seen before the first of them. Pure."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from typing import Final

from failover.moves import MoveKind, plan_moves
from failover.plan import is_coming
from failover.snapshot import Snapshot
from mirror.api import RunState


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What no carrying mends. `in_doubt`: partitions of the link back where an offset may mean another record;
    `not_movable`: groups that are to come, and of which it is not known where they go on.
    """

    in_doubt: tuple[str, ...] = ()
    not_movable: tuple[str, ...] = ()


NOTHING_FORESEEN: Final = Foreseen()


def foreseen(snapshot: Snapshot, coming: Container[str]) -> Foreseen:
    """`snapshot`: of the link back, which may still have to be let run, and to bring what was written meanwhile."""
    running = replace(snapshot, link_state=RunState.RUNNING.value)
    to_come = {(view.topic, view.partition) for view in snapshot.partitions if view.mirrored_source_next is None}
    unknown = {
        move.group
        for move in plan_moves(snapshot)
        if move.kind is MoveKind.UNKNOWN and move.group in coming and (move.topic, move.partition) not in to_come
        if not is_coming(move, running)
    }
    doubted = tuple(f"{view.topic}-{view.partition}" for view in snapshot.partitions if not view.trusted)
    return Foreseen(doubted, tuple(sorted(unknown)))
