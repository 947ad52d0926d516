"""ControlledShutdown (API 7), as of Kafka 3.9: a broker is about to stop, and asks that others lead what it leads."""

from __future__ import annotations

from broker.wire.schema import Message, Struct, array, int16, int32, int64, message, string, struct


@message(key=7, versions=(3, 3), flexible=3)
class ControlledShutdownRequest(Message):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


@struct
class RemainingPartition(Struct):
    topic_name: str = string()
    partition_index: int = int32()


@message(key=7, versions=(3, 3), flexible=3)
class ControlledShutdownResponse(Message):
    error_code: int = int16()
    remaining_partitions: list[RemainingPartition] = array(RemainingPartition)
