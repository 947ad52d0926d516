"""OffsetCommit (API 8).

Generation -1 with an empty member id is a commit from outside the group. v6 leader epoch; v7 static members
(KIP-345); v8 flexible.
"""

from __future__ import annotations

from broker.wire.schema import Message, Struct, array, int16, int32, int64, message, string, struct


@struct
class OffsetCommitRequestPartition(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(default=-1, since=6)
    committed_metadata: str | None = string(nullable=0)


@struct
class OffsetCommitRequestTopic(Struct):
    name: str = string()
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


@message(key=8, versions=(2, 9), flexible=8)
class OffsetCommitRequest(Message):
    group_id: str = string()
    generation_id_or_member_epoch: int = int32(default=-1)
    member_id: str = string()
    group_instance_id: str | None = string(default=None, since=7, nullable=7)
    retention_time_ms: int = int64(default=-1, until=4)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


@struct
class OffsetCommitResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()


@struct
class OffsetCommitResponseTopic(Struct):
    name: str = string()
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


@message(key=8, versions=(2, 9), flexible=8)
class OffsetCommitResponse(Message):
    throttle_time_ms: int = int32(since=3)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
