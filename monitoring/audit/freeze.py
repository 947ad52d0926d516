"""Asking both sites, once, where everything stands; the answers are fixed for the rest of the audit.

The order matters while the mirror runs on: the link's state, then the target's log ends, then the map's proved end,
then the source's ends. Each later answer can only be further than what the earlier ones need, so records that arrive
in between never look like losses or extras.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from broker.client.cluster import Cluster
from broker.client.configs import describe_topic_configs
from broker.client.errors import KafkaError
from broker.client.model import Topic
from broker.client.offsets import log_end_offsets, log_start_offsets
from broker.client.topics import describe_topics, list_topics
from broker.wire.vocabulary import IsolationLevel, TopicPartition
from mirror.api import GapStatus, Link, OffsetMap, RunState, StateEntries, complete_link, load_link_state, read_entries
from monitoring.audit.model import FrozenLink, FrozenPartition, FrozenSite, Span, Step

TIMESTAMP_TYPE = "message.timestamp.type"
CLEANUP_POLICY = "cleanup.policy"
LOG_APPEND_TIME = "LogAppendTime"


@dataclass(frozen=True, slots=True)
class _Logs:
    """Both sites' log spans; a partition that does not exist at a site is left out there."""

    source: Mapping[TopicPartition, Span]
    target: Mapping[TopicPartition, Span]


async def freeze_link(link: Link, source: Cluster, target: Cluster, clock_ms: Callable[[], int]) -> FrozenLink:
    """Everything an audit of the link needs to know. Raises what the clusters raise (ClientError, StateDamaged)."""
    link = await complete_link(link, source, target)
    entries = await read_entries(link, target)
    topics = _selected(link, await list_topics(source))
    targets = await describe_topics(target, [link.target_topic(name) for name in topics])
    target_spans = await _spans(target, _partitions(targets), IsolationLevel.READ_UNCOMMITTED)
    offset_map = (await load_link_state(link, target)).map
    frozen_at_ms = clock_ms()
    source_spans = await _spans(source, _partitions(topics), IsolationLevel.READ_COMMITTED)
    source_configs = await _configs(source, sorted(topics))
    target_configs = await _configs(target, sorted(targets))
    partitions = [
        _partition(
            link,
            entries,
            offset_map,
            topics[where.topic],
            where,
            _Logs(source_spans, target_spans),
            (source_configs.get(where.topic, {}), target_configs.get(link.target_topic(where.topic), {})),
        )
        for where in sorted(source_spans)
    ]
    return FrozenLink(
        link.name,
        FrozenSite(link.source.name, link.source.bootstrap_servers, source.cluster_id),
        FrozenSite(link.target.name, link.target.bootstrap_servers, target.cluster_id),
        frozen_at_ms,
        tuple(partitions),
    )


def _selected(link: Link, topics: Mapping[str, Topic]) -> dict[str, Topic]:
    """What the link mirrors, without its canary: that one has its own verdict, and is written all the time."""
    return {
        name: topic for name, topic in sorted(topics.items()) if link.selects_topic(name) and name != link.canary_topic
    }


def _partitions(topics: Mapping[str, Topic]) -> list[TopicPartition]:
    return [TopicPartition(name, item.partition) for name, topic in topics.items() for item in topic.partitions]


async def _spans(
    cluster: Cluster, partitions: Sequence[TopicPartition], isolation: IsolationLevel
) -> dict[TopicPartition, Span]:
    starts = await log_start_offsets(cluster, partitions)
    ends = await log_end_offsets(cluster, partitions, isolation)
    return {where: Span(starts[where], max(starts[where], ends[where])) for where in partitions}


async def _configs(cluster: Cluster, topics: Sequence[str]) -> dict[str, dict[str, str]]:
    """Configs by topic and name. Raises KafkaError when one cannot be described."""
    found: dict[str, dict[str, str]] = {}
    for topic, entries in (await describe_topic_configs(cluster, topics)).items():
        if isinstance(entries, KafkaError):
            raise entries
        found[topic] = {name: entry.value for name, entry in entries.items() if entry.value is not None}
    return found


def _partition(
    link: Link,
    entries: StateEntries,
    offset_map: OffsetMap,
    topic: Topic,
    where: TopicPartition,
    logs: _Logs,
    configs: tuple[Mapping[str, str], Mapping[str, str]],
) -> FrozenPartition:
    target_topic = link.target_topic(where.topic)
    target = logs.target.get(TopicPartition(target_topic, where.partition))
    known_id = entries.topic_ids.get(where.topic)
    checkpoint = entries.checkpoints.get((where.topic, where.partition))
    mapped = offset_map.mirrored_end(where.topic, where.partition)
    mirrored_end = None
    if mapped is not None and target is not None:
        proved = None if checkpoint is None else (checkpoint.end.source_next, checkpoint.end.target_next)
        at_end = offset_map.to_source(where.topic, where.partition, target.end)
        mirrored_end = mirrored_up_to((mapped.source_next, mapped.target_next), proved, target.end, at_end)
    gaps = [
        Span(gap.source_from, gap.source_to)
        for gap in entries.gaps.values()
        if (gap.topic, gap.partition) == where and gap.status in (GapStatus.ACCEPTED, GapStatus.PASSED)
    ]
    return FrozenPartition(
        where.topic,
        where.partition,
        target_topic,
        logs.source[where],
        target,
        tuple(Step(*interval) for interval in offset_map.intervals(where.topic, where.partition)),
        mirrored_end,
        timestamps_comparable=all(config.get(TIMESTAMP_TYPE) != LOG_APPEND_TIME for config in configs),
        recreated=known_id is not None and topic.topic_id is not None and known_id != str(topic.topic_id),
        compacted=any("compact" in config.get(CLEANUP_POLICY, "") for config in configs),
        shared_target=link.shared_targets,
        local_tail=link.shared_targets or (entries.run is not None and entries.run.state is RunState.PROMOTED),
        gaps=tuple(sorted(gaps)),
    )


def mirrored_up_to(
    mapped: tuple[int, int], proved: tuple[int, int] | None, target_end: int, source_at_target_end: int | None
) -> tuple[int, int]:
    """The mirrored end (source, target) at the moment when the target's log ended at `target_end`.

    `mapped` was read later and may be further; then it is cut back. `proved` (the last checkpoint) was read before:
    when even that lies beyond the log's end, the target has lost records, and the end stays where it was.
    """
    if proved is not None and proved[1] > target_end:
        return proved
    if mapped[1] > target_end and source_at_target_end is not None:
        return source_at_target_end, target_end
    return mapped
