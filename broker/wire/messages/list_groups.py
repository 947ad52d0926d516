"""ListGroups (API 16): v4 filters by state (KIP-518), v5 by type (KIP-848)."""

from __future__ import annotations

from broker.wire.schema import Kind, Message, Struct, array, int16, int32, message, string, struct


@message(key=16, versions=(0, 5), flexible=3)
class ListGroupsRequest(Message):
    states_filter: list[str] = array(Kind.STRING, since=4)
    types_filter: list[str] = array(Kind.STRING, since=5)


@struct
class ListedGroup(Struct):
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string(since=4)
    group_type: str = string(since=5)


@message(key=16, versions=(0, 5), flexible=3)
class ListGroupsResponse(Message):
    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
