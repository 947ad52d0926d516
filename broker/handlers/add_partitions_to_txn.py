"""AddPartitionsToTxn, v0-3: partitions that the producer is about to write to; all are added, or none.

v2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH. v4 and later are between brokers and not served.
"""

from __future__ import annotations

from broker.broker import Broker
from broker.coordination.host import has_partition
from broker.coordination.internal_log import Producer
from broker.errors import BrokerError
from broker.handlers.handler import Handler, RequestContext
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from broker.wire.vocabulary import TopicPartition


async def handle(
    broker: Broker, request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    asked = [TopicPartition(topic.name, index) for topic in request.v3_and_below_topics for index in topic.partitions]
    unknown = {where for where in asked if not has_partition(broker, where)}
    if unknown:
        results = {
            where: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if where in unknown else ErrorCode.OPERATION_NOT_ATTEMPTED
            for where in asked
        }
    else:
        producer = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        name = request.v3_and_below_transactional_id
        try:
            error = await broker.transactions.ask(name, lambda at: at.add_partitions(name, producer, asked))
        except BrokerError as failed:
            error = failed.error_code
        if error is ErrorCode.PRODUCER_FENCED and context.api_version < 2:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        results = dict.fromkeys(asked, error)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                topic.name,
                [
                    AddPartitionsToTxnPartitionResult(index, results[TopicPartition(topic.name, index)])
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )


HANDLER = Handler(api=ApiKey.ADD_PARTITIONS_TO_TXN, versions=(0, 3), handle=handle)
