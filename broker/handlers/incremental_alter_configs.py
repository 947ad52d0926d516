"""IncrementalAlterConfigs, v0-1 (KIP-339): set, reset, append to, subtract from the configs of topics.

All changes of one topic or none; they apply to its open logs at once. The broker's own configs are read-only.
"""

from __future__ import annotations

from collections import Counter

from broker.broker import Broker
from broker.errors import BrokerError
from broker.handlers.handler import Handler, RequestContext
from broker.topics.configs import altered
from broker.topics.errors import InvalidTopicRequest
from broker.topics.naming import check_name
from broker.topics.partition import Topic
from broker.wire.api import ApiKey
from broker.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from broker.wire.vocabulary import TOPIC_RESOURCE, ConfigOperation


async def handle(
    broker: Broker, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    named = Counter((asked.resource_type, asked.resource_name) for asked in request.resources)
    responses = []
    for asked in request.resources:
        twice = named[asked.resource_type, asked.resource_name] > 1
        responses.append(_alter(broker, asked, twice, request.validate_only))
    return IncrementalAlterConfigsResponse(responses=responses)


def _alter(
    broker: Broker, asked: AlterConfigsResource, twice: bool, validate_only: bool
) -> AlterConfigsResourceResponse:
    try:
        topic = topic_to_alter(broker, asked.resource_type, asked.resource_name, twice)
        configs = altered(topic.state.configs, [_change(config) for config in asked.configs])
        if not validate_only and configs != topic.state.configs:
            broker.manager.set_configs(topic.name, configs)
    except BrokerError as error:
        return AlterConfigsResourceResponse(error.error_code, str(error), asked.resource_type, asked.resource_name)
    return AlterConfigsResourceResponse(0, None, asked.resource_type, asked.resource_name)


def topic_to_alter(broker: Broker, resource_type: int, name: str, twice: bool) -> Topic:
    """The topic that a request to alter configs names. Raises InvalidTopicRequest, InvalidTopicName, UnknownTopic."""
    if twice:
        raise InvalidTopicRequest(f"'{name}' is in the request more than once.")
    if resource_type != TOPIC_RESOURCE:
        raise InvalidTopicRequest(
            f"Resources of type {resource_type} cannot be altered while the broker runs: only topics can."
        )
    if not name:
        raise InvalidTopicRequest("The default resource is not allowed for topics.")
    check_name(name)
    return broker.manager.require(name)


def _change(config: AlterableConfig) -> tuple[str, ConfigOperation, str | None]:
    try:
        operation = ConfigOperation(config.config_operation)
    except ValueError as error:
        raise InvalidTopicRequest(f"Operation {config.config_operation} is not known.") from error
    return config.name, operation, config.value


HANDLER = Handler(api=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1), handle=handle)
