"""ListOffsets (API 2).

Timestamp -1 asks for the latest offset, -2 the earliest, -3 (v7, KIP-734) the offset of the highest
timestamp, -4 (v8, KIP-405) the earliest on the broker's own disk, -5 (v9, KIP-1005) the latest in remote storage.
v2 isolation level; v4 leader epochs (KIP-320); v6 flexible.
"""

from __future__ import annotations

from broker.wire.schema import Message, Struct, array, int8, int16, int32, int64, message, string, struct


@struct
class ListOffsetsPartition(Struct):
    partition_index: int = int32()
    current_leader_epoch: int = int32(default=-1, since=4)
    timestamp: int = int64()


@struct
class ListOffsetsTopic(Struct):
    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


@message(key=2, versions=(1, 9), flexible=6)
class ListOffsetsRequest(Message):
    replica_id: int = int32()
    isolation_level: int = int8(since=2)
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)


@struct
class ListOffsetsPartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64(default=-1)
    offset: int = int64(default=-1)
    leader_epoch: int = int32(default=-1, since=4)


@struct
class ListOffsetsTopicResponse(Struct):
    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


@message(key=2, versions=(1, 9), flexible=6)
class ListOffsetsResponse(Message):
    throttle_time_ms: int = int32(since=2)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
