"""OffsetDelete, v0: forget single offsets of a group; not those of topics its members are subscribed to."""

from __future__ import annotations

from broker.broker import Broker
from broker.errors import BrokerError
from broker.handlers.handler import Handler, RequestContext
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from broker.wire.vocabulary import TopicPartition


async def handle(broker: Broker, request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    if not request.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    if not broker.groups.exists(request.group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    subscribed = broker.groups.subscribed_topics(request.group_id)
    if subscribed is None:
        return OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP)
    results = {
        TopicPartition(topic.name, p.partition_index): _check(broker, topic.name, p.partition_index, subscribed)
        for topic in request.topics
        for p in topic.partitions
    }
    try:
        allowed = [where for where, error in results.items() if error is ErrorCode.NONE]
        broker.groups.remove_offsets(request.group_id, allowed)
    except BrokerError as error:
        return OffsetDeleteResponse(error_code=error.error_code)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                topic.name,
                [
                    OffsetDeleteResponsePartition(
                        p.partition_index, results[TopicPartition(topic.name, p.partition_index)]
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _check(broker: Broker, topic: str, index: int, subscribed: frozenset[str]) -> ErrorCode:
    if broker.partition(topic, index) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if topic in subscribed else ErrorCode.NONE


HANDLER = Handler(api=ApiKey.OFFSET_DELETE, versions=(0, 0), handle=handle)
