"""DescribeProducers (API 61, KIP-664)."""

from __future__ import annotations

from broker.wire.schema import Kind, Message, Struct, array, int16, int32, int64, message, string, struct


@struct
class TopicRequest(Struct):
    name: str = string()
    partition_indexes: list[int] = array(Kind.INT32)


@message(key=61, versions=(0, 0), flexible=0)
class DescribeProducersRequest(Message):
    topics: list[TopicRequest] = array(TopicRequest)


@struct
class ProducerState(Struct):
    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


@struct
class PartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=0)
    active_producers: list[ProducerState] = array(ProducerState)


@struct
class TopicResponse(Struct):
    name: str = string()
    partitions: list[PartitionResponse] = array(PartitionResponse)


@message(key=61, versions=(0, 0), flexible=0)
class DescribeProducersResponse(Message):
    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)
