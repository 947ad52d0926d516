"""Consumer groups of a site as values for people: a list with lags, and one in full."""

from __future__ import annotations

from dataclasses import dataclass

from broker.client.cluster import Cluster
from broker.client.errors import ClientError, KafkaError
from broker.client.groups import committed_offsets, committed_offsets_of_groups, describe_groups, list_groups
from broker.client.offsets import log_end_offsets
from broker.client.topics import describe_topics
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import GroupState, TopicPartition


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group in a list; `lag_records` is the sum over its partitions, None where offsets cannot be read."""

    group: str
    state: str
    protocol_type: str
    partitions: int
    lag_records: int | None


@dataclass(frozen=True, slots=True)
class GroupPartitionDescription:
    """A partition with the group's committed offset; `member` is the client that it is assigned to."""

    topic: str
    partition: int
    committed_offset: int | None
    log_end_offset: int | None
    lag_records: int | None
    member: str
    metadata: str


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group, its members and its offsets."""

    group: str
    state: str
    protocol: str
    members: int
    partitions: tuple[GroupPartitionDescription, ...]


async def summarise_groups(cluster: Cluster) -> list[GroupSummary]:
    """All groups with their lag, by name. Raises ClientError."""
    groups = await list_groups(cluster)
    committed = await committed_offsets_of_groups(cluster, groups)
    known = {name: offsets for name, offsets in committed.items() if not isinstance(offsets, ClientError)}
    ends = await _log_ends(cluster, {where for offsets in known.values() for where in offsets})
    summaries = []
    for name, group in sorted(groups.items()):
        offsets = known.get(name)
        lag = None
        if offsets is not None:
            lag = sum(max(0, ends[where] - c.offset) for where, c in offsets.items() if where in ends)
        summaries.append(GroupSummary(name, group.state.value, group.protocol_type, len(offsets or ()), lag))
    return summaries


async def describe_group(cluster: Cluster, name: str) -> GroupDescription:
    """One group in full. Raises KafkaError (GROUP_ID_NOT_FOUND where it is not there), ClientError."""
    group = (await describe_groups(cluster, [name]))[name]
    if isinstance(group, KafkaError):
        raise group
    offsets = await committed_offsets(cluster, name)
    if group.state is GroupState.DEAD and not offsets:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {name} at {cluster.site.name}")
    owners = {where: member.client_id for member in group.members for where in member.assignment}
    wanted = sorted({*offsets, *owners})
    ends = await _log_ends(cluster, set(wanted))
    partitions = []
    for where in wanted:
        committed = offsets.get(where)
        end = ends.get(where)
        lag = max(0, end - committed.offset) if committed is not None and end is not None else None
        offset, metadata = (None, "") if committed is None else (committed.offset, committed.metadata)
        partitions.append(GroupPartitionDescription(*where, offset, end, lag, owners.get(where, ""), metadata))
    return GroupDescription(name, group.state.value, group.protocol, len(group.members), tuple(partitions))


async def _log_ends(cluster: Cluster, wanted: set[TopicPartition]) -> dict[TopicPartition, int]:
    """Log ends of those partitions that still exist; a group may keep offsets of a topic that is gone."""
    topics = await describe_topics(cluster, {where.topic for where in wanted})
    there = [
        where for where in wanted if where.topic in topics and where.partition < len(topics[where.topic].partitions)
    ]
    return await log_end_offsets(cluster, there)
