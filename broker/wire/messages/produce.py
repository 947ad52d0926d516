"""Produce (API 0), from v3 on, the first with record batches of magic 2.

v7 zstd allowed (KIP-110); v8 errors per record (KIP-467); v9 flexible; v10 leader hints in tags (KIP-951);
v12 is v11 for clients of transactions v2 (KIP-890); v13 topic ids in place of names (KIP-516).
"""

from __future__ import annotations

import uuid as uuids

from broker.wire.buffers import Records
from broker.wire.schema import (
    Message,
    Struct,
    array,
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
class PartitionProduceData(Struct):
    index: int = int32()
    records: Records | None = records()


@struct
class TopicProduceData(Struct):
    """By name until v12, by id from v13 on."""

    name: str = string(until=12)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)
    topic_id: uuids.UUID = uuid(since=13, before="partition_data")


@message(key=0, versions=(3, 13), flexible=9)
class ProduceRequest(Message):
    transactional_id: str | None = string(default=None, nullable=0)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


@struct
class BatchIndexAndErrorMessage(Struct):
    batch_index: int = int32(since=8)
    batch_index_error_message: str | None = string(default=None, since=8, nullable=8)


@struct
class LeaderIdAndEpoch(Struct):
    leader_id: int = int32(default=-1, since=10)
    leader_epoch: int = int32(default=-1, since=10)


@struct
class PartitionProduceResponse(Struct):
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(default=-1)
    log_start_offset: int = int64(default=-1, since=5)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, since=8)
    error_message: str | None = string(default=None, since=8, nullable=8)
    current_leader: LeaderIdAndEpoch | None = nested(LeaderIdAndEpoch, since=10, tag=0)


@struct
class TopicProduceResponse(Struct):
    name: str = string(until=12)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)
    topic_id: uuids.UUID = uuid(since=13, before="partition_responses")


@struct
class NodeEndpoint(Struct):
    node_id: int = int32(since=10)
    host: str = string(since=10)
    port: int = int32(since=10)
    rack: str | None = string(default=None, since=10, nullable=10)


@message(key=0, versions=(3, 13), flexible=9)
class ProduceResponse(Message):
    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32()
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=10, tag=0)
