"""Looking at both sites of a link: the shell that makes a `Snapshot`."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from broker.client.cluster import Cluster
from broker.client.described_groups import DescribedConsumerGroup
from broker.client.errors import ClientError, KafkaError
from broker.client.fanout import both
from broker.client.groups import GroupOfOtherType
from broker.client.model import Topic
from broker.wire.vocabulary import TopicPartition
from failover.observing.contact import SiteFinding
from failover.observing.doubted import Doubted, doubted
from failover.observing.last_seen import LastSeen, last_seen, unmirrored
from failover.observing.left_ranges import left_ranges
from failover.observing.loading import Loaded, load_link
from failover.observing.looking import (
    Asking,
    GroupsSeen,
    LogsSeen,
    NamesSeen,
    TargetLogs,
    TargetLook,
    each_topic_of,
    group_names,
    is_asked,
    look_at_logs,
    look_at_offsets,
    look_at_source,
    partitions_of,
    topics_of,
    went_back,
    why_unlisted,
)
from failover.observing.members import is_share, members, reads
from failover.observing.places import Places, group_partitions, mirrored_partitions
from failover.observing.readers import Readers
from failover.observing.returned import Returned
from failover.observing.snapshot import GroupView, PartitionView, Snapshot
from failover.observing.unmapped import unmapped_partitions
from mirror.api import (
    Ceased,
    Checkpoint,
    End,
    Gap,
    GroupMap,
    GroupSync,
    Link,
    LinkRun,
    LinkState,
    Observation,
    SourceBrokers,
    last_landed,
    load_group_map,
    load_observation,
)


async def observe(
    link: Link,
    source: Cluster | None,
    target: Cluster,
    groups: tuple[str, ...],
    now_ms: int,
    *,
    in_part: bool = False,
    target_in_part: bool = False,
    with_pace: bool = False,
    readers: Readers | None = None,
    parted: frozenset[tuple[str, int]] = frozenset(),
    leaving: Iterable[Gap] = (),
) -> Snapshot:
    """One look. `source` None: it does not answer; `in_part`: what of it does not answer is left out, which the finding
    says; `with_pace`: how fast it grew is told of a whole one, too. `target_in_part`: its partitions and groups that do
    not answer are told, with the reason. `groups`: only these (empty: all). `parted`: as in `doubted`; `leaving`: as in
    `load_group_map`. Raises ClientError, MirrorError: with `in_part` only for what the target does.
    """
    of_source, of_target = Asking(in_part), TargetLook(target, target_in_part)
    keeping = _kept(link, target) if with_pace or source is None or in_part else _nothing_kept()
    ((loaded, state), kept), ((listed, opened), there) = await both(
        both(load_link(link, source, of_target, of_source, readers or Readers()), keeping),
        both(group_names(source, of_source), of_target.group_names()),
    )
    link, group_source = loaded.link, source if loaded.is_whole else None
    if loaded.is_another_source:  # what that says is not of the site that was mirrored
        source, listed = None, set()
    wanted = _wanted(link, state, groups, listed, there)
    topics = _source_topics(link, source, state, of_source, all_groups=not groups)
    here = look_at_source(group_source, wanted, topics, opened, of_source)
    there_now = both(of_target.groups(wanted), topics_of(target))
    (at_source, of_groups), (groups_there, at_target) = await both(here, there_now)
    unmapped = await unmapped_partitions(link, state, target, at_target)
    logs, target_ends = await both(  # behind groups' offsets, so that none can seem to be beyond
        look_at_logs(source, at_source, of_groups.offsets, of_source),
        _target_ends(link, _told_partitions(link, state, at_source, kept) | unmapped, at_target, of_target),
    )
    in_doubt = await doubted(link, state, (source, target), logs, of_source, parted)
    known = kept if source is None or of_source.missed else None
    partitions = _partitions(link, state, known, logs, (at_target, target_ends), unmapped, in_doubt)
    places = Places.of(link, mirrored_partitions(state) | unmapped)
    looked = ((group_source, target), wanted, listed, (of_groups, groups_there), of_source, places, in_doubt)
    seen_groups = await _groups(link, state, partitions, *looked, tuple(leaving))
    return Snapshot(
        *(link.name, link.source.name, link.target.name, now_ms, _finding(source, loaded, of_source)),
        *(*_stands(state.entries.run), partitions, seen_groups),
        asked_groups=groups,
        last_look=kept.last,
        units_apart=state.entries.units_apart,
        paused_topics=state.entries.paused_topics(),
        groups_not_listed=there.error,
        is_map_lost=bool(unmapped),
        declared_otherwise=loaded.completed.otherwise,
        groups_elsewhere=_elsewhere(of_groups, seen_groups, places),
        groups_carried_before=_carried_before(link, state, groups),
        left_at_source=left_ranges(state.entries.left_at_source(), partitions),
    )


def _stands(run: LinkRun | None) -> tuple[str, str]:
    """What the link may do, and by which operation."""
    return (run.state.value, run.operation_id) if run is not None else ("running", "")


def _carried_before(link: Link, state: LinkState, asked: tuple[str, ...]) -> tuple[str, ...]:
    """Until a worker runs the link by this file, and takes back what it has of them."""
    entries = state.entries.groups.by_group.values()
    carried = (one.group for one in entries if one.written or one.waiting)
    return tuple(sorted(name for name in carried if not link.selects_group(name) and name not in asked))


def _elsewhere(at_source: GroupsSeen, groups: Iterable[GroupView], places: Places) -> tuple[str, ...]:
    told = {group.group for group in groups}
    return tuple(name for name, at in sorted(at_source.offsets.items()) if name not in told and places.others(at))


def _wanted(
    link: Link, state: LinkState, asked: tuple[str, ...], listed: AbstractSet[str], there: NamesSeen
) -> list[str]:
    """The groups that are looked at. Brokers list those that they coordinate: what nobody lists, as its coordinator is
    away, is known from the link's memory alone.
    """
    names = listed | there.names | state.entries.groups.by_group.keys() | {*(asked if there.error else ())}
    return sorted(name for name in names if is_asked(link, name, asked))


def _finding(source: Cluster | None, loaded: Loaded, asking: Asking) -> SiteFinding:
    if loaded.is_another_source:
        return SiteFinding.REPLACED
    if asking.missed:
        return SiteFinding.PARTLY_THERE
    return SiteFinding.ALIVE if source is not None else SiteFinding.DEAD


async def kept_brokers(link: Link, target: Cluster) -> SourceBrokers:
    """Where the link's worker knew the source's brokers to be; none where that is not kept, or cannot be read."""
    return (await _kept(link, target)).brokers


async def _kept(link: Link, target: Cluster) -> Observation:
    """What the target keeps of a source that does not tell everything."""
    try:
        return await load_observation(link, target)
    except ClientError:  # the topic has no leader, say: then less is known, and nothing else of a failover hangs on it
        return Observation()


async def _nothing_kept() -> Observation:
    return Observation()


async def _source_topics(
    link: Link, source: Cluster | None, state: LinkState, asking: Asking, *, all_groups: bool
) -> dict[str, Topic]:
    """The topics that are to be mirrored; none where the source does not list them. It is asked by name for those that
    it may hide, or lists and does not describe. `all_groups`: it is asked which groups it has, and has to tell.
    """
    asked = state.entries.mirrored_topics() | (frozenset() if asking.in_part else link.named_topics)
    topics, hidden = await asking.ask(each_topic_of(source, asked, link.selects_topic), ({}, {}))
    asking.note(hidden.values())
    if all_groups and link.groups:
        asking.note(why_unlisted(link.source.name, topics))
    return {name: topic for name, topic in topics.items() if link.selects_topic(name) and name != link.canary_topic}


def _told_partitions(
    link: Link, state: LinkState, topics: Mapping[str, Topic], observation: Observation
) -> set[TopicPartition]:
    """All that anything is known of."""
    mirrored = mirrored_partitions(state)
    at_source = partitions_of(topics)
    told = mirrored | at_source | observation.ends.keys()
    return {at for at in told if at.topic != link.canary_topic and (at in mirrored or link.selects_topic(at.topic))}


async def _target_ends(
    link: Link,
    told: Iterable[TopicPartition],
    target_topics: Mapping[str, Topic],
    target: TargetLook,
) -> TargetLogs:
    """By what they are called at the target, of those that it has."""
    existing = [
        TopicPartition(link.target_topic(at.topic), at.partition)
        for at in sorted(told)
        if (topic := target_topics.get(link.target_topic(at.topic))) and at.partition < len(topic.partitions)
    ]
    return await target.logs(existing)


def _partitions(
    link: Link,
    state: LinkState,
    kept: Observation | None,
    logs: LogsSeen,
    at_target: tuple[Mapping[str, Topic], TargetLogs],
    unmapped: AbstractSet[TopicPartition],
    in_doubt: Doubted,
) -> tuple[PartitionView, ...]:
    """`kept`: what the target keeps of the source's ends; None: the source told all, and a partition of the link's
    topics that it does not tell of is not there any more. `at_target`: its topics and logs.
    """
    entries, (there, (ends, starts, untold)) = state.entries, at_target
    whole, observation = kept is None, kept or Observation()
    returned, recreated = Returned(link, state, observation, ends), entries.of_other_topics(logs.topics)
    views = []
    for at in sorted(_told_partitions(link, state, logs.topics, observation) | unmapped):
        target_topic = link.target_topic(at.topic)
        checkpoint = state.entries.checkpoints.get(at)
        why = state.unread.get(at) or untold.get(TopicPartition(target_topic, at.partition))
        end = state.map.mirrored_end(at.topic, at.partition)
        if end is None and why is not None and checkpoint is not None:
            end = End(max(checkpoint.end.source_next, checkpoint.position), checkpoint.end.target_next)
        seen = last_seen(checkpoint, observation.ends.get(at), logs.read_to.get(at, 0))
        target_end = ends.get(TopicPartition(target_topic, at.partition)) if why is None else None
        is_told = whole and link.selects_topic(at.topic)
        source_end = logs.ends.get(at, end.source_next if end and is_told else None)
        cut = end is not None and why is None and (target_end is None or target_end < end.target_next)
        cut |= end is not None and logs.ends.get(at, end.source_next) < end.source_next
        cut |= (at in unmapped and bool(target_end)) or _is_made_anew(checkpoint, there.get(target_topic))
        views.append(
            PartitionView(
                at.topic,
                at.partition,
                target_topic,
                source_end,
                seen.end if seen else None,
                checkpoint.source_timestamp_ms if checkpoint and checkpoint.source_timestamp_ms >= 0 else None,
                seen.at_ms if seen else None,
                max(end.source_next, found.position)
                if end and (found := state.map.find(*at))
                else end and end.source_next,
                target_end,
                logs.starts.get(at, seen.start if seen else None),
                trusted=not (cut or at in in_doubt.logs or (seen is not None and seen.is_another)),
                held_since_ms=None if cut else in_doubt.held.get(at),
                has_local_writers=returned.is_shared(at),
                mirrored_target_next=end.target_next if end else None,
                returned_at_most=returned.at_most(at, unmirrored(seen, end) if source_end is None else None),
                unanswered="" if why is None else str(why),
                last_mirrored=_last_mirrored(state, at),
                target_start=starts.get(TopicPartition(target_topic, at.partition)) if why is None else None,
                is_source_recreated=at in recreated,
                is_gone_at_source=is_told and not _is_there(at, logs.topics),
                ceased=_ceased(seen, logs) if source_end is None else None,
                seen_beyond=seen.seen_beyond if seen else 0,
            )
        )
    return tuple(views)


def _is_there(at: TopicPartition, topics: Mapping[str, Topic]) -> bool:
    return at.topic in topics and any(one.partition == at.partition for one in topics[at.topic].partitions)


def _ceased(seen: LastSeen | None, logs: LogsSeen) -> Ceased | None:
    """Where others tell their ends, and nobody saw when this one ceased to, that is not known."""
    known = seen.ceased if seen is not None else None
    return known or (Ceased(None, None) if logs.topics else None)


def _is_made_anew(checkpoint: Checkpoint | None, topic: Topic | None) -> bool:
    """Whether the target's topic is another one than was mirrored to, of the same name."""
    known = checkpoint.topic_ids.target if checkpoint is not None else ""
    return topic is not None and known not in ("", str(topic.topic_id or known))


def _last_mirrored(state: LinkState, at: TopicPartition) -> tuple[int, int] | None:
    found = state.map.find(*at)
    last = last_landed(found) if found is not None else None
    return None if last is None else (last.source, last.target)


async def _groups(
    link: Link,
    state: LinkState,
    views: tuple[PartitionView, ...],
    sites: tuple[Cluster | None, Cluster],
    names: Iterable[str],
    listed: Container[str],
    seen: tuple[GroupsSeen, GroupsSeen],
    asking: Asking,
    places: Places,
    in_doubt: Doubted,
    leaving: Iterable[Gap],
) -> tuple[GroupView, ...]:
    """Every selected group with a committed offset in a mirrored topic, at either site, and those that read there at
    the source, or have one pending, or of which it does not tell that: `listed` are all that it has.
    """
    (source, target), (at_source, at_target) = sites, seen
    trusted = {(view.topic, view.partition) for view in views if view.trusted and not view.unanswered}
    offset_map = GroupMap(state.map)  # without a source there is nothing to translate
    if source:
        ends = (source, target)
        mapped = await asking.ask(_mapped(link, state, ends, at_source, asking, in_doubt, leaving), None)
        if mapped is None:
            source, at_source = None, GroupsSeen()
        else:
            (offset_map, at_source), in_doubt = mapped, in_doubt.with_untranslated(mapped[0].in_doubt)
    groups = []
    for name in names:
        entry = state.entries.groups.by_group.get(name)
        written = entry.written if entry is not None else {}
        unanswered = at_target.unanswered.get(name)
        told = at_source.offsets.get(name)
        waiting = _waiting(entry, places) if told is None else set()
        waiting |= set(written) if unanswered is not None else set()
        counts, as_lost = in_doubt.parted(told or {}, written)
        stands = counts, at_target.offsets.get(name, {})
        partitions = tuple(group_partitions(name, places, trusted, offset_map, written, stands, waiting | as_lost))
        here, there = at_source.described.get(name), at_target.described.get(name)
        is_untold = isinstance(here, KafkaError) and name in listed and not asking.in_part
        is_pending = bool(places.of_group(at_source.pending.get(name, ()), (), set()))
        if not (partitions or is_untold or is_pending or reads(link, here)) and unanswered is None:
            continue
        groups.append(
            GroupView(
                name,
                here.state.value if isinstance(here, DescribedConsumerGroup) else None,
                there.state.value if isinstance(there, DescribedConsumerGroup) else None,
                0 if source is None else members(here),
                members(there),
                state.entries.groups.synced_at(name),
                partitions,
                "" if unanswered is None else str(unanswered),
                is_pending,
                here.group_type if isinstance(here, GroupOfOtherType) else "",
                not any(is_share(found) for found in (here, there)),
                places.others(told or {}),
            )
        )
    return tuple(groups)


def _waiting(entry: GroupSync | None, places: Places) -> set[tuple[str, int]]:
    """Where a group of which the source tells nothing may have offsets: those that wait to be carried over, and where
    the link brought it, also if the target has lost that since.
    """
    return set() if entry is None else {*entry.waiting, *(entry.written.keys() & places.mirrored)}


async def _mapped(
    link: Link,
    state: LinkState,
    clusters: tuple[Cluster, Cluster],
    at_source: GroupsSeen,
    asking: Asking,
    in_doubt: Doubted,
    leaving: Iterable[Gap],
) -> tuple[GroupMap, GroupsSeen]:
    """The map, and the groups' offsets at the source, which are no older than what a link back says of them there.

    A set-back at the target that it has carried to the source since then would look like a group that has read on.
    """
    while True:
        offset_map = await load_group_map(link, state.map, in_doubt.offsets, clusters, {}, leaving=leaving)
        if not link.reverse_links:
            return offset_map, at_source
        before, now = at_source.offsets, await look_at_offsets(clusters[0], at_source.offsets, asking)
        if not went_back(before, now):
            return offset_map, replace(at_source, offsets={group: before[group] for group in now})
        at_source = replace(at_source, offsets=now)
