"""Heartbeat (API 12)."""

from __future__ import annotations

from broker.wire.schema import Message, int16, int32, message, string


@message(key=12, versions=(0, 4), flexible=4)
class HeartbeatRequest(Message):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(default=None, since=3, nullable=3)


@message(key=12, versions=(0, 4), flexible=4)
class HeartbeatResponse(Message):
    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
