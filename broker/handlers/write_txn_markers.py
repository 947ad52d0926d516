"""WriteTxnMarkers, v1: write commit or abort markers at the order of a transaction coordinator.

Kafka's tools send it to abort a hanging transaction (kafka-transactions --abort), other coordinators to end theirs. A
coordinator epoch older than that of the last marker answers TRANSACTION_COORDINATOR_FENCED.
"""

from __future__ import annotations

from broker.broker import Broker
from broker.coordination.internal_log import Producer
from broker.handlers.handler import Handler, RequestContext
from broker.wire.api import ApiKey
from broker.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from broker.wire.vocabulary import TopicPartition


async def handle(broker: Broker, request: WriteTxnMarkersRequest, context: RequestContext) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(markers=[_write(broker, marker) for marker in request.markers])


def _write(broker: Broker, marker: WritableTxnMarker) -> WritableTxnMarkerResult:
    producer = Producer(marker.producer_id, marker.producer_epoch)
    topics = []
    for topic in marker.topics:
        partitions = []
        for index in topic.partition_indexes:
            error = broker.transactions.write_marker(
                TopicPartition(topic.name, index),
                producer,
                commit=marker.transaction_result,
                coordinator_epoch=marker.coordinator_epoch,
            )
            partitions.append(WritableTxnMarkerPartitionResult(index, error))
        topics.append(WritableTxnMarkerTopicResult(topic.name, partitions))
    return WritableTxnMarkerResult(marker.producer_id, topics)


HANDLER = Handler(api=ApiKey.WRITE_TXN_MARKERS, versions=(1, 1), handle=handle)
