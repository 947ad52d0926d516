"""CreateAcls (API 30)."""

from __future__ import annotations

from broker.wire.schema import Message, Struct, array, int8, int16, int32, message, string, struct


@struct
class AclCreation(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@message(key=30, versions=(1, 3), flexible=2)
class CreateAclsRequest(Message):
    creations: list[AclCreation] = array(AclCreation)


@struct
class AclCreationResult(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable=0)


@message(key=30, versions=(1, 3), flexible=2)
class CreateAclsResponse(Message):
    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)
