"""ListOffsets, v1-9: the latest, the earliest, or the first offset from a time on.

v2 isolation level (latest is the last stable offset for read_committed); v4 leader epochs; v7 the offset of the highest
timestamp (KIP-734); v8 and v9 the ends of local and of remote storage, of which there is only the local. The answer to
a time is the exact record, found by opening its batch. Who asks as a debugging consumer (-2) gets the end of the
leader's log for the latest, as in Kafka: also what its followers have not got yet.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import aclosing
from functools import partial
from typing import Final

from broker.access.authorizer import NotAuthorized
from broker.broker import Broker
from broker.errors import BrokerError
from broker.handlers.handler import Handler, RequestContext, in_turns
from broker.log.lookup import Found, TimeLookup
from broker.log.partition_log import PartitionLog
from broker.topics.errors import InvalidTopicRequest, NotLeading, OffsetNotAvailable, TopicError
from broker.topics.partition import Partition, check_isolation_level
from broker.wire.api import ApiKey
from broker.wire.errors import BatchBeyondLimits, ErrorCode
from broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from broker.wire.vocabulary import (
    DEBUGGING_CONSUMER,
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    MAX_TIMESTAMP_SINCE_VERSION,
    NO_LEADER_EPOCH,
    NO_OFFSET,
    NO_TIMESTAMP,
    AclOperation,
    AclResource,
)

OFFSET_NOT_AVAILABLE_SINCE_VERSION: Final = 5
NOT_FOUND: Final = (NO_OFFSET, NO_TIMESTAMP)
_SINCE_VERSION: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: MAX_TIMESTAMP_SINCE_VERSION,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
}


async def handle(broker: Broker, request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    named = Counter[tuple[str, int]]()
    async for topic in in_turns(request.topics):
        async for asked in in_turns(topic.partitions):
            named[topic.name, asked.partition_index] += 1
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(topic.name, await _answers(broker, topic, request, context, named))
            async for topic in in_turns(request.topics)
        ]
    )


async def _answers(
    broker: Broker,
    topic: ListOffsetsTopic,
    request: ListOffsetsRequest,
    context: RequestContext,
    named: Counter[tuple[str, int]],
) -> list[ListOffsetsPartitionResponse]:
    each = in_turns(topic.partitions)
    try:
        context.rights.require(AclOperation.DESCRIBE, AclResource.TOPIC, topic.name)
    except NotAuthorized as error:
        return [ListOffsetsPartitionResponse(asked.partition_index, error.error_code) async for asked in each]
    return [await _answer(broker, topic.name, asked, request, context, named) async for asked in each]


async def _answer(
    broker: Broker,
    topic: str,
    asked: ListOffsetsPartition,
    request: ListOffsetsRequest,
    context: RequestContext,
    named: Counter[tuple[str, int]],
) -> ListOffsetsPartitionResponse:
    try:
        if named[topic, asked.partition_index] > 1:
            raise InvalidTopicRequest(f"{topic}-{asked.partition_index} is in the request more than once.")
        check_isolation_level(request.isolation_level)
        partition = broker.require_partition(topic, asked.partition_index)
        partition.check_leader_epoch(asked.current_leader_epoch)
        _check_timestamp(asked.timestamp, context.api_version)
        leading = partition.leading
        if asked.timestamp == LATEST and request.replica_id == DEBUGGING_CONSUMER:
            offset, timestamp = partition.log.log_end_offset, NO_TIMESTAMP
        else:
            offset, timestamp = await _find(broker, partition, asked.timestamp, request.isolation_level)
        if broker.require_partition(topic, asked.partition_index).leading is not leading:
            raise NotLeading(f"{topic}-{asked.partition_index} was led by another broker while this was looked up")
    except OffsetNotAvailable as error:
        known = context.api_version >= OFFSET_NOT_AVAILABLE_SINCE_VERSION
        code = error.error_code if known else ErrorCode.LEADER_NOT_AVAILABLE
        return ListOffsetsPartitionResponse(asked.partition_index, code)
    except BrokerError as error:
        return ListOffsetsPartitionResponse(asked.partition_index, error.error_code)
    return ListOffsetsPartitionResponse(
        asked.partition_index,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=partition.leader_epoch if offset != NO_OFFSET else NO_LEADER_EPOCH,
    )


def _check_timestamp(timestamp: int, version: int) -> None:
    """Raises TopicError for a special value that the version does not have."""
    since = _SINCE_VERSION.get(timestamp)
    if timestamp < 0 and (since is None or version < since):
        raise TopicError(
            f"timestamp {timestamp} has no meaning in ListOffsets v{version}",
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            hint="use a time of 0 or more, or a newer client",
        )


async def _find(broker: Broker, partition: Partition, timestamp: int, isolation_level: int) -> tuple[int, int]:
    """(offset, timestamp); the timestamp is NO_TIMESTAMP for the ends of the log. Raises BrokerError."""
    if timestamp == LATEST:
        partition.check_end_known()
        return partition.visible_end(isolation_level), NO_TIMESTAMP
    if timestamp == LATEST_TIERED:
        return NOT_FOUND
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return partition.log.log_start_offset, NO_TIMESTAMP
    # The latest time as in Kafka: the newest of all records, if it may be read, and not the newest of those that may.
    partition.check_end_known()
    up_to = partition.visible_end(isolation_level)
    found = await _find_by_time(broker, partition.log, timestamp, up_to)
    return found if found is not None and found[0] < up_to else NOT_FOUND


async def _find_by_time(broker: Broker, log: PartitionLog, timestamp: int, up_to: int) -> Found:
    """Between two lookups the others get their turn: a request may ask for thousands."""

    def look(lookup: TimeLookup) -> Found:
        return lookup.latest() if timestamp == MAX_TIMESTAMP else lookup.first_at_or_after(timestamp, up_to)

    await asyncio.sleep(0)
    try:
        return log.find_time(look)
    except BatchBeyondLimits:
        pass

    def look_and_close(lookup: TimeLookup) -> Found:
        try:
            return look(lookup)
        finally:
            lookup.close()

    lookups = log.time_lookups_apart(NO_TIMESTAMP if timestamp == MAX_TIMESTAMP else timestamp)
    works = (partial(look_and_close, lookup) for lookup in lookups)
    with log.reading_apart():
        async with aclosing(broker.openings.run_each_in_thread(works)) as answers:
            async for found in answers:
                if found is not None:
                    return found
    return None


HANDLER = Handler(api=ApiKey.LIST_OFFSETS, versions=(1, 9), handle=handle)
