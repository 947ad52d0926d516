"""AddPartitionsToTxn (API 24), the client's versions; v4 and later are between brokers."""

from __future__ import annotations

from broker.wire.schema import Kind, Message, Struct, array, int16, int32, int64, message, string, struct


@struct
class AddPartitionsToTxnTopic(Struct):
    name: str = string()
    partitions: list[int] = array(Kind.INT32)


@message(key=24, versions=(0, 3), flexible=3)
class AddPartitionsToTxnRequest(Message):
    v3_and_below_transactional_id: str = string()
    v3_and_below_producer_id: int = int64()
    v3_and_below_producer_epoch: int = int16()
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic)


@struct
class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int = int32()
    partition_error_code: int = int16()


@struct
class AddPartitionsToTxnTopicResult(Struct):
    name: str = string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(AddPartitionsToTxnPartitionResult)


@message(key=24, versions=(0, 3), flexible=3)
class AddPartitionsToTxnResponse(Message):
    throttle_time_ms: int = int32()
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult)
