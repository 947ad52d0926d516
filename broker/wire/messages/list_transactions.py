"""ListTransactions (API 66, KIP-664). v1 a filter by how long they are open (KIP-994)."""

from __future__ import annotations

from broker.wire.schema import Kind, Message, Struct, array, int16, int32, int64, message, string, struct


@message(key=66, versions=(0, 1), flexible=0)
class ListTransactionsRequest(Message):
    state_filters: list[str] = array(Kind.STRING)
    producer_id_filters: list[int] = array(Kind.INT64)
    duration_filter: int = int64(default=-1, since=1)


@struct
class TransactionState(Struct):
    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


@message(key=66, versions=(0, 1), flexible=0)
class ListTransactionsResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(Kind.STRING)
    transaction_states: list[TransactionState] = array(TransactionState)
