"""IncrementalAlterConfigs, v0-1 (KIP-339): set, reset, append to, subtract from the configs of topics, of this
broker, and of all of them.

All changes of one resource or none; they apply to open logs at once.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.broker import Broker
from broker.handlers.altering import altered_resources
from broker.handlers.handler import Handler, RequestContext
from broker.topics.broker_configs import dynamic_config
from broker.topics.configs import altered
from broker.topics.errors import InvalidTopicRequest
from broker.wire.api import ApiKey
from broker.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from broker.wire.vocabulary import ConfigOperation


async def handle(
    broker: Broker, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=await altered_resources(
            broker,
            request.resources,
            context.rights,
            _configs,
            validate_only=request.validate_only,
            own_configs_of=_own_configs,
        )
    )


def _configs(asked: AlterConfigsResource, configs: Mapping[str, str]) -> dict[str, str]:
    return altered(configs, [_change(config) for config in asked.configs])


def _own_configs(asked: AlterConfigsResource, configs: Mapping[str, str]) -> dict[str, str]:
    return altered(configs, [_change(config) for config in asked.configs], dynamic_config)


def _change(config: AlterableConfig) -> tuple[str, ConfigOperation, str | None]:
    try:
        operation = ConfigOperation(config.config_operation)
    except ValueError as error:
        raise InvalidTopicRequest(f"Operation {config.config_operation} is not known.") from error
    return config.name, operation, config.value


HANDLER = Handler(api=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1), handle=handle)
