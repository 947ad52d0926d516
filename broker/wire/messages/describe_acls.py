"""DescribeAcls (API 29)."""

from __future__ import annotations

from broker.wire.schema import Message, Struct, array, int8, int16, int32, message, string, struct


@message(key=29, versions=(1, 3), flexible=2)
class DescribeAclsRequest(Message):
    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable=0)
    pattern_type_filter: int = int8(default=3)
    principal_filter: str | None = string(nullable=0)
    host_filter: str | None = string(nullable=0)
    operation: int = int8()
    permission_type: int = int8()


@struct
class AclDescription(Struct):
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@struct
class DescribeAclsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=3)
    acls: list[AclDescription] = array(AclDescription)


@message(key=29, versions=(1, 3), flexible=2)
class DescribeAclsResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)
