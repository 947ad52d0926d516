"""InitProducerId (API 22): v3 renews the epoch of a producer that gives its id and epoch (KIP-360)."""

from __future__ import annotations

from broker.wire.schema import Message, int16, int32, int64, message, string


@message(key=22, versions=(0, 5), flexible=2)
class InitProducerIdRequest(Message):
    transactional_id: str | None = string(nullable=0)
    transaction_timeout_ms: int = int32()
    producer_id: int = int64(default=-1, since=3)
    producer_epoch: int = int16(default=-1, since=3)


@message(key=22, versions=(0, 5), flexible=2)
class InitProducerIdResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
