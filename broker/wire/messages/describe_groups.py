"""DescribeGroups (API 15), up to v5: an unknown group is described as state Dead, not as an error."""

from __future__ import annotations

from broker.wire.schema import (
    Kind,
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


@message(key=15, versions=(0, 5), flexible=5)
class DescribeGroupsRequest(Message):
    groups: list[str] = array(Kind.STRING)
    include_authorized_operations: bool = boolean(since=3)


@struct
class DescribedGroupMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(default=None, since=4, nullable=4)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = bytestring()
    member_assignment: bytes = bytestring()


@struct
class DescribedGroup(Struct):
    error_code: int = int16()
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32(default=-2147483648, since=3)


@message(key=15, versions=(0, 5), flexible=5)
class DescribeGroupsResponse(Message):
    throttle_time_ms: int = int32(since=1)
    groups: list[DescribedGroup] = array(DescribedGroup)
