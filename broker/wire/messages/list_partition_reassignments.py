"""ListPartitionReassignments (API 46, KIP-455): without topics it is about all."""

from __future__ import annotations

from broker.wire.schema import Kind, Message, Struct, array, int16, int32, message, string, struct


@struct
class ListPartitionReassignmentsTopics(Struct):
    name: str = string()
    partition_indexes: list[int] = array(Kind.INT32)


@message(key=46, versions=(0, 0), flexible=0)
class ListPartitionReassignmentsRequest(Message):
    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, default=None, nullable=0
    )


@struct
class OngoingPartitionReassignment(Struct):
    partition_index: int = int32()
    replicas: list[int] = array(Kind.INT32)
    adding_replicas: list[int] = array(Kind.INT32)
    removing_replicas: list[int] = array(Kind.INT32)


@struct
class OngoingTopicReassignment(Struct):
    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


@message(key=46, versions=(0, 0), flexible=0)
class ListPartitionReassignmentsResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=0)
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
