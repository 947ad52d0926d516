"""Looking at both sites of a link: the shell that makes a `Snapshot`."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from broker.client.cluster import Cluster
from broker.client.errors import ClientError, KafkaError
from broker.client.groups import DescribedConsumerGroup, committed_offsets_of_groups, describe_groups, list_groups
from broker.client.model import CommittedOffset, Topic
from broker.client.offsets import log_end_offsets, log_start_offsets
from broker.client.topics import list_topics
from broker.wire.vocabulary import TopicPartition
from failover.snapshot import GroupPartitionView, GroupView, PartitionView, Snapshot
from mirror.api import (
    GroupMap,
    Link,
    LinkState,
    Written,
    complete_link,
    load_group_map,
    load_link_state,
    read_at_target,
)


async def observe(
    link: Link, source: Cluster | None, target: Cluster, groups: tuple[str, ...], now_ms: int
) -> Snapshot:
    """One look. `source` None: it does not answer. `groups`: only these (empty: all that the link selects)."""
    if source is not None:
        link = await complete_link(link, source, target)
    state = await load_link_state(link, target)
    entries = state.entries
    # Offsets of groups before the ends of logs: so none that is in its log can seem to be beyond it.
    seen = await _look_at_groups(link, state, source, target, groups)
    partitions = await _partitions(link, state, source, target)
    return Snapshot(
        link=link.name,
        source=link.source.name,
        target=link.target.name,
        taken_at_ms=now_ms,
        source_answers=source is not None,
        link_state=entries.run.state.value if entries.run else "running",
        operation_id=entries.run.operation_id if entries.run else "",
        partitions=partitions,
        groups=await _groups(link, state, partitions, (source, target), seen),
        asked_groups=groups,
    )


async def _partitions(
    link: Link, state: LinkState, source: Cluster | None, target: Cluster
) -> tuple[PartitionView, ...]:
    mirrored = {TopicPartition(*at) for at in state.map.partitions()}
    topics = await _selected(link, source) if source else {}
    at_source = {TopicPartition(name, part.partition) for name, topic in topics.items() for part in topic.partitions}
    entries = state.entries
    doubted = entries.doubts(topics).keys() if source is not None else entries.in_doubt(asks_source=False).keys()
    wanted = sorted(at for at in mirrored | at_source if at.topic != link.canary_topic)
    source_ends = await log_end_offsets(source, sorted(at_source)) if source else {}
    source_starts = await log_start_offsets(source, sorted(at_source)) if source else {}
    at_target = await list_topics(target)
    existing = [
        TopicPartition(link.target_topic(at.topic), at.partition)
        for at in wanted
        if (topic := at_target.get(link.target_topic(at.topic))) and at.partition < len(topic.partitions)
    ]
    target_ends = await log_end_offsets(target, existing)
    views = []
    for at in wanted:
        target_topic = link.target_topic(at.topic)
        end = state.map.mirrored_end(at.topic, at.partition)
        seen = state.entries.checkpoints.get(at)
        target_end = target_ends.get(TopicPartition(target_topic, at.partition))
        cut = end is not None and (target_end is None or target_end < end.target_next)
        cut |= end is not None and source_ends.get(at, end.source_next) < end.source_next
        views.append(
            PartitionView(
                at.topic,
                at.partition,
                target_topic,
                source_ends.get(at, end.source_next if end and source else None),
                seen.source_end_offset if seen else None,
                seen.source_timestamp_ms if seen and seen.source_timestamp_ms >= 0 else None,
                seen.observed_at_ms if seen else None,
                max(end.source_next, state.map.partition(*at).position) if end else None,
                target_end,
                source_starts.get(at),
                trusted=not (cut or at in doubted),
                has_local_writers=any(
                    back.selects_topic(at.topic) for back in (*link.reverse_links, *link.round_links)
                ),
                mirrored_target_next=end.target_next if end else None,
            )
        )
    return tuple(views)


async def _selected(link: Link, source: Cluster) -> dict[str, Topic]:
    topics = await list_topics(source)
    return {name: topic for name, topic in topics.items() if link.selects_topic(name) and name != link.canary_topic}


@dataclass(frozen=True, slots=True)
class _GroupsSeen:
    """What both sites say of the groups, by name; of a source that is gone nothing."""

    names: tuple[str, ...]
    at_source: Mapping[str, dict[TopicPartition, CommittedOffset]]
    at_target: Mapping[str, dict[TopicPartition, CommittedOffset]]
    described_source: Mapping[str, DescribedConsumerGroup | KafkaError]
    described_target: Mapping[str, DescribedConsumerGroup | KafkaError]


async def _look_at_groups(
    link: Link, state: LinkState, source: Cluster | None, target: Cluster, only: tuple[str, ...]
) -> _GroupsSeen:
    names = {name for cluster in (source, target) if cluster for name in await list_groups(cluster)}
    if source is None:  # what was never carried over is known from the link's memory alone
        names |= state.entries.groups.by_group.keys()
    wanted = sorted(name for name in names if (name in only if only else link.selects_group(name)))
    return _GroupsSeen(
        names=tuple(wanted),
        at_source=await _committed(source, wanted),
        at_target=await _committed(target, wanted),
        described_source=await describe_groups(source, wanted) if source else {},
        described_target=await describe_groups(target, wanted),
    )


async def _groups(
    link: Link,
    state: LinkState,
    views: tuple[PartitionView, ...],
    sites: tuple[Cluster | None, Cluster],
    seen: _GroupsSeen,
) -> tuple[GroupView, ...]:
    """Every selected group with a committed offset in a mirrored topic, at either site."""
    source, target = sites
    trusted = {(view.topic, view.partition) for view in views if view.trusted}
    # Without a source there is nothing to translate: its offsets cannot be asked for.
    offset_map = GroupMap(state.map)
    if source:
        doubted = state.entries.in_doubt(asks_source=True)
        offset_map = await load_group_map(link, state.map, doubted, (source, target), {})
    groups = []
    for name in seen.names:
        entry = state.entries.groups.by_group.get(name)
        written = entry.written if entry is not None else {}
        waiting = entry.waiting if entry is not None and source is None else {}
        offsets = seen.at_source.get(name, {}), seen.at_target.get(name, {})
        partitions = tuple(_group_partitions(name, link, state, trusted, offset_map, written, offsets, waiting))
        if not partitions:
            continue
        here, there = seen.described_source.get(name), seen.described_target.get(name)
        groups.append(
            GroupView(
                name,
                here.state.value if isinstance(here, DescribedConsumerGroup) else None,
                there.state.value if isinstance(there, DescribedConsumerGroup) else None,
                len(here.members) if isinstance(here, DescribedConsumerGroup) else 0,
                len(there.members) if isinstance(there, DescribedConsumerGroup) else 0,
                state.entries.groups.synced_at(name),
                partitions,
            )
        )
    return tuple(groups)


async def _committed(
    cluster: Cluster | None, groups: Iterable[str]
) -> dict[str, dict[TopicPartition, CommittedOffset]]:
    """Raises ClientError where one group cannot be read: a plan that left it out would not say so."""
    found: dict[str, dict[TopicPartition, CommittedOffset]] = {}
    for name, offsets in (await committed_offsets_of_groups(cluster, groups) if cluster else {}).items():
        if isinstance(offsets, ClientError):
            raise offsets
        found[name] = offsets
    return found


def _group_partitions(
    group: str,
    link: Link,
    state: LinkState,
    trusted: Container[tuple[str, int]],
    offset_map: GroupMap,
    written: Mapping[tuple[str, int], Written],
    offsets: tuple[Mapping[TopicPartition, CommittedOffset], Mapping[TopicPartition, CommittedOffset]],
    waiting: Iterable[tuple[str, int]],
) -> Iterable[GroupPartitionView]:
    """Where the group has an offset at a site, and where the mirror last saw one that it could not carry over."""
    at_source, at_target = offsets
    kept_waiting = {TopicPartition(*at) for at in waiting}
    mirrored = {TopicPartition(*at) for at in state.map.partitions()} | kept_waiting
    mirrored |= {at for at in at_source if link.selects_topic(at.topic) and at.topic != link.canary_topic}
    for at in sorted(mirrored):
        here = at_source.get(at)
        target_topic = link.target_topic(at.topic)
        there = at_target.get(TopicPartition(target_topic, at.partition))
        committed = here or there
        if committed is None and at not in kept_waiting:
            continue
        translated = None
        if here is not None and at in trusted:
            stands_at = there.offset if there else None
            before = offset_map.last_written(group, at, here.offset, stands_at, written.get(at))
            read_to = read_at_target(here.offset, stands_at, before)
            translated = offset_map.to_target(at.topic, at.partition, here.offset, read_to)
        yield GroupPartitionView(
            at.topic,
            at.partition,
            target_topic,
            here.offset if here else None,
            translated,
            there.offset if there else None,
            committed.metadata if committed else "",
        )
