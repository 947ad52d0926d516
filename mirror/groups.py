"""Consumer group offsets, translated and committed at the target. The decisions are pure.

A group's offset is only ever committed where the map gives the exact one, and while the group has no members at the
target. It goes forward, and back only if the source's offset went back since this process wrote the target's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from broker.client.cluster import Cluster
from broker.client.errors import ClientError, KafkaError, RequestTimedOut
from broker.client.groups import ListedGroup, commit_offsets, committed_offsets_of_groups, describe_groups, list_groups
from broker.client.model import CommittedOffset
from broker.wire.vocabulary import GroupState, TopicPartition
from mirror.limits import GROUP_SYNC_TIMEOUT_MS, GROUPS_IN_FLIGHT
from mirror.link import Link

CONSUMER_PROTOCOL_TYPES = frozenset({"consumer", ""})
"""Groups of consumers, and those whose offsets were only ever committed from outside."""


class Translator(Protocol):
    """What group sync needs of the offset map."""

    def to_target(self, topic: str, partition: int, source_offset: int) -> int | None: ...

    def mirrored_end(self, topic: str, partition: int) -> tuple[int, int] | None: ...


class GroupAction(StrEnum):
    """What happens to a group's offset in one partition."""

    COMMIT = "commit"
    UP_TO_DATE = "up_to_date"
    HOLD_NOT_MIRRORED = "hold_not_mirrored"
    """The source offset has no exact translation: not mirrored yet, or older than the mirror."""
    SKIP_ACTIVE = "skip_active"
    """The group has members at the target."""
    SKIP_MOVED_ON = "skip_moved_on"
    """The target's offset is ahead, and it was not this link that put it there."""


@dataclass(frozen=True, slots=True)
class Written:
    """What this process last committed at the target for a group's partition."""

    source_offset: int
    target_offset: int


@dataclass(frozen=True, slots=True)
class GroupDecision:
    """One partition of one group. `target_offset` is the translated offset, None while there is none."""

    group: str
    source: TopicPartition
    target: TopicPartition
    action: GroupAction
    source_offset: int
    target_offset: int | None
    metadata: str


@dataclass(slots=True)
class GroupSyncMemory:
    """What passes know of the ones before. `synced_at_ms`: when a group was last found or made wholly equal."""

    written: dict[tuple[str, TopicPartition], Written] = field(default_factory=dict)
    synced_at_ms: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupSyncReport:
    """One pass. A group is in `failures` when it could not be read or committed; the others are not affected."""

    decisions: tuple[GroupDecision, ...]
    failures: Mapping[str, ClientError]

    def count(self, action: GroupAction) -> int:
        return sum(decision.action is action for decision in self.decisions)


def translate_offset(offset_map: Translator, where: TopicPartition, source_offset: int) -> int | None:
    """The exact target offset, also where nothing but the mirrored end is known (an empty partition, offset 0)."""
    translated = offset_map.to_target(where.topic, where.partition, source_offset)
    if translated is None:
        end = offset_map.mirrored_end(where.topic, where.partition)
        if end is not None and end[0] == source_offset:
            return end[1]
    return translated


def plan_group_sync(
    link: Link,
    group: str,
    source_committed: Mapping[TopicPartition, CommittedOffset],
    translated: Mapping[TopicPartition, int | None],
    target_committed: Mapping[TopicPartition, CommittedOffset],
    written: Mapping[TopicPartition, Written],
    target_group_empty: bool,
) -> list[GroupDecision]:
    """Decide per partition. `translated` and `written` are by source partition, `target_committed` by target's."""
    decisions = []
    for source, committed in sorted(source_committed.items()):
        target = TopicPartition(link.target_topic(source.topic), source.partition)
        offset = translated.get(source)
        action = _decide(committed, offset, target_committed.get(target), written.get(source), target_group_empty)
        decisions.append(GroupDecision(group, source, target, action, committed.offset, offset, committed.metadata))
    return decisions


def _decide(
    source: CommittedOffset,
    translated: int | None,
    target: CommittedOffset | None,
    written: Written | None,
    target_group_empty: bool,
) -> GroupAction:
    if translated is None:
        return GroupAction.HOLD_NOT_MIRRORED
    if target is not None and (target.offset, target.metadata) == (translated, source.metadata):
        return GroupAction.UP_TO_DATE
    if not target_group_empty:
        return GroupAction.SKIP_ACTIVE
    if target is None or translated >= target.offset:
        return GroupAction.COMMIT
    ours = written is not None and written.target_offset == target.offset
    rewound = written is not None and source.offset < written.source_offset
    return GroupAction.COMMIT if ours and rewound else GroupAction.SKIP_MOVED_ON


async def sync_groups(
    link: Link, source: Cluster, target: Cluster, offset_map: Translator, memory: GroupSyncMemory
) -> GroupSyncReport:
    """One pass over the groups that the link selects. Raises ClientError only when a site does not answer at all."""
    listed = await list_groups(source)
    groups = [g.group_id for g in listed.values() if link.selects_group(g.group_id) and _is_consumer(g)]
    if not groups:
        return GroupSyncReport((), {})
    at_source = await committed_offsets_of_groups(source, groups)
    at_target = await committed_offsets_of_groups(target, groups)
    empty = await _empty_groups(target, groups)
    decisions: list[GroupDecision] = []
    failures: dict[str, ClientError] = {}
    commits: list[list[GroupDecision]] = []
    for group in groups:
        ours, theirs = at_source[group], at_target[group]
        if isinstance(ours, KafkaError) or isinstance(theirs, KafkaError):
            failures[group] = ours if isinstance(ours, KafkaError) else theirs  # type: ignore[assignment]
            continue
        carried = {where: committed for where, committed in ours.items() if link.selects_topic(where.topic)}
        translated = {where: translate_offset(offset_map, where, c.offset) for where, c in carried.items()}
        written = {where: w for where in carried if (w := memory.written.get((group, where))) is not None}
        planned = plan_group_sync(link, group, carried, translated, theirs, written, group in empty)
        decisions += planned
        commits.append(planned)
    failures |= await _commit_all(target, commits, memory)
    for planned in commits:
        _remember_equal(planned, failures, memory, target.clock.now_ms())
    return GroupSyncReport(tuple(decisions), failures)


async def _commit_all(
    target: Cluster, planned: list[list[GroupDecision]], memory: GroupSyncMemory
) -> dict[str, ClientError]:
    """Commit group by group, some at the same time -> the groups that failed, and why."""
    failures: dict[str, ClientError] = {}
    slots = asyncio.Semaphore(GROUPS_IN_FLIGHT)

    async def commit(decisions: list[GroupDecision]) -> None:
        group = decisions[0].group
        offsets = {d.target: CommittedOffset(d.target_offset or 0, d.metadata) for d in decisions}
        async with slots:
            try:
                async with asyncio.timeout(GROUP_SYNC_TIMEOUT_MS / 1000):
                    await commit_offsets(target, group, offsets)
            except ClientError as error:
                failures[group] = error
                return
            except TimeoutError:
                failures[group] = RequestTimedOut(f"group {group}: its commit at {target.site.name} took too long")
                return
        for decision in decisions:
            written = Written(decision.source_offset, decision.target_offset or 0)
            memory.written[(group, decision.source)] = written

    async with asyncio.TaskGroup() as tasks:
        for decisions in planned:
            due = [decision for decision in decisions if decision.action is GroupAction.COMMIT]
            if due:
                tasks.create_task(commit(due))
    return failures


def _remember_equal(
    planned: list[GroupDecision], failures: Mapping[str, ClientError], memory: GroupSyncMemory, now_ms: int
) -> None:
    settled = (GroupAction.COMMIT, GroupAction.UP_TO_DATE)
    if planned and planned[0].group not in failures and all(d.action in settled for d in planned):
        memory.synced_at_ms[planned[0].group] = now_ms
    for decision in planned:
        if decision.action is GroupAction.UP_TO_DATE and decision.target_offset is not None:
            written = Written(decision.source_offset, decision.target_offset)
            memory.written[(decision.group, decision.source)] = written


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
