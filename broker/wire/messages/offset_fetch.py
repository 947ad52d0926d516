"""OffsetFetch (API 9).

Topics null (v2) asks for all of the group's offsets. v7 require_stable (KIP-447); v8 many groups in one
request.
"""

from __future__ import annotations

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
class OffsetFetchRequestTopic(Struct):
    name: str = string(until=7)
    partition_indexes: list[int] = array(Kind.INT32, until=7)


@struct
class OffsetFetchRequestTopics(Struct):
    name: str = string(since=8)
    partition_indexes: list[int] = array(Kind.INT32, since=8)


@struct
class OffsetFetchRequestGroup(Struct):
    group_id: str = string(since=8)
    member_id: str | None = string(default=None, since=9, nullable=9)
    member_epoch: int = int32(default=-1, since=9)
    topics: list[OffsetFetchRequestTopics] | None = array(OffsetFetchRequestTopics, since=8, nullable=8)


@message(key=9, versions=(1, 9), flexible=6)
class OffsetFetchRequest(Message):
    group_id: str = string(until=7)
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, until=7, nullable=2)
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, since=8)
    require_stable: bool = boolean(since=7)


@struct
class OffsetFetchResponsePartition(Struct):
    partition_index: int = int32(until=7)
    committed_offset: int = int64(until=7)
    committed_leader_epoch: int = int32(default=-1, since=5, until=7)
    metadata: str | None = string(until=7, nullable=0)
    error_code: int = int16(until=7)


@struct
class OffsetFetchResponseTopic(Struct):
    name: str = string(until=7)
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, until=7)


@struct
class OffsetFetchResponsePartitions(Struct):
    partition_index: int = int32(since=8)
    committed_offset: int = int64(since=8)
    committed_leader_epoch: int = int32(default=-1, since=8)
    metadata: str | None = string(since=8, nullable=8)
    error_code: int = int16(since=8)


@struct
class OffsetFetchResponseTopics(Struct):
    name: str = string(since=8)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, since=8)


@struct
class OffsetFetchResponseGroup(Struct):
    group_id: str = string(since=8)
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, since=8)
    error_code: int = int16(since=8)


@message(key=9, versions=(1, 9), flexible=6)
class OffsetFetchResponse(Message):
    throttle_time_ms: int = int32(since=3)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, until=7)
    error_code: int = int16(since=2, until=7)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, since=8)
