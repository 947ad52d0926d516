"""LeaveGroup (API 13): one member up to v2, many from v3."""

from __future__ import annotations

from broker.wire.schema import Message, Struct, array, int16, int32, message, string, struct


@struct
class MemberIdentity(Struct):
    member_id: str = string(since=3)
    group_instance_id: str | None = string(default=None, since=3, nullable=3)
    reason: str | None = string(default=None, since=5, nullable=5)


@message(key=13, versions=(0, 5), flexible=4)
class LeaveGroupRequest(Message):
    group_id: str = string()
    member_id: str = string(until=2)
    members: list[MemberIdentity] = array(MemberIdentity, since=3)


@struct
class MemberResponse(Struct):
    member_id: str = string(since=3)
    group_instance_id: str | None = string(since=3, nullable=3)
    error_code: int = int16(since=3)


@message(key=13, versions=(0, 5), flexible=4)
class LeaveGroupResponse(Message):
    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, since=3)
