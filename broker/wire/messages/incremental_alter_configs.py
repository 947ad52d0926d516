"""IncrementalAlterConfigs (API 44, KIP-339): operations 0 SET, 1 DELETE, 2 APPEND, 3 SUBTRACT."""

from __future__ import annotations

from broker.wire.messages.alter_configs import AlterConfigsResourceResponse
from broker.wire.schema import Message, Struct, array, boolean, int8, int32, message, string, struct


@struct
class AlterableConfig(Struct):
    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable=0)


@struct
class AlterConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


@message(key=44, versions=(0, 1), flexible=1)
class IncrementalAlterConfigsRequest(Message):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@message(key=44, versions=(0, 1), flexible=1)
class IncrementalAlterConfigsResponse(Message):
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
