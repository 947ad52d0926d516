"""WriteTxnMarkers, v1: write commit or abort markers at the order of a transaction coordinator.

Kafka's tools send it to abort a hanging transaction (kafka-transactions --abort), other coordinators to end theirs. A
coordinator epoch older than that of the last marker answers TRANSACTION_COORDINATOR_FENCED.
"""

from __future__ import annotations

import asyncio

from broker.access.authorizer import Rights
from broker.broker import Broker
from broker.coordination.internal_log import Producer
from broker.handlers.handler import Handler, RequestContext
from broker.transactions.channels import Channel
from broker.transactions.markers import Marker
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from broker.wire.vocabulary import AclOperation, AclResource, TopicPartition


async def handle(broker: Broker, request: WriteTxnMarkersRequest, context: RequestContext) -> WriteTxnMarkersResponse:
    if not _may_write_markers(context.rights):
        return WriteTxnMarkersResponse(markers=[_refused(marker) for marker in request.markers])
    channel = Channel.of(context.client_id) if context.inter_broker else None
    if channel is not None:
        broker.marker_channels.check(channel, broker.broker_epoch)
    # All are appended, in their order, before one is waited for.
    results = await asyncio.gather(*(_write(broker, marker) for marker in request.markers))
    return WriteTxnMarkersResponse(markers=list(results))


def _may_write_markers(rights: Rights) -> bool:
    """Kafka's tools come with ALTER (since 3.8), its brokers with CLUSTER_ACTION."""
    alters = rights.may(AclOperation.ALTER, AclResource.CLUSTER, quietly=True)
    return alters or rights.may(AclOperation.CLUSTER_ACTION, AclResource.CLUSTER)


def _refused(marker: WritableTxnMarker) -> WritableTxnMarkerResult:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    topics = [
        WritableTxnMarkerTopicResult(
            topic.name, [WritableTxnMarkerPartitionResult(index, code) for index in topic.partition_indexes]
        )
        for topic in marker.topics
    ]
    return WritableTxnMarkerResult(marker.producer_id, topics)


async def _write(broker: Broker, marker: WritableTxnMarker) -> WritableTxnMarkerResult:
    order = Marker(
        Producer(marker.producer_id, marker.producer_epoch), marker.transaction_result, marker.coordinator_epoch
    )
    written = await broker.markers.write(
        order, {TopicPartition(topic.name, index) for topic in marker.topics for index in topic.partition_indexes}
    )
    topics = [
        WritableTxnMarkerTopicResult(
            topic.name,
            [
                WritableTxnMarkerPartitionResult(index, written[TopicPartition(topic.name, index)])
                for index in topic.partition_indexes
            ],
        )
        for topic in marker.topics
    ]
    return WritableTxnMarkerResult(marker.producer_id, topics)


HANDLER = Handler(api=ApiKey.WRITE_TXN_MARKERS, versions=(1, 1), handle=handle)
