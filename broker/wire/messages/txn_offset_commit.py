"""TxnOffsetCommit (API 28): v3 carries the member and generation (KIP-447)."""

from __future__ import annotations

from broker.wire.schema import Message, Struct, array, int16, int32, int64, message, string, struct


@struct
class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(default=-1, since=2)
    committed_metadata: str | None = string(nullable=0)


@struct
class TxnOffsetCommitRequestTopic(Struct):
    name: str = string()
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


@message(key=28, versions=(0, 4), flexible=3)
class TxnOffsetCommitRequest(Message):
    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32(default=-1, since=3)
    member_id: str = string(since=3)
    group_instance_id: str | None = string(default=None, since=3, nullable=3)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


@struct
class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()


@struct
class TxnOffsetCommitResponseTopic(Struct):
    name: str = string()
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


@message(key=28, versions=(0, 4), flexible=3)
class TxnOffsetCommitResponse(Message):
    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)
