"""What is left as it is at the target because it does not answer there, and stops nothing else. Pure."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass

from broker.wire.vocabulary import TopicPartition
from failover.observing.snapshot import PartitionView, Snapshot
from failover.planning.moves import GroupMove, MoveKind
from failover.planning.plan import OperationPlan


@dataclass(frozen=True, slots=True)
class LeftPartition:
    """One that did not answer at the target behind the fence, and why, so that what the target has of it nobody knows.
    `groups`: those whose offsets there were left as they are. Not `is_fenced`: a mirror that hangs could write there.
    """

    topic: str
    partition: int
    target_topic: str
    error: str
    groups: tuple[str, ...]
    is_fenced: bool


def left_partitions(
    seen: Snapshot, moves: Iterable[GroupMove], not_fenced: Container[TopicPartition]
) -> tuple[LeftPartition, ...]:
    """Named whether or not anybody reads there; `seen` behind the fence, `not_fenced` at the target."""
    groups: dict[str, set[str]] = {}
    for move in moves:
        if move.kind is MoveKind.UNKNOWN:
            groups.setdefault(move.place, set()).add(move.group)
    return tuple(
        LeftPartition(
            view.topic,
            view.partition,
            view.target_topic,
            view.unanswered,
            tuple(sorted(groups.get(view.name, ()))),
            is_fenced=TopicPartition(view.target_topic, view.partition) not in not_fenced,
        )
        for view in seen.partitions
        if view.unanswered
    )


def promised(plan: OperationPlan, seen: Snapshot, moves: Collection[GroupMove]) -> Collection[GroupMove]:
    """But those that are not known where the partition does not answer, `seen` behind the fence, as was consented to by
    its name: of one that answers nobody consented to what else keeps a move from being known.
    """
    left = {view.name for view in seen.partitions if view.unanswered} & set(plan.left_partitions)
    return [move for move in moves if move.kind is not MoveKind.UNKNOWN or move.place not in left] if left else moves


def let_be(plan: OperationPlan, seen: Snapshot) -> list[PartitionView]:
    """What does not answer at the target and stops nothing: by consent, or where no selected group reads its topic."""
    read = seen.read_topics
    return [
        view
        for view in seen.partitions
        if view.unanswered and (view.name in plan.left_partitions or view.topic not in read)
    ]
