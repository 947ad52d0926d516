"""DeleteRecords, v0-2: raise the log start offset; -1 stands for the high watermark.

A compacted topic that is not also deleted by age refuses it, as in Kafka: compaction owns what is removed there.
"""

from __future__ import annotations

from broker.broker import Broker
from broker.errors import BrokerError, OffsetOutOfRange
from broker.handlers.handler import Handler, RequestContext
from broker.topics.errors import TopicError
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

HIGH_WATERMARK = -1


async def handle(broker: Broker, request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(topic.name, [_delete(broker, topic.name, asked) for asked in topic.partitions])
            for topic in request.topics
        ]
    )


def _delete(broker: Broker, topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
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
        low_watermark = log.delete_records_before(offset)
        partition.wake()
    except BrokerError as error:
        return DeleteRecordsPartitionResult(asked.partition_index, -1, error.error_code)
    return DeleteRecordsPartitionResult(asked.partition_index, low_watermark)


HANDLER = Handler(api=ApiKey.DELETE_RECORDS, versions=(0, 2), handle=handle)
