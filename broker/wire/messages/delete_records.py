"""DeleteRecords (API 21): raises the log start offset; offset -1 means the high watermark."""

from __future__ import annotations

from broker.wire.schema import Message, Struct, array, int16, int32, int64, message, string, struct


@struct
class DeleteRecordsPartition(Struct):
    partition_index: int = int32()
    offset: int = int64()


@struct
class DeleteRecordsTopic(Struct):
    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


@message(key=21, versions=(0, 2), flexible=2)
class DeleteRecordsRequest(Message):
    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


@struct
class DeleteRecordsPartitionResult(Struct):
    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


@struct
class DeleteRecordsTopicResult(Struct):
    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


@message(key=21, versions=(0, 2), flexible=2)
class DeleteRecordsResponse(Message):
    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
