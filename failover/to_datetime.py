"""A failover to a point in time: every group goes on at the first record of that time or later."""

from __future__ import annotations

from datetime import datetime

from failover.errors import FailoverError
from failover.plan import GroupMove, MoveKind
from failover.snapshot import Snapshot
from mirror.door import Cluster, TopicPartition, list_offsets, log_end_offsets

EXAMPLE = "2026-11-21T04:00:00+00:00"


def parse_datetime(text: str) -> int:
    """Unix milliseconds of an ISO 8601 time that names its zone ("Z" or an offset). Raises FailoverError."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise FailoverError(f"{text!r} is no ISO 8601 time", hint=f"write it like {EXAMPLE}") from error
    if at.tzinfo is None:
        raise FailoverError(
            f"{text!r} names no time zone, and two sites may not share one", hint=f"write it like {EXAMPLE}"
        )
    return round(at.timestamp() * 1000)


async def moves_to(snapshot: Snapshot, target: Cluster, timestamp_ms: int) -> tuple[GroupMove, ...]:
    """One move per group and mirrored partition; where no record is that young, to the end."""
    partitions = [
        TopicPartition(view.target_topic, view.partition)
        for view in snapshot.partitions
        if view.mirrored_source_next is not None
    ]
    found = await list_offsets(target, dict.fromkeys(partitions, timestamp_ms))
    ends = await log_end_offsets(target, partitions)
    moves = []
    for group in snapshot.groups:
        for at in group.partitions:
            where = TopicPartition(at.target_topic, at.partition)
            if where not in found:
                continue
            offset = found[where].offset if found[where].offset >= 0 else ends[where]
            moves.append(
                GroupMove(
                    group.group,
                    at.topic,
                    at.partition,
                    at.target_topic,
                    MoveKind.BY_TIMESTAMP,
                    at.source_offset,
                    offset,
                    at.metadata,
                )
            )
    return tuple(moves)
