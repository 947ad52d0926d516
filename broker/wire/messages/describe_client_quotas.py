"""DescribeClientQuotas (API 48)."""

from __future__ import annotations

from broker.wire.schema import Message, Struct, array, boolean, float64, int8, int16, int32, message, string, struct


@struct
class ComponentData(Struct):
    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable=0)


@message(key=48, versions=(0, 1), flexible=1)
class DescribeClientQuotasRequest(Message):
    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


@struct
class EntityData(Struct):
    entity_type: str = string()
    entity_name: str | None = string(nullable=0)


@struct
class ValueData(Struct):
    key: str = string()
    value: float = float64()


@struct
class EntryData(Struct):
    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


@message(key=48, versions=(0, 1), flexible=1)
class DescribeClientQuotasResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    entries: list[EntryData] | None = array(EntryData, nullable=0)
