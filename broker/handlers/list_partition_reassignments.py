"""ListPartitionReassignments, v0 (KIP-455): which partitions are on their way to other replicas."""

from __future__ import annotations

from broker.broker import Broker
from broker.errors import BrokerError
from broker.handlers.handler import Handler, RequestContext, controller_for
from broker.wire.api import ApiKey
from broker.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from broker.wire.vocabulary import AclOperation, AclResource, TopicPartition, by_topic


async def handle(
    broker: Broker, request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    asked = request.topics
    wheres = None
    if asked is not None:
        wheres = {TopicPartition(each.name, index) for each in asked for index in each.partition_indexes}
    try:
        context.rights.require(AclOperation.DESCRIBE, AclResource.CLUSTER)
        found = await controller_for(broker, context).reassignments(wheres, request.timeout_ms)
    except BrokerError as error:
        return ListPartitionReassignmentsResponse(error_code=error.error_code, error_message=str(error))

    def ongoing(where: TopicPartition) -> OngoingPartitionReassignment:
        replicas, adding, removing = found[where]
        return OngoingPartitionReassignment(where.partition, list(replicas), list(adding), list(removing))

    return ListPartitionReassignmentsResponse(
        topics=[
            OngoingTopicReassignment(name, [ongoing(TopicPartition(name, index)) for index in indexes])
            for name, indexes in by_topic(found).items()
        ]
    )


HANDLER = Handler(api=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions=(0, 0), handle=handle)
