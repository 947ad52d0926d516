"""OffsetForLeaderEpoch (API 23): where a leader epoch ended (KIP-101, KIP-320)."""

from __future__ import annotations

from broker.wire.schema import Message, Struct, array, int16, int32, int64, message, string, struct


@struct
class OffsetForLeaderPartition(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32(default=-1)
    leader_epoch: int = int32()


@struct
class OffsetForLeaderTopic(Struct):
    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


@message(key=23, versions=(2, 4), flexible=4)
class OffsetForLeaderEpochRequest(Message):
    replica_id: int = int32(default=-2, since=3)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


@struct
class EpochEndOffset(Struct):
    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


@struct
class OffsetForLeaderTopicResult(Struct):
    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


@message(key=23, versions=(2, 4), flexible=4)
class OffsetForLeaderEpochResponse(Message):
    throttle_time_ms: int = int32()
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
