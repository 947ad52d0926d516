"""ConsumerGroupHeartbeat (API 68, KIP-848): joins, stays, leaves, and carries the assignment both ways.

v1 a server-side regular expression; the client makes its own member id.
"""

from __future__ import annotations

import uuid as uuids

from broker.wire.schema import Kind, Message, Struct, array, int16, int32, message, nullable, string, struct, uuid


@struct
class TopicPartitions(Struct):
    topic_id: uuids.UUID = uuid()
    partitions: list[int] = array(Kind.INT32)


@message(key=68, versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatRequest(Message):
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(default=None, nullable=0)
    rack_id: str | None = string(default=None, nullable=0)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(Kind.STRING, default=None, nullable=0)
    subscribed_topic_regex: str | None = string(default=None, since=1, nullable=1)
    server_assignor: str | None = string(default=None, nullable=0)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, default=None, nullable=0)


@struct
class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@message(key=68, versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=0)
    member_id: str | None = string(default=None, nullable=0)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = nullable(Assignment)
