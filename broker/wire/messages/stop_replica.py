"""StopReplica (API 5), as of Kafka 3.9: which partitions a broker has no more.

v3 leader epochs, by topic (KIP-570); v4 KRaft's controller (KIP-866). Beyond Kafka: `topic_id`.
"""

from __future__ import annotations

import uuid as uuids

from broker.wire.messages.own_fields import OWN_TAG
from broker.wire.schema import Message, Struct, array, boolean, int16, int32, int64, message, string, struct, uuid


@struct
class StopReplicaPartitionState(Struct):
    partition_index: int = int32()
    leader_epoch: int = int32(default=-1)
    delete_partition: bool = boolean()


@struct
class StopReplicaTopicState(Struct):
    topic_name: str = string()
    partition_states: list[StopReplicaPartitionState] = array(StopReplicaPartitionState)
    topic_id: uuids.UUID = uuid(tag=OWN_TAG)


@message(key=5, versions=(4, 4), flexible=2)
class StopReplicaRequest(Message):
    controller_id: int = int32()
    is_kraft_controller: bool = boolean()
    controller_epoch: int = int32()
    broker_epoch: int = int64(default=-1)
    topic_states: list[StopReplicaTopicState] = array(StopReplicaTopicState)


@struct
class StopReplicaPartitionError(Struct):
    topic_name: str = string()
    partition_index: int = int32()
    error_code: int = int16()


@message(key=5, versions=(4, 4), flexible=2)
class StopReplicaResponse(Message):
    error_code: int = int16()
    partition_errors: list[StopReplicaPartitionError] = array(StopReplicaPartitionError)
