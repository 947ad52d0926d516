"""CreateTopics, v2-7: v4 allows -1 partitions and replicas (KIP-464); v5 answers with the configs (KIP-525); v7 the
topic id.

Each topic of a request stands for itself. Configs are never null in a success: the Java client fails on that.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping

from broker.broker import Broker
from broker.errors import BrokerError
from broker.handlers.handler import Handler, RequestContext, in_turns
from broker.topics.catalogue import CATALOGUE
from broker.topics.errors import InvalidReplicaAssignment, InvalidReplicationFactor, InvalidTopicRequest
from broker.topics.manager import check_partition_count
from broker.wire.api import ApiKey
from broker.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from broker.wire.vocabulary import BROKER_DEFAULT, ConfigSource


async def handle(broker: Broker, request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    named = Counter(topic.name for topic in request.topics)
    results = {}
    async for topic in in_turns(request.topics):
        results[topic.name] = await _create(broker, topic, named[topic.name], request.validate_only)
    return CreateTopicsResponse(topics=list(results.values()))


async def _create(broker: Broker, topic: CreatableTopic, times_named: int, validate_only: bool) -> CreatableTopicResult:
    try:
        if times_named > 1:
            raise InvalidTopicRequest(f"Topic '{topic.name}' is in the request {times_named} times.")
        broker.manager.check_free(topic.name)
        count = _partition_count(broker, topic)
        configs = {config.name: config.value for config in topic.configs}
        kept = broker.manager.check_new(topic.name, count, configs)
        # Kafka names an id here too, though the topic to come will have another one.
        made = None if validate_only else await broker.manager.create(topic.name, count, configs)
        topic_id = uuid.uuid4() if made is None else made.topic_id
    except BrokerError as error:
        return CreatableTopicResult(topic.name, error_code=error.error_code, error_message=str(error), configs=[])
    return CreatableTopicResult(
        topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=count,
        replication_factor=1,
        configs=_describe(kept),
    )


def _partition_count(broker: Broker, topic: CreatableTopic) -> int:
    """Raises InvalidTopicRequest, InvalidReplicaAssignment, InvalidPartitions, InvalidReplicationFactor."""
    if topic.assignments:
        if topic.num_partitions != BROKER_DEFAULT or topic.replication_factor != BROKER_DEFAULT:
            raise InvalidTopicRequest(
                "Both numPartitions or replicationFactor and replicasAssignments were set. "
                "Both cannot be used at the same time."
            )
        assigned = {item.partition_index: item.broker_ids for item in topic.assignments}
        if sorted(assigned) != list(range(len(topic.assignments))):
            raise InvalidReplicaAssignment("Partitions must be assigned once each, from 0 on.")
        check_assignment(broker, list(assigned.values()))
        return len(assigned)
    if topic.replication_factor != BROKER_DEFAULT and topic.replication_factor < 1:
        raise InvalidReplicationFactor("Replication factor must be larger than 0.")
    count = broker.config.num_partitions if topic.num_partitions == BROKER_DEFAULT else topic.num_partitions
    check_partition_count(count)
    if topic.replication_factor > 1:
        raise InvalidReplicationFactor(
            f"Replication factor: {topic.replication_factor} larger than available brokers: 1."
        )
    return count


def check_assignment(broker: Broker, assignments: list[list[int]]) -> None:
    """Raises InvalidReplicaAssignment unless every partition is to be on this one broker."""
    for brokers in assignments:
        if brokers != [broker.config.node_id]:
            raise InvalidReplicaAssignment(f"Replicas {brokers}: this cluster has broker {broker.config.node_id} only.")


def _describe(kept: Mapping[str, str]) -> list[CreatableTopicConfigs]:
    return [
        CreatableTopicConfigs(
            name=config.name,
            value=kept.get(config.name, config.default),
            config_source=ConfigSource.TOPIC if config.name in kept else ConfigSource.DEFAULT,
        )
        for config in CATALOGUE.values()
    ]


HANDLER = Handler(api=ApiKey.CREATE_TOPICS, versions=(2, 7), handle=handle)
