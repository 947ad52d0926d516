"""SyncGroup (API 14)."""

from __future__ import annotations

from broker.wire.schema import Message, Struct, array, bytestring, int16, int32, message, string, struct


@struct
class SyncGroupRequestAssignment(Struct):
    member_id: str = string()
    assignment: bytes = bytestring()


@message(key=14, versions=(0, 5), flexible=4)
class SyncGroupRequest(Message):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(default=None, since=3, nullable=3)
    protocol_type: str | None = string(default=None, since=5, nullable=5)
    protocol_name: str | None = string(default=None, since=5, nullable=5)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


@message(key=14, versions=(0, 5), flexible=4)
class SyncGroupResponse(Message):
    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
    protocol_type: str | None = string(default=None, since=5, nullable=5)
    protocol_name: str | None = string(default=None, since=5, nullable=5)
    assignment: bytes = bytestring()
