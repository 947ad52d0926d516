"""AlterConfigs, v0-2: the configs named become all that is set on a topic; what is not named has its default again.

Older than IncrementalAlterConfigs, and still what some clients send. The broker's own configs are read-only.
"""

from __future__ import annotations

from collections import Counter

from broker.broker import Broker
from broker.errors import BrokerError
from broker.handlers.handler import Handler, RequestContext
from broker.handlers.incremental_alter_configs import topic_to_alter
from broker.topics.configs import checked
from broker.topics.errors import InvalidTopicRequest
from broker.wire.api import ApiKey
from broker.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def handle(broker: Broker, request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    named = Counter((asked.resource_type, asked.resource_name) for asked in request.resources)
    responses = []
    for asked in request.resources:
        twice = named[asked.resource_type, asked.resource_name] > 1
        responses.append(_alter(broker, asked, twice, request.validate_only))
    return AlterConfigsResponse(responses=responses)


def _alter(
    broker: Broker, asked: AlterConfigsResource, twice: bool, validate_only: bool
) -> AlterConfigsResourceResponse:
    try:
        topic = topic_to_alter(broker, asked.resource_type, asked.resource_name, twice)
        configs = {config.name: config.value for config in asked.configs}
        if len(configs) != len(asked.configs):
            raise InvalidTopicRequest("Error due to duplicate config keys")
        if any(value is None for value in configs.values()):
            raise InvalidTopicRequest("Null value not supported for topic configs")
        kept = checked(configs)
        if not validate_only and kept != topic.state.configs:
            broker.manager.set_configs(topic.name, kept)
    except BrokerError as error:
        return AlterConfigsResourceResponse(error.error_code, str(error), asked.resource_type, asked.resource_name)
    return AlterConfigsResourceResponse(0, None, asked.resource_type, asked.resource_name)


HANDLER = Handler(api=ApiKey.ALTER_CONFIGS, versions=(0, 2), handle=handle)
