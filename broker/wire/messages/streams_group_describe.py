"""StreamsGroupDescribe (API 89, KIP-1071), which clients of ours ask Kafka."""

from __future__ import annotations

from broker.wire.schema import (
    Kind,
    Message,
    Struct,
    array,
    boolean,
    inline,
    int16,
    int32,
    int64,
    message,
    nullable,
    string,
    struct,
    uint16,
)


@message(key=89, versions=(0, 0), flexible=0)
class StreamsGroupDescribeRequest(Message):
    group_ids: list[str] = array(Kind.STRING)
    include_authorized_operations: bool = boolean()


@struct
class KeyValue(Struct):
    key: str = string()
    value: str = string()


@struct
class TopicInfo(Struct):
    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[KeyValue] = array(KeyValue)


@struct
class Subtopology(Struct):
    subtopology_id: str = string()
    source_topics: list[str] = array(Kind.STRING)
    repartition_sink_topics: list[str] = array(Kind.STRING)
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)


@struct
class Topology(Struct):
    epoch: int = int32()
    subtopologies: list[Subtopology] | None = array(Subtopology, nullable=0)


@struct
class Endpoint(Struct):
    host: str = string()
    port: int = uint16()


@struct
class TaskOffset(Struct):
    subtopology_id: str = string()
    partition: int = int32()
    offset: int = int64()


@struct
class TaskIds(Struct):
    subtopology_id: str = string()
    partitions: list[int] = array(Kind.INT32)


@struct
class TaskAssignment(Struct):
    active_tasks: list[TaskIds] = array(TaskIds)
    standby_tasks: list[TaskIds] = array(TaskIds)
    warmup_tasks: list[TaskIds] = array(TaskIds)


@struct
class DescribedStreamsMember(Struct):
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(default=None, nullable=0)
    rack_id: str | None = string(default=None, nullable=0)
    client_id: str = string()
    client_host: str = string()
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: Endpoint | None = nullable(Endpoint)
    client_tags: list[KeyValue] = array(KeyValue)
    task_offsets: list[TaskOffset] = array(TaskOffset)
    task_end_offsets: list[TaskOffset] = array(TaskOffset)
    assignment: TaskAssignment = inline(TaskAssignment)
    target_assignment: TaskAssignment = inline(TaskAssignment)
    is_classic: bool = boolean()


@struct
class DescribedStreamsGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=0)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    topology: Topology | None = nullable(Topology)
    members: list[DescribedStreamsMember] = array(DescribedStreamsMember)
    authorized_operations: int = int32(default=-2147483648)


@message(key=89, versions=(0, 0), flexible=0)
class StreamsGroupDescribeResponse(Message):
    throttle_time_ms: int = int32()
    groups: list[DescribedStreamsGroup] = array(DescribedStreamsGroup)
