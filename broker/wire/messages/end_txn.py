"""EndTxn (API 26), before transactions v2."""

from __future__ import annotations

from broker.wire.schema import Message, boolean, int16, int32, int64, message, string


@message(key=26, versions=(0, 4), flexible=3)
class EndTxnRequest(Message):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


@message(key=26, versions=(0, 4), flexible=3)
class EndTxnResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16()
