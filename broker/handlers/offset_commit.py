"""OffsetCommit, v2-9: store a group's positions; answered once they are in the log.

Generation -1 with an empty member id is a commit from outside, allowed while the group has no member. v2-4 may carry a
retention time of their own; v6 leader epoch; v7 static members; v9 members of consumer groups, whose epoch stands in
the generation's place (KIP-848).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial

from broker.access.authorizer import Rights
from broker.broker import Broker
from broker.coordination.host import has_partition
from broker.errors import BrokerError
from broker.groups.coordinator import GroupCoordinator
from broker.groups.formats import Committed
from broker.handlers.handler import Handler, RequestContext
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from broker.wire.vocabulary import NO_TIMESTAMP, AclOperation, AclResource, TopicPartition

CommitResults = Mapping[TopicPartition, ErrorCode] | ErrorCode
"""One for each partition, or one for all."""


async def handle(broker: Broker, request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse:
    results: CommitResults = {}
    denied: frozenset[str] = frozenset()
    try:
        context.rights.require(AclOperation.READ, AclResource.GROUP, request.group_id)
        denied = unreadable(context.rights, (topic.name for topic in request.topics))
        asked = [topic for topic in request.topics if topic.name not in denied] if denied else request.topics
        if asked or not denied:
            allowed = replace(request, topics=asked) if denied else request
            results = await broker.groups.ask(request.group_id, partial(_commit, broker, allowed))
    except BrokerError as failed:
        results = failed.error_code
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                topic.name,
                [
                    OffsetCommitResponsePartition(
                        p.partition_index, of_each(results, TopicPartition(topic.name, p.partition_index), denied)
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def unreadable(rights: Rights, topics: Iterable[str]) -> frozenset[str]:
    """Those of which this client may commit no offsets."""
    if not rights.is_limited:
        return frozenset()
    return frozenset(name for name in set(topics) if not rights.may(AclOperation.READ, AclResource.TOPIC, name))


def of_each(results: CommitResults, where: TopicPartition, denied: Collection[str]) -> ErrorCode:
    if where.topic in denied:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return results if isinstance(results, ErrorCode) else results[where]


def _commit(broker: Broker, request: OffsetCommitRequest, at: GroupCoordinator) -> CommitResults:
    error = at.check_commit(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id_or_member_epoch
    )
    if error is not ErrorCode.NONE:
        return error
    offsets = _offsets(request, broker.clock.now_ms())
    return at.offsets.commit(request.group_id, offsets, is_known=partial(has_partition, broker))


def _offsets(request: OffsetCommitRequest, now_ms: int) -> dict[TopicPartition, Committed]:
    keep_ms = request.retention_time_ms
    expires_ms = NO_TIMESTAMP if keep_ms < 0 else now_ms + keep_ms
    return {
        TopicPartition(topic.name, p.partition_index): Committed(
            p.committed_offset, p.committed_leader_epoch, p.committed_metadata or "", now_ms, expires_ms
        )
        for topic in request.topics
        for p in topic.partitions
    }


HANDLER = Handler(api=ApiKey.OFFSET_COMMIT, versions=(2, 9), handle=handle)
