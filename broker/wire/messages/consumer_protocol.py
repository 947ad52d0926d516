"""What the members of a consumer group say to each other through JoinGroup and SyncGroup.

On the wire an int16 version stands before the message; a reader of an unknown newer version reads it as the
newest it knows (fields are only ever appended).
"""

from __future__ import annotations

from broker.wire.schema import Kind, Message, Struct, array, bytestring, int32, message, string, struct


@struct
class TopicPartition(Struct):
    topic: str = string(since=1)
    partitions: list[int] = array(Kind.INT32, since=1)


@message(versions=(0, 3))
class ConsumerProtocolSubscription(Message):
    topics: list[str] = array(Kind.STRING)
    user_data: bytes | None = bytestring(default=None, nullable=0)
    owned_partitions: list[TopicPartition] = array(TopicPartition, since=1)
    generation_id: int = int32(default=-1, since=2)
    rack_id: str | None = string(default=None, since=3, nullable=3)


@struct
class TopicPartitionAssignment(Struct):
    topic: str = string()
    partitions: list[int] = array(Kind.INT32)


@message(versions=(0, 3))
class ConsumerProtocolAssignment(Message):
    assigned_partitions: list[TopicPartitionAssignment] = array(TopicPartitionAssignment)
    user_data: bytes | None = bytestring(default=None, nullable=0)
