"""DescribeLogDirs (API 35, KIP-113)."""

from __future__ import annotations

from broker.wire.messages.own_fields import OWN_TAG
from broker.wire.schema import (
    Kind,
    Message,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
)


@struct
class DescribableLogDirTopic(Struct):
    topic: str = string()
    partitions: list[int] = array(Kind.INT32)


@message(key=35, versions=(1, 4), flexible=2)
class DescribeLogDirsRequest(Message):
    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable=0)


@struct
class DescribeLogDirsPartition(Struct):
    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


@struct
class DescribeLogDirsTopic(Struct):
    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


@struct
class StrayFolder(Struct):
    """What a broker keeps of a partition that the metadata does not have: an answer of Kafka's does not name these."""

    topic: str = string()
    partition: int = int32()
    folder: str = string()
    size: int = int64()


@struct
class DescribeLogDirsResult(Struct):
    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64(default=-1, since=4)
    usable_bytes: int = int64(default=-1, since=4)
    strays: list[StrayFolder] = array(StrayFolder, since=2, tag=OWN_TAG)


@message(key=35, versions=(1, 4), flexible=2)
class DescribeLogDirsResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16(since=3)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
