"""OffsetDelete (API 47, KIP-496)."""

from __future__ import annotations

from broker.wire.schema import Message, Struct, array, int16, int32, message, string, struct


@struct
class OffsetDeleteRequestPartition(Struct):
    partition_index: int = int32()


@struct
class OffsetDeleteRequestTopic(Struct):
    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


@message(key=47, versions=(0, 0))
class OffsetDeleteRequest(Message):
    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


@struct
class OffsetDeleteResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()


@struct
class OffsetDeleteResponseTopic(Struct):
    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


@message(key=47, versions=(0, 0))
class OffsetDeleteResponse(Message):
    error_code: int = int16()
    throttle_time_ms: int = int32()
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
