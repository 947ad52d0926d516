"""OffsetDelete, v0: forget single offsets of a group; not those of topics its members are subscribed to."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from broker.broker import Broker
from broker.coordination.host import has_partition
from broker.errors import BrokerError
from broker.groups.coordinator import GroupCoordinator
from broker.handlers.handler import Handler, RequestContext
from broker.handlers.offset_commit import CommitResults, of_each, unreadable
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from broker.wire.vocabulary import AclOperation, AclResource, TopicPartition


async def handle(broker: Broker, request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    results: CommitResults = {}
    try:
        context.rights.require(AclOperation.DELETE, AclResource.GROUP, request.group_id)
        if not request.group_id:
            return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        denied = unreadable(context.rights, (topic.name for topic in request.topics))
        asked = [topic for topic in request.topics if topic.name not in denied] if denied else request.topics
        if asked or not denied:
            allowed = replace(request, topics=asked) if denied else request
            results = await broker.groups.ask(request.group_id, partial(_delete, broker, allowed))
    except BrokerError as error:
        return OffsetDeleteResponse(error_code=error.error_code)
    if isinstance(results, ErrorCode):
        return OffsetDeleteResponse(error_code=results)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                topic.name,
                [
                    OffsetDeleteResponsePartition(
                        p.partition_index, of_each(results, TopicPartition(topic.name, p.partition_index), denied)
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _delete(broker: Broker, request: OffsetDeleteRequest, at: GroupCoordinator) -> CommitResults:
    """Raises BrokerError."""
    if not at.exists(request.group_id):
        return ErrorCode.GROUP_ID_NOT_FOUND
    subscribed = at.subscribed_topics(request.group_id)
    if subscribed is None:
        return ErrorCode.NON_EMPTY_GROUP
    asked = [TopicPartition(topic.name, p.partition_index) for topic in request.topics for p in topic.partitions]
    results = {where: _check(broker, where, subscribed) for where in asked}
    at.remove_offsets(request.group_id, [where for where, error in results.items() if error is ErrorCode.NONE])
    return results


def _check(broker: Broker, where: TopicPartition, subscribed: frozenset[str]) -> ErrorCode:
    if not has_partition(broker, where):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if where.topic in subscribed else ErrorCode.NONE


HANDLER = Handler(api=ApiKey.OFFSET_DELETE, versions=(0, 0), handle=handle)
