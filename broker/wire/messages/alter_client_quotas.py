"""AlterClientQuotas (API 49)."""

from __future__ import annotations

from broker.wire.messages.describe_client_quotas import EntityData
from broker.wire.schema import Message, Struct, array, boolean, float64, int16, int32, message, string, struct


@struct
class OpData(Struct):
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


@struct
class QuotaAlteration(Struct):
    """Kafka's EntryData."""

    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


@message(key=49, versions=(0, 1), flexible=1)
class AlterClientQuotasRequest(Message):
    entries: list[QuotaAlteration] = array(QuotaAlteration)
    validate_only: bool = boolean()


@struct
class AlteredQuota(Struct):
    """Kafka's EntryData of the response."""

    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    entity: list[EntityData] = array(EntityData)


@message(key=49, versions=(0, 1), flexible=1)
class AlterClientQuotasResponse(Message):
    throttle_time_ms: int = int32()
    entries: list[AlteredQuota] = array(AlteredQuota)
