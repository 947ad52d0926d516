"""Fetch (API 1), from v4 on.

v5 log start offset; v7 sessions (KIP-227); v9 current leader epoch (KIP-320); v11 rack and preferred replica
(KIP-392); v12 flexible, last fetched epoch and diverging epoch (KIP-595); v13 topic ids in place of names (KIP-516);
v15 the follower's state (KIP-903); v16 addresses of leaders (KIP-951); v17 the follower's directory (KIP-853).
"""

from __future__ import annotations

import uuid as uuids

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
    uuid,
)


@struct
class FetchPartition(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32(default=-1, since=9)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32(default=-1, since=12)
    log_start_offset: int = int64(default=-1, since=5)
    partition_max_bytes: int = int32()
    replica_directory_id: uuids.UUID = uuid(since=17, tag=0)


@struct
class FetchTopic(Struct):
    """By name until v12, by id from v13 on."""

    topic: str = string(until=12)
    partitions: list[FetchPartition] = array(FetchPartition)
    topic_id: uuids.UUID = uuid(since=13, before="partitions")


@struct
class ForgottenTopic(Struct):
    topic: str = string(since=7, until=12)
    partitions: list[int] = array(Kind.INT32, since=7)
    topic_id: uuids.UUID = uuid(since=13, before="partitions")


@struct
class ReplicaState(Struct):
    replica_id: int = int32(default=-1)
    replica_epoch: int = int64(default=-1)


@message(key=1, versions=(4, 17), flexible=12)
class FetchRequest(Message):
    cluster_id: str | None = string(default=None, since=12, nullable=12, tag=0)
    replica_id: int = int32(default=-1, until=14)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2147483647)
    isolation_level: int = int8()
    session_id: int = int32(since=7)
    session_epoch: int = int32(default=-1, since=7)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, since=7)
    rack_id: str = string(since=11)
    replica_state: ReplicaState | None = nested(ReplicaState, since=15, tag=1, before="max_wait_ms")


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
    topic: str = string(until=12)
    partitions: list[PartitionData] = array(PartitionData)
    topic_id: uuids.UUID = uuid(since=13, before="partitions")


@struct
class NodeEndpoint(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(default=None, nullable=0)


@message(key=1, versions=(4, 17), flexible=12)
class FetchResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16(since=7)
    session_id: int = int32(since=7)
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=16, tag=0)
