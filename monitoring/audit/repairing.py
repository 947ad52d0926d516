"""Carrying a repair out: look at both sites, do what is due next, and look again, until the old copy is gone.

What is due follows from what is seen alone, so whoever is cut short types the same again. The old copy is deleted last:
until then nothing of the target is less than it was. What the mirror is asked stands in the link's state, and it is
the mirror that writes, fenced as ever; only the deletion of what lies before the map's beginning is done from here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from broker.client.cluster import Cluster
from broker.client.configs import describe_topic_configs
from broker.client.errors import ClientError, KafkaError
from broker.client.fanout import split_failures
from broker.client.groups import ListedGroup, committed_offsets_of_groups, list_groups
from broker.client.offsets import log_spans
from broker.client.topics import delete_records, describe_each_topic
from broker.wire.vocabulary import GroupState, IsolationLevel, TopicPartition
from mirror.api import (
    Acceptance,
    GapKind,
    Link,
    LinkState,
    Pulse,
    RunState,
    StateEntries,
    ask_to_accept,
    complete_link,
    is_set_back_there,
    judge_heartbeat,
    load_partial_state,
)
from monitoring import limits
from monitoring.audit.model import Place, Span
from monitoring.audit.refusals import own_topics_named
from monitoring.audit.repair import (
    Consents,
    Found,
    GroupPlace,
    GroupStays,
    LinkSeen,
    PartitionRepair,
    PartitionSeen,
    RepairPlan,
    RepairStage,
    found_of,
    frozen_at_ms,
    plan_repair,
)
from monitoring.audit.repair_ledger import find_asked, of_state, only_at_target
from monitoring.errors import RepairStopped, RepairUnfinished

_CLEANUP_POLICY: Final = "cleanup.policy"


@dataclass(frozen=True, slots=True)
class RepairRequest:
    """What of a run is asked for. `document` is the run's, `links` all of the file; `places` None: all that differs.
    `why` says who asks, and for what: it stands in the link's ledger of gaps.
    """

    link: Link
    document: Mapping[str, Any]
    links: Sequence[Link]
    consents: Consents
    places: Collection[Place] | None = None
    why: str = ""
    needed_to: dict[Place, int] = field(default_factory=dict)
    """Up to where the source had been when this began: what comes meanwhile holds nothing up."""

    @property
    def run_id(self) -> str:
        return str(self.document["run_id"])

    def found(self) -> list[Found]:
        return [item for item in found_of(self.document) if self.places is None or item.place in self.places]


async def look(
    request: RepairRequest, source: Cluster, target: Cluster, only: Collection[str] | None = None
) -> RepairPlan:
    """What can be repaired as both sites are now. Nothing is written. `only`: with these groups alone. Raises
    ClientError, StateDamaged, AuditResultDamaged.
    """
    found = request.found()
    async with own_topics_named(request.link, source, target, "audit repair"):
        link = await complete_link(request.link, source, target)
        state = await load_partial_state(link, target)
    here = [TopicPartition(*item.place) for item in found]
    there = {where: TopicPartition(link.target_topic(where.topic), where.partition) for where in here}
    at_source, unclear = await describe_each_topic(source, {where.topic for where in here})
    at_target, unclear_there = await describe_each_topic(target, {where.topic for where in there.values()})
    known = [
        {TopicPartition(name, one.partition) for name, topic in topics.items() for one in topic.partitions}
        for topics in (at_source, at_target)
    ]
    spans, _ = split_failures(
        await log_spans(source, [w for w in here if w in known[0]], IsolationLevel.READ_COMMITTED)
    )
    spans_there, _ = split_failures(await log_spans(target, [w for w in there.values() if w in known[1]]))
    configs = await describe_topic_configs(target, {where.topic for where in there.values()})
    groups = await _groups((source, target), there, only)
    seen: dict[Place, PartitionSeen] = {}
    for where in here:
        log, log_there = _span(spans.get(where)), _span(spans_there.get(there[where]))
        if where in state.unread:  # without its map nothing is known of what it has
            log_there = None
        asked = find_asked(state, where, frozen_at_ms(request.document))
        needed_to = request.needed_to.setdefault((where.topic, where.partition), log.end) if log is not None else None
        seen[where.topic, where.partition] = PartitionSeen(
            target_topic=there[where].topic,
            source=log,
            target=log_there,
            needed_to=needed_to,
            is_at_both=(where in known[0] or where.topic in unclear)
            and (there[where] in known[1] or there[where].topic in unclear_there),
            is_compacted=_keeps_its_beginning(configs.get(there[where].topic)),
            links_on=_links_on(request, there[where].topic),
            only_at_target=only_at_target(state, where, asked, log, log_there),
            groups=_places(link, state, groups, (where, there[where]), log),
            **of_state(state, where, asked),
        )
    run = state.entries.run
    may_run = run is None or run.state is RunState.RUNNING
    is_running = _is_running(state.entries, target.clock.now_ms())
    linked = LinkSeen(link.name, may_run, is_running, link.shared_targets, seen)
    return plan_repair(request.run_id, found, linked, request.consents)


async def carry_out(
    request: RepairRequest, source: Cluster, target: Cluster, report: Callable[[str], None], patience_ms: int
) -> RepairPlan:
    """Mirror the partitions anew, and delete their old copies -> as they are then. May be repeated at any point.

    Raises RepairStopped where something came in the way, RepairUnfinished when the patience is over, and as `look`.
    """
    until_s, told = target.clock.monotonic() + patience_ms / limits.SECOND_MS, ""
    standing: frozenset[str] | None = None
    while True:
        plan = await look(request, source, target, standing)
        _refuse(plan)
        if standing is not None and _ready(plan):
            standing = None  # who came meanwhile may stay
            continue
        if all(one.stage is RepairStage.OLD_COPY_DELETED for one in plan.partitions):
            return plan
        if (words := "; ".join(map(_words, plan.partitions))) != told:
            report(words)
            told = words
        if await _step(request, plan, target):
            standing = None
            continue
        standing = frozenset(place.group for one in plan.partitions for place in one.groups)
        if target.clock.monotonic() > until_s:
            raise RepairUnfinished(f"not done in time; the mirror goes on, and deletes nothing: {words}", _AGAIN)
        await target.clock.sleep(limits.REPAIR_LOOK_INTERVAL_MS / limits.SECOND_MS)


_AGAIN: Final = "type the same again: it goes on from there; farshore status says whether the mirror moves"


def _refuse(plan: RepairPlan) -> None:
    """Raises RepairStopped."""
    for one in plan.partitions:
        if (blocker := one.in_the_way) is not None:
            raise RepairStopped(f"{_words(one)}: {blocker.value.replace('_', ' ')}", blocker.explanation)


async def _step(request: RepairRequest, plan: RepairPlan, target: Cluster) -> bool:
    """What is due now -> whether anything was. Raises ClientError."""
    new = [one for one in plan.partitions if one.stage is RepairStage.NOT_ASKED]
    if new:
        await _ask(request, new, target)
    ready = _ready(plan)
    ends = {TopicPartition(one.target_topic, one.partition): one.deleted_to for one in ready}
    if ends:
        await delete_records(target, {where: end for where, end in ends.items() if end is not None})
    return bool(ready)


def _ready(plan: RepairPlan) -> list[PartitionRepair]:
    """Those whose old copy may go."""
    copied = (one for one in plan.partitions if one.stage is RepairStage.COPIED)
    return [one for one in copied if not one.awaits_groups and not one.blockers]


async def _ask(request: RepairRequest, new: Sequence[PartitionRepair], target: Cluster) -> None:
    """Of a run that a faster clock froze it is asked for behind that all the same, and behind what was asked before."""
    at_ms = max(target.clock.now_ms(), frozen_at_ms(request.document) + 1, *(one.asked_at_ms + 1 for one in new))
    why = f"repair of audit {request.run_id}{f', {request.why}' if request.why else ''}"
    asked = [
        Acceptance(*one.place, one.mirrored_to, GapKind.MIRRORED_ANEW, at_ms, one.source_start, why, one.asked_at_ms)
        for one in new
    ]
    await ask_to_accept(request.link, target, asked)


def _words(one: PartitionRepair) -> str:
    """Which partition it is, how far, and what is waited for."""
    waits = [blocker.value.replace("_", " ") for blocker in one.blockers]
    if one.stage is RepairStage.COPIED:
        waits += [f"group {name} has not followed" for name in one.awaits_groups]
    text = f"{one.topic}:{one.partition} {one.stage.value.replace('_', ' ')}"
    return f"{text} ({', '.join(waits)})" if waits else text


def _is_running(entries: StateEntries, now_ms: int) -> bool:
    """Whether a worker lives of each unit."""
    owners = entries.owners().values()
    return bool(owners) and all(judge_heartbeat(owner, now_ms).pulse is Pulse.ALIVE for owner in owners)


def _span(found: tuple[int, int] | None) -> Span | None:
    return None if found is None else Span(*found)


def _keeps_its_beginning(configs: Mapping[str, Any] | KafkaError | None) -> bool | None:
    """Whether Kafka refuses to delete the beginning of a log; None: that is not known."""
    if configs is None or isinstance(configs, KafkaError) or _CLEANUP_POLICY not in configs:
        return None
    policies = {name.strip() for name in (configs[_CLEANUP_POLICY].value or "").split(",")}
    return "compact" in policies and "delete" not in policies


def _links_on(request: RepairRequest, target_topic: str) -> tuple[str, ...]:
    mine = request.link
    others = [one for one in request.links if one.source.name == mine.target.name and one.name != mine.name]
    return tuple(sorted(one.name for one in others if one.selects_topic(target_topic)))


@dataclass(frozen=True, slots=True)
class _Groups:
    """Groups of the target, and what they and their namesakes committed."""

    listed: Mapping[str, ListedGroup]
    source: Mapping[str, Any]
    target: Mapping[str, Any]


async def _groups(
    clusters: tuple[Cluster, Cluster],
    there: Mapping[TopicPartition, TopicPartition],
    only: Collection[str] | None,
) -> _Groups:
    source, target = clusters
    listed = await list_groups(target) if only is None or only else {}
    if only is not None:
        listed = {name: group for name, group in listed.items() if name in only}
    at_target = await committed_offsets_of_groups(target, listed)
    wanted = set(there.values())
    names = [name for name, told in at_target.items() if isinstance(told, ClientError) or wanted & told.keys()]
    at_source = await committed_offsets_of_groups(source, names)
    return _Groups({name: listed[name] for name in names}, at_source, at_target)


def _places(
    link: Link,
    state: LinkState,
    groups: _Groups,
    pair: tuple[TopicPartition, TopicPartition],
    source: Span | None,
) -> tuple[GroupPlace, ...]:
    where, there = pair
    found = []
    for name, listed in sorted(groups.listed.items()):
        told, told_there = groups.source[name], groups.target[name]
        if isinstance(told_there, ClientError):
            found.append(GroupPlace(name, None, None, GroupStays.NOT_KNOWN))
            continue
        if there not in told_there:
            continue
        at_target = told_there[there].offset
        at_source = None if isinstance(told, ClientError) or where not in told else told[where].offset
        stays = _why_it_stays(
            link, state, (listed, isinstance(told, ClientError)), where, (at_source, at_target), source
        )
        exact = None if at_source is None else state.map.to_target(*where, at_source)
        is_placed = stays is None and exact is not None and at_target >= exact
        found.append(GroupPlace(name, at_source, at_target, stays, is_placed))
    return tuple(found)


def _why_it_stays(
    link: Link,
    state: LinkState,
    group: tuple[ListedGroup, bool],
    where: TopicPartition,
    offsets: tuple[int | None, int],
    source: Span | None,
) -> GroupStays | None:
    (listed, is_unknown), (at_source, at_target) = group, offsets
    if is_unknown or listed.state is GroupState.UNKNOWN:
        return GroupStays.NOT_KNOWN
    if not link.selects_group(listed.group_id) or at_source is None:
        return GroupStays.NOT_CARRIED
    if not listed.state.has_no_members:
        return GroupStays.ACTIVE_AT_TARGET
    if source is not None and at_source < source.start:
        return GroupStays.BEFORE_SOURCE_LOG
    synced = state.entries.groups.by_group.get(listed.group_id)
    written = synced.written.get((where.topic, where.partition)) if synced is not None else None
    return GroupStays.SET_BACK if is_set_back_there(at_source, at_target, written) else None
