"""JoinGroup (API 11).

v4 the first join is answered with a member id (KIP-394); v5 static members; v7 protocol type; v8 reason
(KIP-800); v9 skip_assignment (KIP-814).
"""

from __future__ import annotations

from broker.wire.schema import (
    Message,
    Struct,
    array,
    boolean,
    bytestring,
    int16,
    int32,
    message,
    string,
    struct,
)


@struct
class JoinGroupRequestProtocol(Struct):
    name: str = string()
    metadata: bytes = bytestring()


@message(key=11, versions=(0, 9), flexible=6)
class JoinGroupRequest(Message):
    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32(default=-1, since=1)
    member_id: str = string()
    group_instance_id: str | None = string(default=None, since=5, nullable=5)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string(default=None, since=8, nullable=8)


@struct
class JoinGroupResponseMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(default=None, since=5, nullable=5)
    metadata: bytes = bytestring()


@message(key=11, versions=(0, 9), flexible=6)
class JoinGroupResponse(Message):
    throttle_time_ms: int = int32(since=2)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string(default=None, since=7, nullable=7)
    protocol_name: str | None = string(nullable=7)
    leader: str = string()
    skip_assignment: bool = boolean(since=9)
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
