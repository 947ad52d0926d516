"""DescribeProducers, v0 (KIP-664): who writes to a partition, and since where a transaction is open."""

from __future__ import annotations

from broker.access.authorizer import Rights
from broker.broker import Broker
from broker.errors import BrokerError
from broker.handlers.handler import Handler, RequestContext
from broker.wire.api import ApiKey
from broker.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from broker.wire.vocabulary import AclOperation, AclResource


async def handle(
    broker: Broker, request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                topic.name,
                [
                    _describe(broker, topic.name, index, context.rights)
                    for index in dict.fromkeys(topic.partition_indexes)
                ],
            )
            for topic in {topic.name: topic for topic in request.topics}.values()
        ]
    )


def _describe(broker: Broker, topic: str, index: int, rights: Rights) -> PartitionResponse:
    try:
        rights.require(AclOperation.READ, AclResource.TOPIC, topic)
        producers = broker.require_partition(topic, index).log.producers
    except BrokerError as error:
        return PartitionResponse(index, error.error_code, str(error))
    return PartitionResponse(
        index,
        active_producers=[
            ProducerState(
                producer_id=state.producer_id,
                producer_epoch=state.producer_epoch,
                last_sequence=state.last_sequence,
                last_timestamp=state.last_timestamp_ms,
                coordinator_epoch=state.coordinator_epoch,
                current_txn_start_offset=state.transaction_first_offset,
            )
            for state in producers
        ],
    )


HANDLER = Handler(api=ApiKey.DESCRIBE_PRODUCERS, versions=(0, 0), handle=handle)
