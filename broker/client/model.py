"""What a cluster says about itself, as values."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from broker.wire.errors import ErrorCode
from broker.wire.messages.metadata import MetadataResponse, MetadataResponseTopic
from broker.wire.schema import ZERO_UUID


@dataclass(frozen=True, slots=True)
class Node:
    """A broker, at the address it advertises."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition; `leader_id` is NO_LEADER while it has none."""

    partition: int
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic; `topic_id` is None where the cluster has no topic ids. It changes when the topic is recreated."""

    name: str
    topic_id: uuid.UUID | None
    is_internal: bool
    partitions: tuple[Partition, ...]

    @property
    def replication_factor(self) -> int:
        return min((len(partition.replicas) for partition in self.partitions), default=0)


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """One answer to Metadata. `topic_errors` has the topics that were asked for and cannot be described."""

    cluster_id: str
    controller_id: int
    nodes: Mapping[int, Node]
    topics: Mapping[str, Topic]
    topic_errors: Mapping[str, ErrorCode]


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """What ListOffsets found; offset -1 and timestamp -1 when there is no such record."""

    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A group's committed offset in one partition."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


def read_metadata(response: MetadataResponse) -> ClusterMetadata:
    """A Metadata response as values; partitions sorted by number."""
    topics = {}
    errors = {}
    for topic in response.topics:
        name = topic.name or ""
        if topic.error_code:
            errors[name] = ErrorCode.of(topic.error_code)
        else:
            topics[name] = _topic(name, topic)
    nodes = {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
    return ClusterMetadata(response.cluster_id or "", response.controller_id, nodes, topics, errors)


def _topic(name: str, topic: MetadataResponseTopic) -> Topic:
    partitions = tuple(
        Partition(
            partition.partition_index,
            partition.leader_id,
            partition.leader_epoch,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
        )
        for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
    )
    topic_id = None if topic.topic_id == ZERO_UUID else topic.topic_id
    return Topic(name, topic_id, topic.is_internal, partitions)
