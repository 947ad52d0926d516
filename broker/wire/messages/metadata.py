"""Metadata (API 3).

Topics null asks for all topics, an empty list for none; in v0 an empty list asks for all. v4 auto-creation
flag; v5 offline replicas; v7 leader epochs; v8 authorised operations; v9 flexible; v10 topic ids (KIP-516),
v12 lookup by id.
"""

from __future__ import annotations

import uuid as uuids

from broker.wire.schema import (
    Kind,
    Message,
    Struct,
    array,
    boolean,
    int16,
    int32,
    message,
    string,
    struct,
    uuid,
)


@struct
class MetadataRequestTopic(Struct):
    topic_id: uuids.UUID = uuid(since=10)
    name: str | None = string(nullable=10)


@message(key=3, versions=(0, 12), flexible=9)
class MetadataRequest(Message):
    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable=1)
    allow_auto_topic_creation: bool = boolean(default=True, since=4)
    include_cluster_authorized_operations: bool = boolean(since=8, until=10)
    include_topic_authorized_operations: bool = boolean(since=8)


@struct
class MetadataResponseBroker(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(default=None, since=1, nullable=1)


@struct
class MetadataResponsePartition(Struct):
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1, since=7)
    replica_nodes: list[int] = array(Kind.INT32)
    isr_nodes: list[int] = array(Kind.INT32)
    offline_replicas: list[int] = array(Kind.INT32, since=5)


@struct
class MetadataResponseTopic(Struct):
    error_code: int = int16()
    name: str | None = string(nullable=12)
    topic_id: uuids.UUID = uuid(since=10)
    is_internal: bool = boolean(since=1)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32(default=-2147483648, since=8)


@message(key=3, versions=(0, 12), flexible=9)
class MetadataResponse(Message):
    throttle_time_ms: int = int32(since=3)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string(default=None, since=2, nullable=2)
    controller_id: int = int32(default=-1, since=1)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32(default=-2147483648, since=8, until=10)
