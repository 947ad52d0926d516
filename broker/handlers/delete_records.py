"""DeleteRecords, v0-2: raise the log start offset, at every replica in sync; -1 stands for the high watermark.

A compacted topic that is not also deleted by age refuses it, as in Kafka: compaction owns what is removed there.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from broker.access.authorizer import Rights
from broker.broker import Broker
from broker.errors import BrokerError, OffsetOutOfRange
from broker.handlers.handler import Handler, RequestContext
from broker.topics.errors import TopicError
from broker.topics.partition import Partition
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from broker.wire.messages.delete_records import DeleteRecordsPartitionResult as Result
from broker.wire.vocabulary import AclOperation, AclResource

HIGH_WATERMARK = -1


async def handle(broker: Broker, request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    # All are deleted here before one is waited for: they share the time.
    deleted = [
        (topic.name, [_delete(broker, topic.name, asked, context.rights) for asked in topic.partitions])
        for topic in request.topics
    ]
    deadline = asyncio.get_running_loop().time() + request.timeout_ms / 1000
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name, [each if isinstance(each, Result) else await _at_all_replicas(each, deadline) for each in some]
            )
            for name, some in deleted
        ]
    )


class _Deleted(NamedTuple):
    """Here, and to be so at every replica in sync."""

    partition: Partition
    offset: int


def _delete(broker: Broker, topic: str, asked: DeleteRecordsPartition, rights: Rights) -> _Deleted | Result:
    try:
        rights.require(AclOperation.DELETE, AclResource.TOPIC, topic)
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


async def _at_all_replicas(deleted: _Deleted, deadline: float) -> Result:
    left_ms = max(0.0, deadline - asyncio.get_running_loop().time()) * 1000
    try:
        low_watermark = await deleted.partition.wait_deleted(deleted.offset, left_ms)
    except BrokerError as error:
        return Result(deleted.partition.index, -1, error.error_code)
    return Result(deleted.partition.index, low_watermark)


HANDLER = Handler(api=ApiKey.DELETE_RECORDS, versions=(0, 2), handle=handle)
