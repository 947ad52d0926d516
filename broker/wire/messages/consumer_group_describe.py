"""ConsumerGroupDescribe (API 69, KIP-848). v1 says of each member which protocol it uses."""

from __future__ import annotations

import uuid as uuids

from broker.wire.schema import (
    Kind,
    Message,
    Struct,
    array,
    boolean,
    inline,
    int8,
    int16,
    int32,
    message,
    string,
    struct,
    uuid,
)


@message(key=69, versions=(0, 1), flexible=0)
class ConsumerGroupDescribeRequest(Message):
    group_ids: list[str] = array(Kind.STRING)
    include_authorized_operations: bool = boolean()


@struct
class TopicPartitions(Struct):
    topic_id: uuids.UUID = uuid()
    topic_name: str = string()
    partitions: list[int] = array(Kind.INT32)


@struct
class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@struct
class DescribedMember(Struct):
    member_id: str = string()
    instance_id: str | None = string(default=None, nullable=0)
    rack_id: str | None = string(default=None, nullable=0)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(Kind.STRING)
    subscribed_topic_regex: str | None = string(default=None, nullable=0)
    assignment: Assignment = inline(Assignment)
    target_assignment: Assignment = inline(Assignment)
    member_type: int = int8(default=-1, since=1)


@struct
class DescribedConsumerGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=0)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[DescribedMember] = array(DescribedMember)
    authorized_operations: int = int32(default=-2147483648)


@message(key=69, versions=(0, 1), flexible=0)
class ConsumerGroupDescribeResponse(Message):
    throttle_time_ms: int = int32()
    groups: list[DescribedConsumerGroup] = array(DescribedConsumerGroup)
