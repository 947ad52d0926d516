"""DescribeTopicPartitions (API 75, KIP-966): Metadata's topics, a page at a time."""

from __future__ import annotations

import uuid as uuids

from broker.wire.schema import (
    Kind,
    Message,
    Struct,
    array,
    boolean,
    int16,
    int32,
    message,
    nullable,
    string,
    struct,
    uuid,
)


@struct
class TopicRequest(Struct):
    name: str = string()


@struct
class Cursor(Struct):
    topic_name: str = string()
    partition_index: int = int32()


@message(key=75, versions=(0, 0), flexible=0)
class DescribeTopicPartitionsRequest(Message):
    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = nullable(Cursor)


@struct
class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1)
    replica_nodes: list[int] = array(Kind.INT32)
    isr_nodes: list[int] = array(Kind.INT32)
    eligible_leader_replicas: list[int] | None = array(Kind.INT32, default=None, nullable=0)
    last_known_elr: list[int] | None = array(Kind.INT32, default=None, nullable=0)
    offline_replicas: list[int] = array(Kind.INT32)


@struct
class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: int = int16()
    name: str | None = string(nullable=0)
    topic_id: uuids.UUID = uuid()
    is_internal: bool = boolean()
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(DescribeTopicPartitionsResponsePartition)
    topic_authorized_operations: int = int32(default=-2147483648)


@message(key=75, versions=(0, 0), flexible=0)
class DescribeTopicPartitionsResponse(Message):
    throttle_time_ms: int = int32()
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = nullable(Cursor)
