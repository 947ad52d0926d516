"""OffsetFetch, v1-9: a group's committed positions.

A group that is not known answers offset -1 without an error: librdkafka stops on GROUP_ID_NOT_FOUND here. v2 topics
null = all that the group has; v7 require_stable (KIP-447): an offset pending in a transaction answers
UNSTABLE_OFFSET_COMMIT; v8 many groups in one request; v9 members of consumer groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from broker.access.authorizer import Rights
from broker.broker import Broker
from broker.errors import BrokerError
from broker.groups.consumer.steps import check_epoch
from broker.groups.coordinator import GroupCoordinator
from broker.groups.offsets import GroupOffsets
from broker.handlers.handler import Handler, RequestContext
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from broker.wire.vocabulary import AclOperation, AclResource, TopicPartition


async def handle(broker: Broker, request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    if context.api_version >= 8:
        named = {group.group_id: group for group in request.groups}
        return OffsetFetchResponse(
            groups=[await _at_its_coordinator(broker, group, request, context.rights) for group in named.values()]
        )
    alone = OffsetFetchRequestGroup(request.group_id, topics=_as_v8(request.topics))
    found = await _at_its_coordinator(broker, alone, request, context.rights)
    if found.error_code and context.api_version < 2:
        asked = alone.topics or []
        found.topics = [
            OffsetFetchResponseTopics(t.name, _failed(t.partition_indexes, found.error_code)) for t in asked
        ]
    return OffsetFetchResponse(topics=[_as_v7(topic) for topic in found.topics], error_code=found.error_code)


async def _at_its_coordinator(
    broker: Broker, group: OffsetFetchRequestGroup, request: OffsetFetchRequest, rights: Rights
) -> OffsetFetchResponseGroup:
    try:
        rights.require(AclOperation.DESCRIBE, AclResource.GROUP, group.group_id)
        found = await broker.groups.ask(group.group_id, lambda at: _group(at, group, request.require_stable))
    except BrokerError as error:
        return OffsetFetchResponseGroup(group.group_id, error_code=error.error_code)
    if rights.is_limited:
        found.topics = _shown(found.topics, rights, all_asked=group.topics is None)
    return found


def _shown(
    topics: list[OffsetFetchResponseTopics], rights: Rights, *, all_asked: bool
) -> list[OffsetFetchResponseTopics]:
    """Topics that may not be seen are left out where all were asked for, and say nothing where they were named."""
    shown = []
    for topic in topics:
        if rights.may(AclOperation.DESCRIBE, AclResource.TOPIC, topic.name, quietly=all_asked):
            shown.append(topic)
        elif not all_asked:
            indexes = (one.partition_index for one in topic.partitions)
            failed = _failed(indexes, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            shown.append(OffsetFetchResponseTopics(topic.name, failed))
    return shown


def _failed(indexes: Iterable[int], error: int) -> list[OffsetFetchResponsePartitions]:
    return [OffsetFetchResponsePartitions(index, -1, -1, "", error) for index in indexes]


def _group(at: GroupCoordinator, group: OffsetFetchRequestGroup, require_stable: bool) -> OffsetFetchResponseGroup:
    """With a member's epoch only for that member as it now is: another's offsets may have moved on (KIP-848)."""
    consumer = at.consumer.groups.get(group.group_id)
    if consumer is not None and group.member_epoch >= 0:
        error = check_epoch(consumer, group.member_id, group.member_epoch)
        if error:
            return OffsetFetchResponseGroup(group.group_id, error_code=error)
    return OffsetFetchResponseGroup(
        group.group_id, _topics(at.offsets.of(group.group_id), group.topics, require_stable)
    )


def _topics(
    offsets: GroupOffsets, asked: Sequence[OffsetFetchRequestTopics] | None, require_stable: bool
) -> list[OffsetFetchResponseTopics]:
    by_topic: dict[str, list[int]] = {}
    if asked is None:
        for where in _all(offsets):
            by_topic.setdefault(where.topic, []).append(where.partition)
    else:
        for topic in asked:
            by_topic.setdefault(topic.name, []).extend(topic.partition_indexes)
    return [
        OffsetFetchResponseTopics(
            name, [_partition(offsets, TopicPartition(name, index), require_stable) for index in indexes]
        )
        for name, indexes in by_topic.items()
    ]


def _all(offsets: GroupOffsets) -> Iterable[TopicPartition]:
    pending = {where for waiting in offsets.pending.values() for where in waiting}
    return sorted(pending | offsets.committed.keys())


def _partition(offsets: GroupOffsets, where: TopicPartition, require_stable: bool) -> OffsetFetchResponsePartitions:
    if require_stable and offsets.is_pending(where):
        return OffsetFetchResponsePartitions(where.partition, -1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
    committed = offsets.committed.get(where)
    if committed is None:
        return OffsetFetchResponsePartitions(where.partition, -1, -1, "", ErrorCode.NONE)
    return OffsetFetchResponsePartitions(
        where.partition, committed.offset, committed.leader_epoch, committed.metadata, ErrorCode.NONE
    )


def _as_v8(topics: Sequence[OffsetFetchRequestTopic] | None) -> list[OffsetFetchRequestTopics] | None:
    return None if topics is None else [OffsetFetchRequestTopics(t.name, t.partition_indexes) for t in topics]


def _as_v7(topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        topic.name,
        [
            OffsetFetchResponsePartition(
                p.partition_index, p.committed_offset, p.committed_leader_epoch, p.metadata, p.error_code
            )
            for p in topic.partitions
        ],
    )


HANDLER = Handler(api=ApiKey.OFFSET_FETCH, versions=(1, 9), handle=handle)
