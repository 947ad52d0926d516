"""What the switchover among a failback's steps would refuse, or skip, seen before the first of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from failover.failback.waves import GroupsBack
from failover.observing.snapshot import Snapshot
from failover.planning.gates import GateRefusal
from failover.planning.moves import GroupMove, MoveKind, plan_moves
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
class SetBack:
    """A group of the old source that is ahead of where it stands at the other site, and is set to that: it reads again
    at most as many records as there are offsets in between.
    """

    group: str
    topic: str
    partition: int
    from_offset: int
    to_offset: int


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What no carrying mends. `in_doubt`: partitions of the link back where an offset may mean another record;
    `not_movable`: groups that are to come, and of which it is not known where they go on; `in_use`: those with
    consumers, or of which that cannot be told, as gates of the link back say it. `skips`: what groups do not come to.
    `set_back`: those that are to come and stand further at the old source; `to_be_brought`: of which it is not known
    where they go on before the link back has brought where they stand.
    """

    in_doubt: tuple[str, ...] = ()
    not_movable: tuple[str, ...] = ()
    in_use: tuple[GateRefusal, ...] = ()
    skips: tuple[SkipsLost, ...] = ()
    set_back: tuple[SetBack, ...] = ()
    to_be_brought: tuple[str, ...] = ()


NOTHING_FORESEEN: Final = Foreseen()


def moves_back(snapshot: Snapshot, groups: GroupsBack, *, is_back: bool) -> tuple[GroupMove, ...]:
    """Of the groups that are to come. `snapshot`: of the link back, which is let run first, but where the old source
    `is_back`: the active site again.
    """
    moves = plan_moves(snapshot if is_back else _running(snapshot), groups.untouched)
    return tuple(move for move in moves if move.group in groups.coming)


def foreseen(snapshot: Snapshot, groups: GroupsBack, moves: Iterable[GroupMove] = ()) -> Foreseen:
    """`snapshot`: of the link back, which may still have to be let run, and to bring what was written meanwhile;
    `moves`: `moves_back` of it.
    """
    found, running = tuple(moves), _running(snapshot)
    to_come = {(view.topic, view.partition) for view in snapshot.partitions if view.mirrored_source_next is None}
    nowhere = [move for move in found if move.kind is MoveKind.UNKNOWN]
    unknown = {
        move.group for move in nowhere if (move.topic, move.partition) not in to_come and not is_coming(move, running)
    }
    doubted = tuple(f"{view.topic}-{view.partition}" for view in snapshot.partitions if not view.trusted)
    moved = [one for one in snapshot.groups if groups.is_all or one.group in groups.coming]
    skips = tuple(
        SkipsLost(move.group, move.target_topic, move.partition, move.skipped_records)
        for move in found
        if move.kind is MoveKind.AT_START and move.skipped_records != 0
    )
    return Foreseen(
        *(doubted, tuple(sorted(unknown)), in_use(moved), skips),
        set_back=tuple(_set_back(found)),
        to_be_brought=tuple(sorted({move.group for move in nowhere} - unknown)),
    )


def _running(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, link_state=RunState.RUNNING.value)


def _set_back(moves: Iterable[GroupMove]) -> Iterable[SetBack]:
    for move in moves:
        stands_at, goes_to = move.stood_at, move.target_offset
        if move.commits and stands_at is not None and goes_to is not None and goes_to < stands_at:
            yield SetBack(move.group, move.target_topic, move.partition, stands_at, goes_to)
