"""DescribeConfigs (API 32)."""

from __future__ import annotations

from broker.wire.schema import (
    Kind,
    Message,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    message,
    string,
    struct,
)


@struct
class DescribeConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array(Kind.STRING, nullable=0)


@message(key=32, versions=(1, 4), flexible=4)
class DescribeConfigsRequest(Message):
    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean()
    include_documentation: bool = boolean(since=3)


@struct
class DescribeConfigsSynonym(Struct):
    name: str = string()
    value: str | None = string(nullable=0)
    source: int = int8()


@struct
class DescribeConfigsResourceResult(Struct):
    name: str = string()
    value: str | None = string(nullable=0)
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym)
    config_type: int = int8(since=3)
    documentation: str | None = string(since=3, nullable=0)


@struct
class DescribeConfigsResult(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


@message(key=32, versions=(1, 4), flexible=4)
class DescribeConfigsResponse(Message):
    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)
