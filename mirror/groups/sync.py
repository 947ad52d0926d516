"""Carrying group offsets over: read both sites, decide, write ahead what will be committed, commit, say what waits.

A group's failure is its own: the others go on, and so does the link.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from broker.client.cluster import Cluster
from broker.client.errors import ClientError, KafkaError
from broker.client.groups import ListedGroup, committed_offsets_of_groups, describe_groups, list_groups
from broker.client.model import CommittedOffset
from broker.client.producers import ProducerIdAndEpoch
from broker.wire.vocabulary import GroupState, TopicPartition
from mirror.groups.before_log import tell_before_logs
from mirror.groups.committing import Commits, Due, OffsetsHeld, changed_meanwhile, commit_groups, find_places
from mirror.groups.decisions import GroupDecision, Translator, plan_group_sync
from mirror.limits import GROUP_SYNC_TIMEOUT_MS, GROUPS_PER_TRANSACTION
from mirror.link import Link
from mirror.offsets.fence import fence_groups
from mirror.offsets.group_entries import GroupAction, GroupSync, GroupSyncs, GroupSyncTimes, VoidGroup, Written
from mirror.offsets.offset_map import Where
from mirror.offsets.state_writer import Change

CONSUMER_PROTOCOL_TYPES = frozenset({"consumer", "streams", ""})
"""Groups of consumers, those of Kafka Streams' own protocol (KIP-1071), and those whose offsets were only ever
committed from outside."""

Offsets: TypeAlias = Mapping[str, Mapping[TopicPartition, CommittedOffset] | ClientError]
"""By group, or why they cannot be had."""

Write = Callable[[Sequence[Change]], Awaitable[None]]
"""Writes to the link's state, and returns when it is acknowledged."""


@dataclass(slots=True)
class GroupSyncMemory:
    """What the link's state says of groups, as this pass and the ones before wrote it."""

    by_group: dict[str, GroupSync] = field(default_factory=dict)
    times: GroupSyncTimes = field(default_factory=GroupSyncTimes)
    target_starts: dict[TopicPartition, int] = field(default_factory=dict)
    """Where the target's logs began, as passes saw it."""
    counts: dict[str, Mapping[Where, Written]] = field(default_factory=dict)
    """What this worker knows beyond the state, by group: the pairs of before a commit that is refused again and again,
    and, without what stood there before, those of one that was made, which the next pass has yet to see.
    """

    @classmethod
    def of(cls, syncs: GroupSyncs) -> GroupSyncMemory:
        """As a session finds it."""
        return cls(dict(syncs.by_group), syncs.times)

    def known(self, group: str) -> Mapping[Where, Written]:
        """What the link last committed of the group, or may have."""
        entry = self.by_group.get(group)
        return self.counts.get(group, entry.written if entry is not None else {})

    @property
    def syncs(self) -> GroupSyncs:
        return GroupSyncs(self.by_group, self.times)

    def is_new(self, entry: GroupSync) -> bool:
        """Whether the entry says anything that the state does not."""
        before = self.by_group.get(entry.group)
        return before is None or replace(entry, at_ms=before.at_ms, synced_at_ms=before.synced_at_ms) != before

    def changed(self, entry: GroupSync) -> list[GroupSync]:
        """The entry, if it says anything new; it is remembered."""
        if not self.is_new(entry):
            return []
        self.by_group[entry.group] = entry
        return [entry]


@dataclass(frozen=True, slots=True)
class GroupSyncReport:
    """One pass. A group is in `failures` when it could not be read or committed; the others are not affected."""

    decisions: tuple[GroupDecision, ...]
    failures: Mapping[str, ClientError]

    def count(self, action: GroupAction) -> int:
        return sum(decision.action is action for decision in self.decisions)


async def sync_groups(
    link: Link,
    source: Cluster,
    target: Cluster,
    load_map: Callable[[], Awaitable[Translator]],
    memory: GroupSyncMemory,
    write: Write,
) -> GroupSyncReport:
    """One pass over the groups that the link selects.

    The map is loaded after the offsets were read: what is mirrored meanwhile only makes more of them known. Of what is
    to be written down the source is asked once more, where a link back may have moved it meanwhile. Raises ClientError
    when a site does not answer at all, and what `load_map` and `write` raise.
    """
    now_ms = target.clock.now_ms()
    listed = await list_groups(source)
    groups = [g.group_id for g in listed.values() if link.selects_group(g.group_id) and _is_consumer(g)]
    # Brokers list the groups that they coordinate: one whose coordinator is offline is on no list, and is not gone.
    groups += [group for group in memory.by_group if group not in listed and link.selects_group(group)]
    at_source = await committed_offsets_of_groups(source, groups, patience_ms=GROUP_SYNC_TIMEOUT_MS)
    at_target = await committed_offsets_of_groups(target, groups, patience_ms=GROUP_SYNC_TIMEOUT_MS)
    empty = await _empty_groups(target, groups)
    offset_map = await load_map()
    planned, failures = _plan(link, groups, offset_map, (at_source, at_target), memory, empty)
    planned = await tell_before_logs(planned, source, target, offset_map, memory.target_starts)
    if link.reverse_links:
        failures |= await _set_back_since(source, planned, memory)
        planned = {group: decisions for group, decisions in planned.items() if group not in failures}
    due = _due(planned, at_target)
    before = {one.group: (memory.by_group.get(one.group), memory.known(one.group)) for one in due}
    for group in planned:
        memory.counts.pop(group, None)
    in_doubt: set[str] = set()
    for start in range(0, len(due), GROUPS_PER_TRANSACTION):
        share = due[start : start + GROUPS_PER_TRANSACTION]
        ahead = {one.group: _entry(planned[one.group], memory, now_ms, ahead=True) for one in share}
        ended = await _commit_share(link, target, share, ahead, memory, write)
        failures |= ended.failures
        in_doubt |= ended.in_doubt
    changes: list[Change] = []
    for group, error in failures.items():
        decisions = planned.get(group, ())
        entry = _entry(decisions, memory, now_ms, ahead=False) if decisions else memory.by_group.get(group)
        if entry is not None and decisions and group not in in_doubt:
            entry = _taken_back(entry, decisions, error, before[group], memory)
        changes += memory.changed(_failed(group, entry, error, memory, now_ms))
    for group in planned.keys() - failures.keys():
        changes += memory.changed(entry := _entry(planned[group], memory, now_ms, ahead=False))
        if group in before:
            memory.counts[group] = _made(entry, planned[group])
    for group in memory.by_group.keys() - planned.keys() - failures.keys():
        del memory.by_group[group]
        memory.counts.pop(group, None)
        changes.append(VoidGroup(group))
    memory.times = GroupSyncTimes(looked_at_ms=now_ms)
    await write([*changes, memory.times])
    return GroupSyncReport(tuple(d for decisions in planned.values() for d in decisions), failures)


def _plan(
    link: Link,
    groups: Sequence[str],
    offset_map: Translator,
    seen: tuple[Offsets, Offsets],
    memory: GroupSyncMemory,
    empty: frozenset[str],
) -> tuple[dict[str, list[GroupDecision]], dict[str, ClientError]]:
    """What is to be done about each group, and those that could not be read at one of the sites. Pure."""
    at_source, at_target = seen
    planned: dict[str, list[GroupDecision]] = {}
    failures: dict[str, ClientError] = {}
    for group in groups:
        ours, theirs = at_source[group], at_target[group]
        if isinstance(ours, ClientError):
            failures[group] = ours
        elif isinstance(theirs, ClientError):
            failures[group] = theirs
        else:
            carried = {where: committed for where, committed in ours.items() if link.selects_topic(where.topic)}
            decisions = plan_group_sync(
                link, group, offset_map, carried, theirs, memory.known(group), target_group_empty=group in empty
            )
            if decisions:
                planned[group] = decisions
    return planned, failures


async def _set_back_since(
    source: Cluster, planned: Mapping[str, Sequence[GroupDecision]], memory: GroupSyncMemory
) -> dict[str, ClientError]:
    """Of the groups of which something is to be written those that went back at the source since they were looked at
    there, or of which that is not known.

    What a link back carried there meanwhile its state tells, which was read behind the first look: against it the
    offset from before looks like one that the group has read on to, and would undo a set-back at the target.
    """
    news = [group for group, of_group in planned.items() if _has_news(of_group, memory)]
    found = await committed_offsets_of_groups(source, news, patience_ms=GROUP_SYNC_TIMEOUT_MS)
    failures: dict[str, ClientError] = {}
    for group, now in found.items():
        if isinstance(now, ClientError):
            failures[group] = now
        elif any(d.source not in now or now[d.source].offset < d.source_offset for d in planned[group]):
            failures[group] = changed_meanwhile(group, source)
    return failures


def _has_news(decisions: Sequence[GroupDecision], memory: GroupSyncMemory) -> bool:
    """Whether anything is to be committed of the group, or written into the link's state."""
    entry = _entry(decisions, memory, now_ms=0, ahead=False)
    return memory.is_new(entry) or any(d.action is GroupAction.COMMIT for d in decisions)


async def _commit_share(
    link: Link,
    target: Cluster,
    share: Sequence[Due],
    ahead: Mapping[str, GroupSync],
    memory: GroupSyncMemory,
    write: Write,
) -> Commits:
    """Write down what is about to be committed, and commit it."""

    async def begin() -> ProducerIdAndEpoch:
        writer = await fence_groups(target, link)
        changed = [change for entry in ahead.values() for change in memory.changed(entry)]
        # Something is written in any case. It is refused where the link was taken over before the groups were fenced;
        # who takes it over later fences the groups in its turn.
        await write(changed or [memory.times])
        return writer

    try:
        places = await find_places(target, [one.group for one in share])
    except ClientError as error:
        return Commits(dict.fromkeys((one.group for one in share), error), error, None)
    return await commit_groups(target, link, begin, share, places)


def _due(
    planned: Mapping[str, Sequence[GroupDecision]],
    at_target: Offsets,
) -> list[Due]:
    """The groups of which something is to be committed."""
    due = []
    for group, decisions in planned.items():
        commits, before = [d for d in decisions if d.action is GroupAction.COMMIT], at_target[group]
        if commits and not isinstance(before, ClientError):
            offsets = {d.target: CommittedOffset(d.target_offset or 0, d.metadata) for d in commits}
            due.append(Due(group, offsets, before))
    return due


def _entry(decisions: Sequence[GroupDecision], memory: GroupSyncMemory, now_ms: int, *, ahead: bool) -> GroupSync:
    """What the link's state says of a group; `ahead` of its commit, which may fail as it did before."""
    group = decisions[0].group
    before = memory.by_group.get(group)
    return GroupSync(
        group=group,
        at_ms=now_ms,
        written={_where(d): d.written for d in decisions if d.written is not None},
        waiting={_where(d): d.waits for d in decisions if d.waits is not None},
        failure=before.failure if ahead and before is not None else "",
        synced_at_ms=memory.syncs.synced_at(group),
    )


def _made(entry: GroupSync, decisions: Sequence[GroupDecision]) -> dict[Where, Written]:
    """What counts behind a commit: a group that stands where it stood before that was set back there since."""
    due = {_where(d) for d in decisions if d.action is GroupAction.COMMIT}
    return {where: pair._replace(stood=None) if where in due else pair for where, pair in entry.written.items()}


def _taken_back(
    entry: GroupSync,
    decisions: Sequence[GroupDecision],
    error: ClientError,
    before: tuple[GroupSync | None, Mapping[Where, Written]],
    memory: GroupSyncMemory,
) -> GroupSync:
    """Without what was written ahead of a commit of which nothing counts: the group never stood there, and wherever it
    goes short of that it would look as if somebody had set it back.

    Where it is refused as by the pass before, the state keeps that, and the memory has what counts: else each pass
    would write it twice. While the group stands where it did, the pair itself tells that it was not committed.
    """
    entry_before, known = before
    due = {_where(d) for d in decisions if d.action is GroupAction.COMMIT}
    others = {where: pair for where, pair in entry.written.items() if where not in due}
    counting = others | {where: known[where] for where in due if where in known}
    if entry_before is None or entry_before.failure != str(error) or isinstance(error, OffsetsHeld):
        return replace(entry, written=counting)
    memory.counts[entry.group] = counting
    said = memory.by_group[entry.group].written
    return replace(entry, written=others | {where: said[where] for where in due if where in said})


def _failed(group: str, entry: GroupSync | None, error: ClientError, memory: GroupSyncMemory, now_ms: int) -> GroupSync:
    """As it was, or as far as it was decided, with the reason."""
    entry = entry or GroupSync(group, now_ms)
    return replace(entry, at_ms=now_ms, failure=str(error), synced_at_ms=memory.syncs.synced_at(group))


def _where(decision: GroupDecision) -> Where:
    return (decision.source.topic, decision.source.partition)


async def _empty_groups(target: Cluster, groups: list[str]) -> frozenset[str]:
    """Those of `groups` that have no members at the target (or are not there at all)."""
    listed = await list_groups(target)
    states = {group: listed[group].state if group in listed else GroupState.EMPTY for group in groups}
    unknown = [group for group, state in states.items() if state is GroupState.UNKNOWN]
    for group, described in (await describe_groups(target, unknown)).items():
        states[group] = GroupState.UNKNOWN if isinstance(described, KafkaError) else described.state
    return frozenset(group for group, state in states.items() if state.has_no_members)


def _is_consumer(group: ListedGroup) -> bool:
    return group.protocol_type in CONSUMER_PROTOCOL_TYPES and group.state is not GroupState.DEAD
