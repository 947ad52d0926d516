"""CreatePartitions, v0-3: make a topic wider. `count` is the new total; assignments name the new partitions only."""

from __future__ import annotations

from collections import Counter

from broker.access.authorizer import Rights
from broker.broker import Broker
from broker.controller.requests import ControllerRequests
from broker.errors import BrokerError
from broker.handlers.handler import Handler, RequestContext, controller_for
from broker.topics.errors import InvalidTopicRequest
from broker.wire.api import ApiKey
from broker.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from broker.wire.vocabulary import AclOperation, AclResource


async def handle(broker: Broker, request: CreatePartitionsRequest, context: RequestContext) -> CreatePartitionsResponse:
    named = Counter(topic.name for topic in request.topics)
    controller = controller_for(broker, context)
    results = {}
    for topic in request.topics:
        results[topic.name] = await _widen(controller, topic, named[topic.name], request, context.rights)
    return CreatePartitionsResponse(results=list(results.values()))


async def _widen(
    controller: ControllerRequests,
    asked: CreatePartitionsTopic,
    times_named: int,
    request: CreatePartitionsRequest,
    rights: Rights,
) -> CreatePartitionsTopicResult:
    try:
        rights.require(AclOperation.ALTER, AclResource.TOPIC, asked.name)
        if times_named > 1:
            raise InvalidTopicRequest(f"Topic '{asked.name}' is in the request {times_named} times.")
        assigned = None if asked.assignments is None else [each.broker_ids for each in asked.assignments]
        await controller.grow_topic(
            asked.name, asked.count, assigned, request.timeout_ms, validate_only=request.validate_only
        )
    except BrokerError as error:
        return CreatePartitionsTopicResult(asked.name, error.error_code, str(error))
    return CreatePartitionsTopicResult(asked.name)


HANDLER = Handler(api=ApiKey.CREATE_PARTITIONS, versions=(0, 3), handle=handle)
