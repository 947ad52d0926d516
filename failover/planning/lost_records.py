"""Records that groups have not read and the target has no more, where the source has them still. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from failover.observing.snapshot import Snapshot
from failover.planning.moves import MoveKind
from failover.planning.plan import OperationPlan


def lost_at_target(plan: OperationPlan | None, live: Snapshot | None) -> Iterable[tuple[str, str, str]]:
    """Each group that would skip some, how many, and what tells more. What `live` tells that the source lost, too,
    nobody has.
    """
    if plan is None:
        return
    lost: dict[str, int] = {}
    gone = _gone_at_source(live) if live is not None else set()
    for move in plan.moves:
        if move.kind is MoveKind.AT_START and move.skipped_records and (move.group, move.place) not in gone:
            lost[move.group] = lost.get(move.group, 0) + move.skipped_records
    for group, records in sorted(lost.items()):
        said = f"{plan.snapshot.target} has no more what it reads next: it would skip at most {records:,} records"
        yield group, said, f"farshore group describe --link {plan.snapshot.link} --group {group}"


def _gone_at_source(live: Snapshot) -> set[tuple[str, str]]:
    """By group and partition, where a group stands before the beginning of the source's log."""
    starts = {(view.topic, view.partition): view.source_start or 0 for view in live.partitions}
    return {
        (group.group, f"{at.topic}:{at.partition}")
        for group in live.groups
        for at in group.partitions
        if at.source_offset is not None and at.source_offset < starts.get((at.topic, at.partition), 0)
    }
