"""AlterPartitionReassignments, v0 (KIP-455): have partitions move to other replicas, or call that off."""

from __future__ import annotations

from collections.abc import Sequence

from broker.broker import Broker
from broker.errors import BrokerError
from broker.handlers.handler import Handler, RequestContext, controller_for
from broker.topics.errors import InvalidTopicRequest
from broker.wire.api import ApiKey
from broker.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from broker.wire.vocabulary import AclOperation, AclResource, TopicPartition, by_topic


async def handle(
    broker: Broker, request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    wanted: dict[TopicPartition, Sequence[int] | None] = {}
    try:
        context.rights.require(AclOperation.ALTER, AclResource.CLUSTER)
        for topic in request.topics:
            for one in topic.partitions:
                where = TopicPartition(topic.name, one.partition_index)
                if where in wanted:
                    raise InvalidTopicRequest(f"{where} is in the request more than once.")
                wanted[where] = one.replicas
        outcomes = await controller_for(broker, context).alter_reassignments(wanted, request.timeout_ms)
    except BrokerError as error:
        return AlterPartitionReassignmentsResponse(error_code=error.error_code, error_message=str(error))
    return AlterPartitionReassignmentsResponse(
        responses=[
            ReassignableTopicResponse(
                name, [_result(index, outcomes[TopicPartition(name, index)]) for index in indexes]
            )
            for name, indexes in by_topic(outcomes).items()
        ]
    )


def _result(index: int, error: BrokerError | None) -> ReassignablePartitionResponse:
    if error is None:
        return ReassignablePartitionResponse(index)
    return ReassignablePartitionResponse(index, error.error_code, str(error))


HANDLER = Handler(api=ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions=(0, 0), handle=handle)
