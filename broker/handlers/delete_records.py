"""DeleteRecords, v0-2: raise the log start offset, at every replica in sync; -1 stands for the high watermark.

A compacted topic that is not also deleted by age refuses it, as in Kafka: compaction owns what is removed there.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from broker.access.authorizer import NotAuthorized, Rights
from broker.broker import Broker
from broker.errors import BrokerError, OffsetOutOfRange
from broker.handlers.handler import Handler, RequestContext, in_turns
from broker.topics.errors import TopicError
from broker.topics.partition import Partition
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from broker.wire.messages.delete_records import DeleteRecordsPartitionResult as Result
from broker.wire.vocabulary import AclOperation, AclResource

HIGH_WATERMARK = -1


async def handle(broker: Broker, request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    # All are deleted here before one is waited for: they share the time.
    deleted = [
        (topic.name, await _delete_each(broker, topic, context.rights)) async for topic in in_turns(request.topics)
    ]
    deadline = asyncio.get_running_loop().time() + request.timeout_ms / 1000
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(name, [await _at_all_replicas(each, deadline) async for each in in_turns(some)])
            async for name, some in in_turns(deleted)
        ]
    )


class _Deleted(NamedTuple):
    """Here, and to be so at every replica in sync."""

    partition: Partition
    offset: int


async def _delete_each(broker: Broker, topic: DeleteRecordsTopic, rights: Rights) -> list[_Deleted | Result]:
    each = in_turns(topic.partitions)
    try:
        rights.require(AclOperation.DELETE, AclResource.TOPIC, topic.name)
    except NotAuthorized as error:
        return [Result(asked.partition_index, -1, error.error_code) async for asked in each]
    return [_delete(broker, topic.name, asked) async for asked in each]


def _delete(broker: Broker, topic: str, asked: DeleteRecordsPartition) -> _Deleted | Result:
    try:
        partition = broker.require_partition(topic, asked.partition_index)
        log = partition.log
        if broker.topics[topic].is_internal:
            raise TopicError(f"{topic} is the coordinator's own", error_code=ErrorCode.INVALID_TOPIC_EXCEPTION)
        if not log.config.deleted_by_retention:
            raise TopicError(f"{topic} is compacted only", error_code=ErrorCode.POLICY_VIOLATION)
        offset = log.high_watermark if asked.offset == HIGH_WATERMARK else asked.offset
        if not 0 <= offset <= log.high_watermark:
            raise OffsetOutOfRange(f"{offset} is beyond the high watermark {log.high_watermark}")
        log.delete_records_before(offset)
        partition.wake()
    except BrokerError as error:
        return Result(asked.partition_index, -1, error.error_code)
    return _Deleted(partition, offset)


async def _at_all_replicas(deleted: _Deleted | Result, deadline: float) -> Result:
    if isinstance(deleted, Result):
        return deleted
    left_ms = max(0.0, deadline - asyncio.get_running_loop().time()) * 1000
    try:
        low_watermark = await deleted.partition.wait_deleted(deleted.offset, left_ms)
    except BrokerError as error:
        return Result(deleted.partition.index, -1, error.error_code)
    return Result(deleted.partition.index, low_watermark)


HANDLER = Handler(api=ApiKey.DELETE_RECORDS, versions=(0, 2), handle=handle)
