"""Fetch (API 1), v4-v12: the versions that name topics.

v5 log start offset; v7 sessions (KIP-227); v9 current leader epoch (KIP-320); v11 rack and preferred replica
(KIP-392); v12 flexible, last fetched epoch and diverging epoch (KIP-595).
"""

from __future__ import annotations

from broker.wire.buffers import Records
from broker.wire.schema import (
    Kind,
    Message,
    Struct,
    array,
    int8,
    int16,
    int32,
    int64,
    message,
    nested,
    records,
    string,
    struct,
)


@struct
class FetchPartition(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32(default=-1, since=9)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32(default=-1, since=12)
    log_start_offset: int = int64(default=-1, since=5)
    partition_max_bytes: int = int32()


@struct
class FetchTopic(Struct):
    topic: str = string()
    partitions: list[FetchPartition] = array(FetchPartition)


@struct
class ForgottenTopic(Struct):
    topic: str = string(since=7)
    partitions: list[int] = array(Kind.INT32, since=7)


@message(key=1, versions=(4, 12), flexible=12)
class FetchRequest(Message):
    cluster_id: str | None = string(default=None, since=12, nullable=12, tag=0)
    replica_id: int = int32(default=-1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2147483647)
    isolation_level: int = int8()
    session_id: int = int32(since=7)
    session_epoch: int = int32(default=-1, since=7)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, since=7)
    rack_id: str = string(since=11)


@struct
class EpochEndOffset(Struct):
    epoch: int = int32(default=-1, since=12)
    end_offset: int = int64(default=-1, since=12)


@struct
class LeaderIdAndEpoch(Struct):
    leader_id: int = int32(default=-1, since=12)
    leader_epoch: int = int32(default=-1, since=12)


@struct
class SnapshotId(Struct):
    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


@struct
class AbortedTransaction(Struct):
    producer_id: int = int64()
    first_offset: int = int64()


@struct
class PartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(default=-1)
    log_start_offset: int = int64(default=-1, since=5)
    diverging_epoch: EpochEndOffset | None = nested(EpochEndOffset, since=12, tag=0)
    current_leader: LeaderIdAndEpoch | None = nested(LeaderIdAndEpoch, since=12, tag=1)
    snapshot_id: SnapshotId | None = nested(SnapshotId, since=12, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array(AbortedTransaction, nullable=0)
    preferred_read_replica: int = int32(default=-1, since=11)
    records: Records | None = records()


@struct
class FetchableTopicResponse(Struct):
    topic: str = string()
    partitions: list[PartitionData] = array(PartitionData)


@message(key=1, versions=(4, 12), flexible=12)
class FetchResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16(since=7)
    session_id: int = int32(since=7)
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
