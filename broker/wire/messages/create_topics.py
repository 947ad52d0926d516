"""CreateTopics (API 19): v4 allows -1 for broker defaults (KIP-464), v5 returns the configs (KIP-525)."""

from __future__ import annotations

import uuid as uuids

from broker.wire.schema import (
    Kind,
    Message,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    message,
    string,
    struct,
    uuid,
)


@struct
class CreatableReplicaAssignment(Struct):
    partition_index: int = int32()
    broker_ids: list[int] = array(Kind.INT32)


@struct
class CreatableTopicConfig(Struct):
    name: str = string()
    value: str | None = string(nullable=0)


@struct
class CreatableTopic(Struct):
    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


@message(key=19, versions=(2, 7), flexible=5)
class CreateTopicsRequest(Message):
    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean()


@struct
class CreatableTopicConfigs(Struct):
    name: str = string(since=5)
    value: str | None = string(since=5, nullable=5)
    read_only: bool = boolean(since=5)
    config_source: int = int8(default=-1, since=5)
    is_sensitive: bool = boolean(since=5)


@struct
class CreatableTopicResult(Struct):
    name: str = string()
    topic_id: uuids.UUID = uuid(since=7)
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    topic_config_error_code: int = int16(since=5, tag=0)
    num_partitions: int = int32(default=-1, since=5)
    replication_factor: int = int16(default=-1, since=5)
    configs: list[CreatableTopicConfigs] | None = array(CreatableTopicConfigs, since=5, nullable=5)


@message(key=19, versions=(2, 7), flexible=5)
class CreateTopicsResponse(Message):
    throttle_time_ms: int = int32()
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
