"""ElectLeaders (API 43): without partitions it is about all (KIP-183); v1 also unclean elections (KIP-460)."""

from __future__ import annotations

from broker.wire.schema import Kind, Message, Struct, array, int8, int16, int32, message, string, struct


@struct
class ElectLeadersTopicPartitions(Struct):
    topic: str = string()
    partitions: list[int] = array(Kind.INT32)


@message(key=43, versions=(0, 2), flexible=2)
class ElectLeadersRequest(Message):
    election_type: int = int8(since=1)
    topic_partitions: list[ElectLeadersTopicPartitions] | None = array(ElectLeadersTopicPartitions, nullable=0)
    timeout_ms: int = int32(default=60000)


@struct
class ElectLeadersPartitionResult(Struct):
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=0)


@struct
class ReplicaElectionResult(Struct):
    topic: str = string()
    partition_result: list[ElectLeadersPartitionResult] = array(ElectLeadersPartitionResult)


@message(key=43, versions=(0, 2), flexible=2)
class ElectLeadersResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16(since=1)
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
