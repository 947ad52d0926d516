"""Topics of a site as values for people: a list, one in full, what its deletion would take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from broker.client.cluster import Cluster
from broker.client.configs import describe_topic_configs
from broker.client.errors import KafkaError
from broker.client.model import Topic
from broker.client.offsets import log_end_offsets, log_start_offsets
from broker.client.topics import describe_topics, list_topics
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import NO_LEADER, TopicPartition


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """A topic in a list."""

    topic: str
    partitions: int
    replication_factor: int
    is_internal: bool


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition with its offsets; they are None while it has no leader."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    log_start_offset: int | None
    log_end_offset: int | None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic; `configs` are those that were set on it."""

    topic: str
    topic_id: str | None
    replication_factor: int
    configs: Mapping[str, str | None]
    partitions: tuple[PartitionDescription, ...] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True)
class TopicDeletion:
    """What goes with a topic: its count of partitions, and of the offsets from their log starts to their log ends."""

    topic: str
    partitions: int
    offsets: int


async def summarise_topics(cluster: Cluster, *, exclude_internal: bool) -> list[TopicSummary]:
    """All topics, by name; `exclude_internal` leaves out internal ones and farshore's own. Raises ClientError."""
    return [
        TopicSummary(name, len(topic.partitions), topic.replication_factor, topic.is_internal)
        for name, topic in sorted((await list_topics(cluster)).items())
        if not exclude_internal or not (topic.is_internal or name.startswith("__"))
    ]


async def describe_topic(cluster: Cluster, name: str) -> TopicDescription:
    """One topic in full. Raises KafkaError (UNKNOWN_TOPIC_OR_PARTITION where it is not there), ClientError."""
    topic = (await _existing(cluster, [name]))[name]
    configs = (await describe_topic_configs(cluster, [name]))[name]
    if isinstance(configs, KafkaError):
        raise configs
    offsets = await _offsets(cluster, topic)
    partitions = tuple(
        PartitionDescription(p.partition, p.leader_id, p.replicas, p.isr, *offsets.get(p.partition, (None, None)))
        for p in topic.partitions
    )
    own = {entry.name: entry.value for entry in configs.values() if entry.is_topic_own}
    topic_id = None if topic.topic_id is None else str(topic.topic_id)
    return TopicDescription(name, topic_id, topic.replication_factor, own, partitions)


async def plan_topic_deletion(cluster: Cluster, names: Sequence[str]) -> list[TopicDeletion]:
    """What deleting these topics would take. Raises KafkaError for one that is not there, ClientError."""
    plan = []
    for name, topic in (await _existing(cluster, names)).items():
        offsets = (await _offsets(cluster, topic)).values()
        plan.append(TopicDeletion(name, len(topic.partitions), sum(end - start for start, end in offsets)))
    return plan


async def _existing(cluster: Cluster, names: Sequence[str]) -> dict[str, Topic]:
    """These topics; raises KafkaError for one that is not there."""
    found = await describe_topics(cluster, names)
    for name in names:
        if name not in found:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} at {cluster.site.name}")
    return found


async def _offsets(cluster: Cluster, topic: Topic) -> dict[int, tuple[int, int]]:
    """Partition -> (log start, log end), for the partitions that have a leader."""
    led = [TopicPartition(topic.name, p.partition) for p in topic.partitions if p.leader_id != NO_LEADER]
    starts, ends = await log_start_offsets(cluster, led), await log_end_offsets(cluster, led)
    return {where.partition: (starts[where], ends[where]) for where in led}
