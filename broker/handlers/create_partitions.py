"""CreatePartitions, v0-3: make a topic wider. `count` is the new total; assignments name the new partitions only."""

from __future__ import annotations

from collections import Counter

from broker.broker import Broker
from broker.errors import BrokerError
from broker.handlers.create_topics import check_assignment
from broker.handlers.handler import Handler, RequestContext
from broker.topics.errors import InvalidReplicaAssignment, InvalidTopicRequest
from broker.wire.api import ApiKey
from broker.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


async def handle(broker: Broker, request: CreatePartitionsRequest, context: RequestContext) -> CreatePartitionsResponse:
    named = Counter(topic.name for topic in request.topics)
    results = {}
    for topic in request.topics:
        results[topic.name] = await _widen(broker, topic, named[topic.name], request.validate_only)
    return CreatePartitionsResponse(results=list(results.values()))


async def _widen(
    broker: Broker, asked: CreatePartitionsTopic, times_named: int, validate_only: bool
) -> CreatePartitionsTopicResult:
    try:
        if times_named > 1:
            raise InvalidTopicRequest(f"Topic '{asked.name}' is in the request {times_named} times.")
        topic = broker.manager.require(asked.name)
        if topic.is_internal:
            # A group's partition follows from their number: with another one its offsets would not be found again.
            raise InvalidTopicRequest(f"The number of partitions of {topic.name} cannot be changed.")
        broker.manager.check_growth(topic, asked.count)
        if asked.assignments is not None:
            if len(asked.assignments) != asked.count - len(topic.partitions):
                raise InvalidReplicaAssignment(f"{len(asked.assignments)} assignments do not fit the new partitions.")
            check_assignment(broker, [assignment.broker_ids for assignment in asked.assignments])
        if not validate_only:
            await broker.manager.add_partitions(asked.name, asked.count)
    except BrokerError as error:
        return CreatePartitionsTopicResult(asked.name, error.error_code, str(error))
    return CreatePartitionsTopicResult(asked.name)


HANDLER = Handler(api=ApiKey.CREATE_PARTITIONS, versions=(0, 3), handle=handle)
