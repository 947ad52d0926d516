"""AlterConfigs (API 33): replaces all configs of a resource by those that are named."""

from __future__ import annotations

from broker.wire.schema import Message, Struct, array, boolean, int8, int16, int32, message, string, struct


@struct
class AlterableConfig(Struct):
    name: str = string()
    value: str | None = string(nullable=0)


@struct
class AlterConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


@message(key=33, versions=(0, 2), flexible=2)
class AlterConfigsRequest(Message):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@struct
class AlterConfigsResourceResponse(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    resource_type: int = int8()
    resource_name: str = string()


@message(key=33, versions=(0, 2), flexible=2)
class AlterConfigsResponse(Message):
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
