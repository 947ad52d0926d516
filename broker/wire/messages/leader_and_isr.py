"""LeaderAndIsr (API 4), as of Kafka 3.9: which partitions a broker leads and follows.

v5 topic ids, and whether these are all (KIP-516); v6 the leader's recovery state (KIP-704); v7 KRaft's controller
(KIP-866). Beyond Kafka: `isr_epochs`, `configs`, `unreadable_topics`, `error_message` and `log`.
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
class IsrEpoch(Struct):
    broker_id: int = int32()
    broker_epoch: int = int64()


@struct
class LeaderAndIsrPartitionState(Struct):
    partition_index: int = int32()
    controller_epoch: int = int32()
    leader: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(Kind.INT32)
    partition_epoch: int = int32()
    replicas: list[int] = array(Kind.INT32)
    adding_replicas: list[int] = array(Kind.INT32)
    removing_replicas: list[int] = array(Kind.INT32)
    is_new: bool = boolean()
    leader_recovery_state: int = int8()
    isr_epochs: list[IsrEpoch] = array(IsrEpoch, tag=OWN_TAG)


@struct
class LeaderAndIsrTopicState(Struct):
    topic_name: str = string()
    topic_id: uuids.UUID = uuid()
    partition_states: list[LeaderAndIsrPartitionState] = array(LeaderAndIsrPartitionState)
    configs: TopicConfigs | None = nested(TopicConfigs, tag=OWN_TAG)


@struct
class LeaderAndIsrLiveLeader(Struct):
    broker_id: int = int32()
    host_name: str = string()
    port: int = int32()


@message(key=4, versions=(7, 7), flexible=4)
class LeaderAndIsrRequest(Message):
    controller_id: int = int32()
    is_kraft_controller: bool = boolean()
    controller_epoch: int = int32()
    broker_epoch: int = int64(default=-1)
    type: int = int8()
    topic_states: list[LeaderAndIsrTopicState] = array(LeaderAndIsrTopicState)
    live_leaders: list[LeaderAndIsrLiveLeader] = array(LeaderAndIsrLiveLeader)
    unreadable_topics: list[str] = array(Kind.STRING, tag=OWN_TAG)


@struct
class LogEpoch(Struct):
    leader_epoch: int = int32()
    start_offset: int = int64()


@struct
class LeaderAndIsrLog(Struct):
    leader_epoch: int = int32()
    epochs: list[LogEpoch] = array(LogEpoch)
    end_offset: int = int64()
    high_watermark: int = int64()


@struct
class LeaderAndIsrPartitionError(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    log: LeaderAndIsrLog | None = nested(LeaderAndIsrLog, tag=OWN_TAG)


@struct
class LeaderAndIsrTopicError(Struct):
    topic_id: uuids.UUID = uuid()
    partition_errors: list[LeaderAndIsrPartitionError] = array(LeaderAndIsrPartitionError)


@message(key=4, versions=(7, 7), flexible=4)
class LeaderAndIsrResponse(Message):
    error_code: int = int16()
    topics: list[LeaderAndIsrTopicError] = array(LeaderAndIsrTopicError)
    error_message: str = string(tag=OWN_TAG)
