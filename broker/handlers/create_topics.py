"""CreateTopics, v2-7: v4 allows -1 partitions and replicas (KIP-464); v5 answers with the configs (KIP-525); v7 the
topic id.

Each topic of a request stands for itself. Configs are never null in a success: the Java client fails on that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from broker.access.authorizer import EVERYTHING, Rights
from broker.broker import Broker
from broker.controller.requests import ControllerRequests, NewTopic
from broker.errors import BrokerError
from broker.handlers.handler import Handler, RequestContext, controller_for, in_turns
from broker.replicas.configs import BrokerConfigs
from broker.topics.broker_configs import TOPIC_DEFAULTS
from broker.topics.catalogue import CATALOGUE
from broker.topics.errors import InvalidReplicaAssignment, InvalidTopicRequest
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from broker.wire.vocabulary import AclOperation, AclResource, ConfigSource


async def handle(broker: Broker, request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    named = Counter(topic.name for topic in request.topics)
    controller, rights = controller_for(broker, context), context.rights
    results = {}
    creates_all = rights.may(AclOperation.CREATE, AclResource.CLUSTER, quietly=True)
    async for topic in in_turns(request.topics):
        creating = EVERYTHING if creates_all else rights
        result = results[topic.name] = await _create(controller, topic, named[topic.name], request, creating)
        _add_defaults(result, broker.broker_configs)
        if not result.error_code and not rights.may(AclOperation.DESCRIBE_CONFIGS, AclResource.TOPIC, topic.name):
            _hide_configs(result)
    return CreateTopicsResponse(topics=list(results.values()))


async def _create(
    controller: ControllerRequests,
    topic: CreatableTopic,
    times_named: int,
    request: CreateTopicsRequest,
    rights: Rights,
) -> CreatableTopicResult:
    try:
        rights.require(AclOperation.CREATE, AclResource.TOPIC, topic.name)
        if times_named > 1:
            raise InvalidTopicRequest(f"Topic '{topic.name}' is in the request {times_named} times.")
        new = NewTopic(
            topic.name,
            topic.num_partitions,
            topic.replication_factor,
            {config.name: config.value for config in topic.configs},
            _assignment(topic),
        )
        made = await controller.create_topic(new, request.timeout_ms, validate_only=request.validate_only)
    except BrokerError as error:
        return CreatableTopicResult(topic.name, error_code=error.error_code, error_message=str(error), configs=[])
    return CreatableTopicResult(
        topic.name,
        # Kafka names an id also where it only validates, though the topic to come will have another one.
        topic_id=made.topic_id,
        error_message=None,
        num_partitions=len(made.partitions),
        replication_factor=len(made.partitions[0].replicas),
        configs=_describe(made.configs),
    )


def _hide_configs(result: CreatableTopicResult) -> None:
    result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    result.num_partitions, result.replication_factor, result.configs = -1, -1, []


def _assignment(topic: CreatableTopic) -> dict[int, list[int]] | None:
    """Raises InvalidReplicaAssignment."""
    assigned = {item.partition_index: item.broker_ids for item in topic.assignments}
    if len(assigned) != len(topic.assignments):
        raise InvalidReplicaAssignment("Partitions must be assigned once each, from 0 on.")
    return assigned or None


def _describe(kept: Mapping[str, str]) -> list[CreatableTopicConfigs]:
    return [
        CreatableTopicConfigs(
            name=config.name,
            value=kept.get(config.name, config.default),
            config_source=ConfigSource.TOPIC if config.name in kept else ConfigSource.DEFAULT,
        )
        for config in CATALOGUE.values()
    ]


def _add_defaults(result: CreatableTopicResult, configs: BrokerConfigs) -> None:
    """What is set on brokers holds where nothing is set on the topic."""
    for config in result.configs or ():
        sources = configs.sources(TOPIC_DEFAULTS.get(config.name, ""))
        if config.config_source == ConfigSource.DEFAULT and sources:
            config.value, config.config_source = sources[0]


HANDLER = Handler(api=ApiKey.CREATE_TOPICS, versions=(2, 7), handle=handle)
