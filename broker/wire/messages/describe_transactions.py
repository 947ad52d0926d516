"""DescribeTransactions (API 65, KIP-664)."""

from __future__ import annotations

from broker.wire.schema import Kind, Message, Struct, array, int16, int32, int64, message, string, struct


@message(key=65, versions=(0, 0), flexible=0)
class DescribeTransactionsRequest(Message):
    transactional_ids: list[str] = array(Kind.STRING)


@struct
class TopicData(Struct):
    topic: str = string()
    partitions: list[int] = array(Kind.INT32)


@struct
class TransactionState(Struct):
    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TopicData] = array(TopicData)


@message(key=65, versions=(0, 0), flexible=0)
class DescribeTransactionsResponse(Message):
    throttle_time_ms: int = int32()
    transaction_states: list[TransactionState] = array(TransactionState)
