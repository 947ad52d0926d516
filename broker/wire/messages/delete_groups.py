"""DeleteGroups (API 42)."""

from __future__ import annotations

from broker.wire.schema import Kind, Message, Struct, array, int16, int32, message, string, struct


@message(key=42, versions=(0, 2), flexible=2)
class DeleteGroupsRequest(Message):
    groups_names: list[str] = array(Kind.STRING)


@struct
class DeletableGroupResult(Struct):
    group_id: str = string()
    error_code: int = int16()


@message(key=42, versions=(0, 2), flexible=2)
class DeleteGroupsResponse(Message):
    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
