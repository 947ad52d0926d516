"""What one site says of its logs and groups, asked side by side: a look takes few round trips, however much there is.

`in_part`: what does not answer is left out, and the rest is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from broker.client.cluster import Cluster
from broker.client.errors import ClientError, KafkaError
from broker.client.fanout import both, split_failures
from broker.client.groups import DescribedConsumerGroup, committed_offsets_of_groups, describe_groups, list_groups
from broker.client.model import CommittedOffset, Topic
from broker.client.offsets import list_each_offset, list_offsets
from broker.client.topics import list_topics
from broker.wire.vocabulary import EARLIEST, LATEST, TopicPartition


@dataclass(frozen=True, slots=True)
class LogsSeen:
    """Topics by name, and where their logs begin and end."""

    topics: Mapping[str, Topic] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupsSeen:
    """What a site says of groups, by name."""

    offsets: Mapping[str, Mapping[TopicPartition, CommittedOffset]] = field(default_factory=dict)
    described: Mapping[str, DescribedConsumerGroup | KafkaError] = field(default_factory=dict)


async def look_at_logs(cluster: Cluster | None, topics: Mapping[str, Topic], *, in_part: bool) -> LogsSeen:
    """The logs of these topics. Raises ClientError, where not `in_part`."""
    if cluster is None:
        return LogsSeen()
    partitions = [TopicPartition(name, part.partition) for name, topic in topics.items() for part in topic.partitions]
    ends, starts = await both(_at(cluster, partitions, LATEST, in_part), _at(cluster, partitions, EARLIEST, in_part))
    return LogsSeen(topics, ends, starts)


async def _at(
    cluster: Cluster, partitions: Iterable[TopicPartition], timestamp: int, in_part: bool
) -> dict[TopicPartition, int]:
    wanted = dict.fromkeys(sorted(partitions), timestamp)
    if in_part:
        found, _ = split_failures(await list_each_offset(cluster, wanted))
    else:
        found = await list_offsets(cluster, wanted)
    return {where: at.offset for where, at in found.items()}


async def topics_of(cluster: Cluster | None) -> dict[str, Topic]:
    """All topics by name; none of a site that is gone."""
    return await list_topics(cluster) if cluster else {}


async def group_names(cluster: Cluster | None, *, in_part: bool) -> set[str]:
    """The names of all groups; none of a site that does not list them, where it is there `in_part`."""
    if cluster is None:
        return set()
    try:
        return set(await list_groups(cluster))
    except ClientError:
        if not in_part:
            raise
        return set()


async def look_at_groups(cluster: Cluster | None, names: Iterable[str], *, in_part: bool) -> GroupsSeen:
    """These groups. Raises ClientError where not `in_part`: a plan that left one out would not say so."""
    wanted = sorted(names)
    if cluster is None:
        return GroupsSeen()
    answers, described = await both(
        committed_offsets_of_groups(cluster, wanted), _described(cluster, wanted, in_part=in_part)
    )
    offsets: dict[str, Mapping[TopicPartition, CommittedOffset]] = {}
    for name, found in answers.items():
        if not isinstance(found, ClientError):
            offsets[name] = found
        elif not in_part:
            raise found
    return GroupsSeen(offsets, described)


async def _described(
    cluster: Cluster, names: list[str], *, in_part: bool
) -> Mapping[str, DescribedConsumerGroup | KafkaError]:
    try:
        return await describe_groups(cluster, names)
    except ClientError:
        if not in_part:
            raise
        return {}
