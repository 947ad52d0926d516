"""FindCoordinator (API 10): key type 0 is a group, 1 a transactional id; v4 has many keys in one request."""

from __future__ import annotations

from broker.wire.schema import Kind, Message, Struct, array, int8, int16, int32, message, string, struct


@message(key=10, versions=(0, 4), flexible=3)
class FindCoordinatorRequest(Message):
    key: str = string(until=3)
    key_type: int = int8(since=1)
    coordinator_keys: list[str] = array(Kind.STRING, since=4)


@struct
class Coordinator(Struct):
    key: str = string(since=4)
    node_id: int = int32(since=4)
    host: str = string(since=4)
    port: int = int32(since=4)
    error_code: int = int16(since=4)
    error_message: str | None = string(since=4, nullable=4)


@message(key=10, versions=(0, 4), flexible=3)
class FindCoordinatorResponse(Message):
    throttle_time_ms: int = int32(since=1)
    error_code: int = int16(until=3)
    error_message: str | None = string(since=1, until=3, nullable=1)
    node_id: int = int32(until=3)
    host: str = string(until=3)
    port: int = int32(until=3)
    coordinators: list[Coordinator] = array(Coordinator, since=4)
