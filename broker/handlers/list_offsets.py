"""ListOffsets, v1-7: the latest, the earliest, or the first offset from a time on.

v2 isolation level (latest is the last stable offset for read_committed); v4 leader epochs; v7 the offset of the highest
timestamp (KIP-734). The answer to a time is the exact record, found by opening its batch.
"""

from __future__ import annotations

from typing import Final

from broker.broker import Broker
from broker.errors import BrokerError
from broker.handlers.handler import Handler, RequestContext
from broker.topics.errors import InvalidTopicRequest
from broker.topics.partition import Partition
from broker.wire.api import ApiKey
from broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from broker.wire.vocabulary import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    MAX_TIMESTAMP_SINCE_VERSION,
    NO_LEADER_EPOCH,
    NO_OFFSET,
    NO_TIMESTAMP,
)

NOT_FOUND: Final = (NO_OFFSET, NO_TIMESTAMP)


async def handle(broker: Broker, request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                topic.name,
                [_answer(broker, topic.name, asked, request.isolation_level, context) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _answer(
    broker: Broker, topic: str, asked: ListOffsetsPartition, isolation_level: int, context: RequestContext
) -> ListOffsetsPartitionResponse:
    try:
        partition = broker.require_partition(topic, asked.partition_index)
        partition.check_leader_epoch(asked.current_leader_epoch)
        if asked.timestamp == MAX_TIMESTAMP and context.api_version < MAX_TIMESTAMP_SINCE_VERSION:
            raise InvalidTopicRequest("timestamp -3 needs ListOffsets v7")
        offset, timestamp = _find(partition, asked.timestamp, isolation_level)
    except BrokerError as error:
        return ListOffsetsPartitionResponse(asked.partition_index, error.error_code)
    return ListOffsetsPartitionResponse(
        asked.partition_index,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=partition.leader_epoch if offset != NO_OFFSET else NO_LEADER_EPOCH,
    )


def _find(partition: Partition, timestamp: int, isolation_level: int) -> tuple[int, int]:
    """(offset, timestamp); the timestamp is NO_TIMESTAMP for the ends of the log. Raises BrokerError."""
    if timestamp == LATEST:
        return partition.visible_end(isolation_level), NO_TIMESTAMP
    if timestamp == EARLIEST:
        return partition.log.log_start_offset, NO_TIMESTAMP
    if timestamp == MAX_TIMESTAMP:
        return partition.log.max_timestamp() or NOT_FOUND
    if timestamp < 0:
        raise InvalidTopicRequest(f"timestamp {timestamp} has no meaning in this version")
    up_to = partition.visible_end(isolation_level)
    return partition.log.offset_for_timestamp(timestamp, up_to=up_to) or NOT_FOUND


HANDLER = Handler(api=ApiKey.LIST_OFFSETS, versions=(1, 7), handle=handle)
