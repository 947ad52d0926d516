"""What the members of a consumer group say to each other through JoinGroup and SyncGroup.

On the wire an int16 version stands before the message: `codec.encode_prefixed` and `codec.decode_prefixed`.
"""

from __future__ import annotations

from broker.wire.schema import Kind, Message, Struct, array, bytestring, int32, message, string, struct


@struct
class TopicPartition(Struct):
    topic: str = string()
    partitions: list[int] = array(Kind.INT32)


@message(versions=(0, 3))
class ConsumerProtocolSubscription(Message):
    topics: list[str] = array(Kind.STRING)
    user_data: bytes | None = bytestring(default=None, nullable=0)
    owned_partitions: list[TopicPartition] = array(TopicPartition, since=1)
    generation_id: int = int32(default=-1, since=2)
    rack_id: str | None = string(default=None, since=3, nullable=3)


@message(versions=(0, 3))
class ConsumerProtocolAssignment(Message):
    assigned_partitions: list[TopicPartition] = array(TopicPartition)
    user_data: bytes | None = bytestring(default=None, nullable=0)
