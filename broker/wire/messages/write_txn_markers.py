"""WriteTxnMarkers (API 27): the coordinator's order to write commit or abort markers."""

from __future__ import annotations

from broker.wire.schema import (
    Kind,
    Message,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
)


@struct
class WritableTxnMarkerTopic(Struct):
    name: str = string()
    partition_indexes: list[int] = array(Kind.INT32)


@struct
class WritableTxnMarker(Struct):
    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8(since=2)


@message(key=27, versions=(1, 2), flexible=1)
class WriteTxnMarkersRequest(Message):
    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


@struct
class WritableTxnMarkerPartitionResult(Struct):
    partition_index: int = int32()
    error_code: int = int16()


@struct
class WritableTxnMarkerTopicResult(Struct):
    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


@struct
class WritableTxnMarkerResult(Struct):
    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


@message(key=27, versions=(1, 2), flexible=1)
class WriteTxnMarkersResponse(Message):
    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
