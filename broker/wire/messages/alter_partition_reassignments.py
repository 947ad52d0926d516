"""AlterPartitionReassignments (API 45, KIP-455): without replicas a reassignment is cancelled."""

from __future__ import annotations

from broker.wire.schema import Kind, Message, Struct, array, int16, int32, message, string, struct


@struct
class ReassignablePartition(Struct):
    partition_index: int = int32()
    replicas: list[int] | None = array(Kind.INT32, default=None, nullable=0)


@struct
class ReassignableTopic(Struct):
    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


@message(key=45, versions=(0, 0), flexible=0)
class AlterPartitionReassignmentsRequest(Message):
    timeout_ms: int = int32(default=60000)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


@struct
class ReassignablePartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=0)


@struct
class ReassignableTopicResponse(Struct):
    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


@message(key=45, versions=(0, 0), flexible=0)
class AlterPartitionReassignmentsResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=0)
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
