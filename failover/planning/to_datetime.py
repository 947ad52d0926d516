"""A failover to a point in time: every group goes on at the first record of that time or later."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from broker.client.cluster import Cluster
from broker.client.log import read_batches
from broker.client.offsets import list_offsets, log_end_offsets
from broker.wire.records import decode_records
from broker.wire.vocabulary import NO_OFFSET, TopicPartition
from failover.errors import FailoverError
from failover.observing.snapshot import GroupPartitionView, GroupView, Snapshot
from failover.planning.moves import GroupMove, MoveKind, read_again, with_lacked_skips

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
    timestamp_ms = round(at.timestamp() * 1000)
    if timestamp_ms < 0:  # to Kafka, negative timestamps are names of special offsets
        raise FailoverError(f"{text!r} is before 1970, and no record's time is", hint=f"write it like {EXAMPLE}")
    return timestamp_ms


async def moves_to(snapshot: Snapshot, target: Cluster, timestamp_ms: int) -> tuple[GroupMove, ...]:
    """One move per group and partition of the topics it has an offset in; where no record is that young, to the end.

    A partition that is not at the target is unknown where the group has an offset in it, and one that does not answer
    there in any case; so is all of a group that does not.
    """
    partitions = [
        TopicPartition(view.target_topic, view.partition) for view in snapshot.partitions if view.target_end is not None
    ]
    ends = await log_end_offsets(target, partitions)  # first: what comes meanwhile is behind them, and is not skipped
    answers = await list_offsets(target, dict.fromkeys(partitions, timestamp_ms))
    found = {
        where: ends[where]
        if at.offset < 0
        else await first_record_at(target, where, at.offset, ends[where], timestamp_ms)
        for where, at in answers.items()
    }
    return tuple(
        _move(group, at, found.get(TopicPartition(at.target_topic, at.partition)))
        for group in snapshot.groups
        for at in _everywhere(group, snapshot)
    )


def seen_again(planned: Iterable[GroupMove], snapshot: Snapshot) -> tuple[GroupMove, ...]:
    """The moves by time as a later look has their groups: from where each stands by then, to where it was to go. Pure.

    Between both the mirror carries groups on, which is no reading at the target. Behind the fence of the groups it does
    not any more, so that who goes on from there has read.
    """
    groups = {group.group: group for group in snapshot.groups}
    again = []
    for move in planned:
        group = groups.get(move.group)
        if move.kind is not MoveKind.BY_TIMESTAMP or group is None or group.unanswered:
            again.append(move)
            continue
        have = {(at.topic, at.partition): at for at in group.partitions}
        at = have.get((move.topic, move.partition)) or _bare(move.topic, move.partition, move.target_topic)
        again.append(with_lacked_skips(_move(group, at, move.target_offset), snapshot))
    return tuple(again)


def _bare(topic: str, partition: int, target_topic: str) -> GroupPartitionView:
    """Of a group that has no offset there."""
    return GroupPartitionView(topic, partition, target_topic, None, None, None, "")


def _everywhere(group: GroupView, snapshot: Snapshot) -> list[GroupPartitionView]:
    """What the group has, and the other partitions of those topics: left out, a reader would begin there anywhere."""
    have = {(at.topic, at.partition): at for at in group.partitions}
    topics = {topic for topic, _ in have}
    for view in snapshot.partitions:
        if view.topic in topics and (view.target_end is not None or view.unanswered):
            have.setdefault((view.topic, view.partition), _bare(view.topic, view.partition, view.target_topic))
    return [at for _, at in sorted(have.items())]


def _move(group: GroupView, at: GroupPartitionView, offset: int | None) -> GroupMove:
    """Only where the group stands at the source, by the map, says what it has read."""
    read_to = at.translated_offset
    offset = None if group.unanswered else offset
    known = offset is not None and read_to is not None
    return GroupMove(
        group.group,
        at.topic,
        at.partition,
        at.target_topic,
        MoveKind.UNKNOWN if offset is None else MoveKind.BY_TIMESTAMP,
        at.source_offset,
        offset,
        at.metadata,
        group.synced_at_ms,
        read_again(at, offset or 0, read_to or 0) if known else None,
        max(0, (offset or 0) - (read_to or 0)) if known else None,
        at.target_offset,
    )


async def first_record_at(cluster: Cluster, where: TopicPartition, start: int, end: int, timestamp_ms: int) -> int:
    """The first record in [start, end) of that time or later; `end` when there is none (or `start` is NO_OFFSET).

    ListOffsets counts control records, too. A fence's marker has the time of the fence, so that in a partition with
    older records (a backfill) Apache Kafka answers with the marker at its beginning. No record before `start` can be
    right; from there the batches' headers say where to look.
    """
    if start == NO_OFFSET:
        return end
    async for header, batch in read_batches(cluster, where, start, end):
        if header.is_control or header.max_timestamp < timestamp_ms:
            continue
        for record in decode_records(batch):
            if record.offset >= start and record.timestamp >= timestamp_ms:
                return record.offset
    return end
