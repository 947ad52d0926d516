"""OffsetFetch, v1-9: a group's committed positions.

A group that is not known answers offset -1 without an error: librdkafka stops on GROUP_ID_NOT_FOUND here. v2 topics
null = all that the group has; v7 require_stable (KIP-447): an offset pending in a transaction answers
UNSTABLE_OFFSET_COMMIT; v8 many groups in one request; v9 members of consumer groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from broker.broker import Broker
from broker.groups.consumer.steps import check_epoch
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
from broker.wire.vocabulary import TopicPartition

AskedTopics = Sequence[OffsetFetchRequestTopic] | Sequence[OffsetFetchRequestTopics] | None


async def handle(broker: Broker, request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    if context.api_version >= 8:
        named = {group.group_id: group for group in request.groups}
        return OffsetFetchResponse(groups=[_group(broker, group, request.require_stable) for group in named.values()])
    found = _topics(broker.groups.offsets.of(request.group_id), request.topics, request.require_stable)
    return OffsetFetchResponse(topics=[_as_v7(topic) for topic in found])


def _group(broker: Broker, group: OffsetFetchRequestGroup, require_stable: bool) -> OffsetFetchResponseGroup:
    """With a member's epoch only for that member as it now is: another's offsets may have moved on (KIP-848)."""
    consumer = broker.groups.consumer.groups.get(group.group_id)
    if consumer is not None and group.member_epoch >= 0:
        error = check_epoch(consumer, group.member_id, group.member_epoch)
        if error:
            return OffsetFetchResponseGroup(group.group_id, error_code=error)
    return OffsetFetchResponseGroup(
        group.group_id, _topics(broker.groups.offsets.of(group.group_id), group.topics, require_stable)
    )


def _topics(offsets: GroupOffsets, asked: AskedTopics, require_stable: bool) -> list[OffsetFetchResponseTopics]:
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
