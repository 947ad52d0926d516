"""ShareGroupDescribe (API 77, KIP-932), which clients of ours ask Kafka."""

from __future__ import annotations

from broker.wire.messages.consumer_group_describe import Assignment
from broker.wire.schema import Kind, Message, Struct, array, boolean, inline, int16, int32, message, string, struct


@message(key=77, versions=(1, 1), flexible=0)
class ShareGroupDescribeRequest(Message):
    group_ids: list[str] = array(Kind.STRING)
    include_authorized_operations: bool = boolean()


@struct
class DescribedShareMember(Struct):
    member_id: str = string()
    rack_id: str | None = string(default=None, nullable=0)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(Kind.STRING)
    assignment: Assignment = inline(Assignment)


@struct
class DescribedShareGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=0)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[DescribedShareMember] = array(DescribedShareMember)
    authorized_operations: int = int32(default=-2147483648)


@message(key=77, versions=(1, 1), flexible=0)
class ShareGroupDescribeResponse(Message):
    throttle_time_ms: int = int32()
    groups: list[DescribedShareGroup] = array(DescribedShareGroup)
