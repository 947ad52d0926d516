"""ElectLeaders, v0-2: have partitions led by their first replicas, v1 or whoever is there."""

from __future__ import annotations

from broker.broker import Broker
from broker.controller.requests import Outcomes
from broker.errors import BrokerError
from broker.handlers.handler import Handler, RequestContext, controller_for
from broker.topics.errors import InvalidTopicRequest
from broker.wire.api import ApiKey
from broker.wire.messages.elect_leaders import (
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ReplicaElectionResult,
)
from broker.wire.vocabulary import AclOperation, AclResource, ElectionType, TopicPartition, by_topic


async def handle(broker: Broker, request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    asked = request.topic_partitions
    wheres = None
    if asked is not None:
        wheres = list(dict.fromkeys(TopicPartition(each.topic, index) for each in asked for index in each.partitions))
    try:
        context.rights.require(AclOperation.ALTER, AclResource.CLUSTER)
        if request.election_type not in tuple(ElectionType):
            raise InvalidTopicRequest(f"There is no election type {request.election_type}.")
        unclean = request.election_type == ElectionType.UNCLEAN
        outcomes = await controller_for(broker, context).elect_leaders(wheres, request.timeout_ms, unclean=unclean)
    except BrokerError as error:
        # Before v1 there is no other place for it than each partition.
        return ElectLeadersResponse(
            error_code=error.error_code, replica_election_results=_results(dict.fromkeys(wheres or (), error))
        )
    return ElectLeadersResponse(replica_election_results=_results(outcomes))


def _results(outcomes: Outcomes) -> list[ReplicaElectionResult]:
    return [
        ReplicaElectionResult(name, [_result(index, outcomes[TopicPartition(name, index)]) for index in indexes])
        for name, indexes in by_topic(outcomes).items()
    ]


def _result(index: int, error: BrokerError | None) -> ElectLeadersPartitionResult:
    if error is None:
        return ElectLeadersPartitionResult(index)
    return ElectLeadersPartitionResult(index, error.error_code, str(error))


HANDLER = Handler(api=ApiKey.ELECT_LEADERS, versions=(0, 2), handle=handle)
