"""CreatePartitions (API 37): the count is the new total."""

from __future__ import annotations

from broker.wire.schema import Kind, Message, Struct, array, boolean, int16, int32, message, string, struct


@struct
class CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = array(Kind.INT32)


@struct
class CreatePartitionsTopic(Struct):
    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, nullable=0)


@message(key=37, versions=(0, 3), flexible=2)
class CreatePartitionsRequest(Message):
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


@struct
class CreatePartitionsTopicResult(Struct):
    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=0)


@message(key=37, versions=(0, 3), flexible=2)
class CreatePartitionsResponse(Message):
    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
