"""UpdateMetadata (API 6), as of Kafka 3.9: what a broker tells clients of the cluster.

v7 topic ids (KIP-516); v8 whether these are all topics (KIP-866). Beyond Kafka: `configs`, `broker_epoch` of each
broker, and `unreadable_topics`.
"""

from __future__ import annotations

import uuid as uuids

from broker.wire.messages.own_fields import OWN_TAG, TopicConfigs
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
    nested,
    string,
    struct,
    uuid,
)


@struct
class UpdateMetadataPartitionState(Struct):
    partition_index: int = int32()
    controller_epoch: int = int32()
    leader: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(Kind.INT32)
    zk_version: int = int32()
    replicas: list[int] = array(Kind.INT32)
    offline_replicas: list[int] = array(Kind.INT32)


@struct
class UpdateMetadataTopicState(Struct):
    topic_name: str = string()
    topic_id: uuids.UUID = uuid()
    partition_states: list[UpdateMetadataPartitionState] = array(UpdateMetadataPartitionState)
    configs: TopicConfigs | None = nested(TopicConfigs, tag=OWN_TAG)


@struct
class UpdateMetadataEndpoint(Struct):
    port: int = int32()
    host: str = string()
    listener: str = string()
    security_protocol: int = int16()


@struct
class UpdateMetadataBroker(Struct):
    id: int = int32()
    endpoints: list[UpdateMetadataEndpoint] = array(UpdateMetadataEndpoint)
    rack: str | None = string(default=None, nullable=0)
    broker_epoch: int = int64(default=-1, tag=OWN_TAG)


@message(key=6, versions=(8, 8), flexible=6)
class UpdateMetadataRequest(Message):
    controller_id: int = int32()
    is_kraft_controller: bool = boolean()
    type: int = int8(tag=0)
    controller_epoch: int = int32()
    broker_epoch: int = int64(default=-1)
    topic_states: list[UpdateMetadataTopicState] = array(UpdateMetadataTopicState)
    live_brokers: list[UpdateMetadataBroker] = array(UpdateMetadataBroker)
    unreadable_topics: list[str] = array(Kind.STRING, tag=OWN_TAG)


@message(key=6, versions=(8, 8), flexible=6)
class UpdateMetadataResponse(Message):
    error_code: int = int16()
