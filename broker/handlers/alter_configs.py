"""AlterConfigs, v0-2: the configs named become all that is set on a topic or on brokers; what is not named has its
default again.

Older than IncrementalAlterConfigs, and still what some clients send.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.broker import Broker
from broker.handlers.altering import altered_resources
from broker.handlers.handler import Handler, RequestContext
from broker.topics.broker_configs import dynamic_config
from broker.topics.configs import altered, checked
from broker.topics.errors import InvalidTopicRequest
from broker.wire.api import ApiKey
from broker.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource, AlterConfigsResponse
from broker.wire.site_role import SITE_CONFIGS
from broker.wire.vocabulary import ConfigOperation


async def handle(broker: Broker, request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=await altered_resources(
            broker,
            request.resources,
            context.rights,
            _configs,
            validate_only=request.validate_only,
            own_configs_of=_own_configs,
        )
    )


def _own_configs(asked: AlterConfigsResource, known: Mapping[str, str]) -> dict[str, str]:
    """A site's role stays: whoever sends all that he knows of may not know of that."""
    changes = [(config.name, ConfigOperation.SET, config.value) for config in asked.configs]
    return altered({name: known[name] for name in SITE_CONFIGS if name in known}, changes, dynamic_config)


def _configs(asked: AlterConfigsResource, _: Mapping[str, str]) -> dict[str, str]:
    configs = {config.name: config.value for config in asked.configs}
    if len(configs) != len(asked.configs):
        raise InvalidTopicRequest("Error due to duplicate config keys")
    if any(value is None for value in configs.values()):
        raise InvalidTopicRequest("Null value not supported for topic configs")
    return checked(configs)


HANDLER = Handler(api=ApiKey.ALTER_CONFIGS, versions=(0, 2), handle=handle)
