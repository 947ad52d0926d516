"""Consumer groups: list, describe, committed offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from broker.base.time_limits import timeout
from broker.client.cluster import Cluster
from broker.client.connection import Connection
from broker.client.described_groups import (
    NOWHERE,
    SHARE_TYPE,
    STREAMS_TYPE,
    DescribedConsumerGroup,
    described_classic,
    described_newer,
    described_shared,
    described_streams,
    state_of,
)
from broker.client.errors import ClientError, KafkaError, RequestTimedOut
from broker.client.fanout import ask_coordinator, ask_each_group, ask_group_coordinators
from broker.client.model import CommittedOffset
from broker.client.offset_fetch import GroupOffsets, fetch_offsets
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from broker.wire.messages.delete_groups import DeleteGroupsRequest
from broker.wire.messages.describe_groups import DescribeGroupsRequest
from broker.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from broker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from broker.wire.messages.share_group_describe import ShareGroupDescribeRequest
from broker.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from broker.wire.vocabulary import NO_GENERATION, GroupState, TopicPartition

_TYPES_LISTED_SINCE: Final = 5
"""The version of ListGroups: no broker before it has groups that are neither classic nor of the consumer protocol."""


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group as ListGroups tells it; `protocol_type` is "consumer" for consumer groups, "" where only offsets are."""

    group_id: str
    protocol_type: str
    state: GroupState


class GroupOfOtherType(KafkaError):
    """A group with members of a protocol of which nobody tells what they read: it is newer than this client, say."""

    def __init__(self, group: str, site: str, group_type: str, state: str) -> None:
        self.group_type = group_type
        text = f"it is of type {group_type}, in state {state}, and its members are not told"
        super().__init__(ErrorCode.UNSUPPORTED_VERSION, f"group {group} at {site}", text)
        self.hint = "stop its application, where it must be known that nobody reads with it"


async def list_groups(cluster: Cluster) -> dict[str, ListedGroup]:
    """All groups of all brokers, by id. Raises ClientError, also when one broker does not answer.

    Where one fails, all are asked again: if it has gone, its groups are coordinated by one that had answered before.
    """
    found, failure = await list_groups_in_part(cluster)
    if failure is not None:
        raise failure
    return found


async def list_groups_in_part(
    cluster: Cluster, *, patience_ms: int | None = None
) -> tuple[dict[str, ListedGroup], ClientError | None]:
    """As `list_groups`, of the brokers that answer within `patience_ms` (None: the client's own) -> also why one of
    them does not; None: these are all. Raises ClientError where the cluster does not answer at all.
    """
    retry = cluster.retry(patience_ms)
    while True:
        await cluster.metadata([])
        found, failures = await _list_groups_once(cluster, None if patience_ms is None else patience_ms / 1000)
        if not failures:
            return found, None
        failure = next((error for error in failures.values() if not error.retriable), next(iter(failures.values())))
        try:
            await retry.pause(failure)
        except ClientError:
            is_over = patience_ms is not None or not failure.retriable
            # One whose silence took all the time may have gone meanwhile.
            if is_over or failures.keys() & (await cluster.metadata([])).nodes.keys():
                return found, failure


async def _list_groups_once(
    cluster: Cluster, patience_s: float | None
) -> tuple[dict[str, ListedGroup], dict[int, ClientError]]:
    found: dict[str, ListedGroup] = {}
    failures: dict[int, ClientError] = {}

    async def ask(node_id: int) -> None:
        try:
            async with timeout(patience_s):
                connection = await cluster.connection(node_id)
                response: ListGroupsResponse = await connection.request(ListGroupsRequest())
            if response.error_code:
                raise KafkaError(response.error_code, f"groups at {cluster.site.name}")
        except ClientError as error:
            failures[node_id] = error
            return
        except TimeoutError:
            failures[node_id] = RequestTimedOut(f"node {node_id} of {cluster.site.name} does not list its groups")
            return
        for group in response.groups:
            found[group.group_id] = ListedGroup(group.group_id, group.protocol_type, state_of(group.group_state))

    async with asyncio.TaskGroup() as tasks:
        for node_id in cluster.nodes:
            tasks.create_task(ask(node_id))
    return found, failures


_NO_SUCH_GROUP = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
"""Kafka 3.9 offers ConsumerGroupDescribe and refuses it while its coordinator of such groups is off: none is there."""


async def describe_groups(cluster: Cluster, groups: Iterable[str]) -> dict[str, DescribedConsumerGroup | KafkaError]:
    """Groups with their members, by id, or why one cannot be described. A group that is not there is in state DEAD.

    DescribeGroups does not know those of the consumer protocol (KIP-848): what it does not find is asked for as such.
    Share groups (KIP-932) and those of Kafka Streams' own protocol (KIP-1071) are asked for as such, too, where the
    broker offers that; of others it is known whether they have members, not which.
    Raises ClientError when a coordinator does not answer.
    """
    found: dict[str, DescribedConsumerGroup | KafkaError] = {}
    for group, described in (await describe_each_group(cluster, groups)).items():
        if isinstance(described, ClientError) and not isinstance(described, KafkaError):
            raise described
        found[group] = described
    return found


async def describe_each_group(
    cluster: Cluster, groups: Iterable[str], *, patience_ms: int | None = None
) -> dict[str, DescribedConsumerGroup | ClientError]:
    """As `describe_groups`, but raises nothing: a coordinator that does not answer fails only its own groups.

    What fails is tried again for `patience_ms` (None: the client's own).
    """

    async def ask(connection: Connection, share: list[str]) -> dict[str, DescribedConsumerGroup | KafkaError]:
        response = await connection.request(DescribeGroupsRequest(share))
        found: dict[str, DescribedConsumerGroup | KafkaError] = {
            group.group_id: KafkaError(group.error_code, f"group {group.group_id} at {cluster.site.name}")
            if group.error_code not in (0, ErrorCode.GROUP_ID_NOT_FOUND)
            else described_classic(group)
            for group in response.groups
        }
        dead = [name for name, group in found.items() if not isinstance(group, KafkaError) and group.state in NOWHERE]
        if dead and connection.supports(ApiKey.CONSUMER_GROUP_DESCRIBE):
            newer = await connection.request(ConsumerGroupDescribeRequest(dead))
            for group in newer.groups:
                if group.error_code and group.error_code not in _NO_SUCH_GROUP:
                    found[group.group_id] = KafkaError(
                        group.error_code, f"group {group.group_id} at {cluster.site.name}"
                    )
                elif not group.error_code:
                    found[group.group_id] = described_newer(group)
                    dead.remove(group.group_id)
        if dead and connection.offers(ApiKey.LIST_GROUPS, _TYPES_LISTED_SINCE):
            found |= await _of_other_types(connection, dead, cluster)
        return found

    return await ask_each_group(cluster, list(groups), ask, patience_ms=patience_ms)


async def _of_other_types(
    connection: Connection, groups: Iterable[str], cluster: Cluster
) -> dict[str, DescribedConsumerGroup | KafkaError]:
    """Those of `groups` that their coordinator lists all the same: share groups and those of Kafka Streams in full, of
    others one without members as such, else an error.
    """
    response: ListGroupsResponse = await connection.request(ListGroupsRequest())
    if response.error_code:
        raise KafkaError(response.error_code, f"groups at {cluster.site.name}")
    found: dict[str, DescribedConsumerGroup | KafkaError] = {}
    wanted, shared, streams = set(groups), list[str](), list[str]()
    for listed in response.groups:
        name, state = listed.group_id, state_of(listed.group_state)
        if name not in wanted or state is GroupState.DEAD:
            continue
        if state is GroupState.EMPTY:
            found[name] = DescribedConsumerGroup(name, state, listed.protocol_type, "", ())
            continue
        found[name] = GroupOfOtherType(name, cluster.site.name, listed.group_type, listed.group_state)
        shared += [name] if listed.group_type == SHARE_TYPE else []
        streams += [name] if listed.group_type == STREAMS_TYPE else []
    if shared and connection.supports(ApiKey.SHARE_GROUP_DESCRIBE):
        of_share = await connection.request(ShareGroupDescribeRequest(shared))
        found |= {group.group_id: described_shared(group) for group in of_share.groups if not group.error_code}
    if streams and connection.supports(ApiKey.STREAMS_GROUP_DESCRIBE):
        of_streams = await connection.request(StreamsGroupDescribeRequest(streams))
        found |= {group.group_id: described_streams(group) for group in of_streams.groups if not group.error_code}
    return found


async def committed_offsets(cluster: Cluster, group: str) -> dict[TopicPartition, CommittedOffset]:
    """All committed offsets of one group; empty when it has none or does not exist. Raises ClientError."""
    found = (await committed_offsets_of_groups(cluster, [group]))[group]
    if isinstance(found, ClientError):
        raise found
    return found


async def committed_offsets_of_groups(
    cluster: Cluster, groups: Iterable[str], *, patience_ms: int | None = None
) -> dict[str, dict[TopicPartition, CommittedOffset] | ClientError]:
    """All committed offsets per group, or why they cannot be had: then none of the group's is told.

    One group's error touches no other. What fails is tried again for `patience_ms` (None: the client's own).
    """

    async def ask(connection: Connection, share: list[str]) -> dict[str, GroupOffsets | KafkaError]:
        return await fetch_offsets(connection, cluster.site.name, share, stable=False)

    found = await ask_each_group(cluster, list(groups), ask, patience_ms=patience_ms)
    return {name: each.offsets if isinstance(each, GroupOffsets) else each for name, each in found.items()}


async def stable_offsets_of_groups(
    cluster: Cluster, groups: Iterable[str], partitions: Collection[TopicPartition] | None = None
) -> dict[str, GroupOffsets | ClientError]:
    """As `committed_offsets_of_groups`, with what is pending, in these partitions (None: in all, but on Kafka those
    where a group's first offset is pending). Only of groups that have such it asks a second time, and behind the first:
    what counts there is no older than that it was pending.
    """

    async def ask(connection: Connection, share: list[str]) -> dict[str, GroupOffsets | KafkaError]:
        found = await fetch_offsets(connection, cluster.site.name, share, partitions, stable=True)
        held = [name for name, each in found.items() if isinstance(each, GroupOffsets) and each.pending]
        counting = await fetch_offsets(connection, cluster.site.name, held, partitions, stable=False) if held else {}
        return found | {name: _with_pending(found[name], counts) for name, counts in counting.items()}

    return await ask_each_group(cluster, list(groups), ask)


def _with_pending(stable: GroupOffsets | KafkaError, counts: GroupOffsets | KafkaError) -> GroupOffsets | KafkaError:
    if isinstance(stable, KafkaError) or isinstance(counts, KafkaError):
        return counts
    until_then = {where: counts.offsets[where] for where in stable.pending if where in counts.offsets}
    return GroupOffsets({**stable.offsets, **until_then}, stable.pending)


async def commit_offsets(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, CommittedOffset],
    *,
    generation: int = NO_GENERATION,
    member_id: str = "",
    patience_ms: int | None = None,
) -> None:
    """Commit these offsets, from outside the group by default. What fails is tried again for `patience_ms` (None: the
    client's own).

    Raises KafkaError (UNKNOWN_MEMBER_ID when the group has members) if any partition was refused, ClientError.
    """
    if not offsets:
        return
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for where, committed in offsets.items():
        asked = OffsetCommitRequestPartition(
            where.partition, committed.offset, committed.leader_epoch, committed.metadata
        )
        topics.setdefault(where.topic, []).append(asked)
    request = OffsetCommitRequest(
        group, generation, member_id, topics=[OffsetCommitRequestTopic(name, asked) for name, asked in topics.items()]
    )

    async def ask(connection: Connection) -> None:
        response = await connection.request(request)
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.error_code:
                    where = TopicPartition(topic.name, partition.partition_index)
                    raise KafkaError(partition.error_code, f"offset of {group} in {where} at {cluster.site.name}")

    await ask_coordinator(cluster, "group", group, ask, patience_ms=patience_ms)


async def delete_groups(cluster: Cluster, groups: Iterable[str]) -> dict[str, KafkaError]:
    """Delete groups without members -> those that could not be deleted, and why."""

    async def ask(connection: Connection, share: list[str]) -> dict[str, ErrorCode | KafkaError]:
        response = await connection.request(DeleteGroupsRequest(share))
        return {
            result.group_id: KafkaError(result.error_code, f"group {result.group_id} at {cluster.site.name}")
            if result.error_code
            else ErrorCode.of(result.error_code)
            for result in response.results
        }

    answers = await ask_group_coordinators(cluster, list(groups), ask)
    return {group: answer for group, answer in answers.items() if isinstance(answer, KafkaError)}
