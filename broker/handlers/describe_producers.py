"""DescribeProducers, v0 (KIP-664): who writes to a partition, and since where a transaction is open."""

from __future__ import annotations

from broker.access.authorizer import NotAuthorized, Rights
from broker.broker import Broker
from broker.errors import BrokerError
from broker.handlers.handler import Handler, RequestContext, in_turns
from broker.wire.api import ApiKey
from broker.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)
from broker.wire.vocabulary import AclOperation, AclResource


async def handle(
    broker: Broker, request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(topic.name, await _describe_each(broker, topic, context.rights))
            async for topic in in_turns({topic.name: topic for topic in request.topics}.values())
        ]
    )


async def _describe_each(broker: Broker, topic: TopicRequest, rights: Rights) -> list[PartitionResponse]:
    each = in_turns(dict.fromkeys(topic.partition_indexes))
    try:
        rights.require(AclOperation.READ, AclResource.TOPIC, topic.name)
    except NotAuthorized as error:
        return [PartitionResponse(index, error.error_code, str(error)) async for index in each]
    return [_describe(broker, topic.name, index) async for index in each]


def _describe(broker: Broker, topic: str, index: int) -> PartitionResponse:
    try:
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
