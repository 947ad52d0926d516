"""What an operator wants to know of a link at a glance."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final, TypeVar

from broker.base.errors import FarshoreError
from broker.client.cluster import Cluster
from broker.client.errors import NOT_LET_IN, ClientError
from broker.client.limits import ClientLimits
from broker.client.site import Site
from broker.wire.vocabulary import TopicPartition
from mirror.acls.record import AclLook, AclRecord
from mirror.acls.sync import read_record
from mirror.findings import link_findings
from mirror.heartbeat import Heartbeat, HeartbeatWatch, Pulse
from mirror.lag import PartitionLag
from mirror.limits import RESTARTS_IN_A_LOOP
from mirror.link import Link
from mirror.link_finding import LinkFinding
from mirror.looking import LinkLook, look_at_link
from mirror.offsets.entries import Gap, RunState
from mirror.offsets.group_entries import GroupSyncs
from mirror.offsets.hold_entries import Hold
from mirror.offsets.state import LinkState, StateReaders, load_partial_state
from mirror.offsets.state_entries import StateEntries
from mirror.split import Split
from mirror.worker.declared import complete_link
from mirror.worker.registry import registered_at

T = TypeVar("T", int, float)

STATUS_LIMITS = ClientLimits(
    connect_timeout_ms=2_000, bootstrap_timeout_ms=2_500, retry_timeout_ms=5_000, request_timeout_ms=10_000,
    delivery_timeout_ms=10_000,
)  # fmt: skip
"""A person waits for the answer, and a lost site must not make them wait long."""
NOT_LOCKED: Final[Mapping[str, str]] = MappingProxyType({})


class LinkCondition(StrEnum):
    """A link's state in one word."""

    NEVER_RAN = "never_ran"
    RUNNING = "running"
    """Its worker lives; `last_seen_at_ms` says when it last proved a position."""
    STOPPED_PARTITIONS = "stopped_partitions"
    """Its worker lives, and some partitions wait for a person's decision on a gap."""
    RESTARTING = "restarting"
    """Its worker lives, and none of its sessions lasts."""
    AWAITED = "awaited"
    """A command let it run a moment ago, and no worker wrote a heartbeat since: whether one lives is not known."""
    SILENT = "silent"
    """It may run, and no worker gave a sign of life for longer than the limit."""
    PROMOTED = "promoted"
    PAUSED = "paused"
    """By a person; its lag grows meanwhile."""
    UNKNOWN = "unknown"
    """The target does not answer, or the worker's clock and this one differ too much to tell."""


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """One link now. Sums and maxima are over partitions, None where they cannot be known; of a promoted link without
    the canary's, which nobody misses.

    `worker` is the one whose heartbeat stands in the link's state, "" where none does; `heartbeat_age_ms` is by the
    clock of who looked. `partition_lags` begins with the partitions that stand still, and has not the `lags_unknown`,
    those of which nobody can tell it now. `groups_waiting` are the groups
    with an offset that is not carried over, those that failed as a whole among them; nothing is known of groups before
    the link first looked at them, and while one was never synced there is no `oldest_group_sync_at_ms`. `holds` are the
    partitions, or whole topics, that should be mirrored and are not, beside those at gaps; None while a site does not
    answer. `topics_paused`: by a person, whether or not a worker has seen it yet. `acls`: what the
    worker last found of them, where it carries any. `split`: who writes since the target took over; None where it did
    not, or that is not known.
    """

    link: str
    source: str
    target: str
    condition: LinkCondition
    source_answers: bool
    target_answers: bool
    topics: int | None
    partitions: int | None
    lag_records: int | None
    lag_bytes: int | None
    lag_seconds: float | None
    lag_is_estimated: bool
    partitions_stopped: int | None
    partitions_held: int | None
    worker: str
    heartbeat_at_ms: int | None
    heartbeat_age_ms: int | None
    restarts: int
    restart_reason: str
    last_seen_at_ms: int | None
    groups: int | None
    groups_waiting: int | None
    groups_failed: int | None
    groups_looked_at_ms: int | None
    groups_never_synced: int | None
    oldest_group_sync_at_ms: int | None
    findings: tuple[LinkFinding, ...]
    acls: AclLook | None
    holds: tuple[Hold, ...] | None
    topics_paused: tuple[str, ...] | None
    split: Split | None
    gaps: tuple[Gap, ...]
    partition_lags: tuple[PartitionLag, ...]
    lags_unknown: tuple[TopicPartition, ...]
    trouble: str


async def link_statuses(
    links: Sequence[Link], heartbeats: HeartbeatWatch, readers: StateReaders | None = None
) -> list[LinkStatus]:
    """Look at all of them at once, in their order. `heartbeats` remembers the looks before."""
    async with asyncio.TaskGroup() as group:
        looks = [group.create_task(link_status(link, heartbeats, readers)) for link in links]
    return [look.result() for look in looks]


async def link_status(link: Link, heartbeats: HeartbeatWatch, readers: StateReaders | None = None) -> LinkStatus:
    """Look at both sites; one that does not answer is part of the answer, not an error."""
    async with AsyncExitStack() as stack:
        trouble: list[str] = []
        locked: dict[str, str] = {}
        source = await _enter(stack, link.source, trouble, locked)
        target = await _enter(stack, link.target, trouble, locked)
        state: LinkState | None = None
        look: LinkLook | None = None
        state_lost = has_copies = False
        acls: AclRecord | ClientError | None = None
        try:
            if target is not None:
                state = await load_partial_state(link, target, readers.of(link) if readers is not None else None)
                acls = await acls_of(link, target)
                if not state.entries.exists:
                    state_lost = any(one.link == link.name for one in await registered_at(target))
            if source is not None and target is not None and state is not None:
                look = await look_at_link(link, source, target, state)
                has_copies = await _has_copies(link, source, target, state.entries)
        except FarshoreError as error:
            trouble.append(str(error))
        entries = state.entries if state is not None else None
        heartbeat = heartbeats.judge_units(link.name, entries.owners() if entries is not None else {0: None})
        answers = (source is not None, target is not None)
        told = "; ".join(trouble)
        found = summarise(link, answers, entries, look, heartbeat, told, locked, state_lost=state_lost, acls=acls)
        return _untold(found) if has_copies else found


def _untold(found: LinkStatus) -> LinkStatus:
    """Without its lags, which count what it leaves out."""
    counted = (TopicPartition(lag.topic, lag.partition) for lag in found.partition_lags)
    unknown = tuple(sorted({*found.lags_unknown, *counted}))
    return replace(found, lag_records=None, lag_bytes=None, lag_seconds=None, partition_lags=(), lags_unknown=unknown)


async def _has_copies(link: Link, source: Cluster, target: Cluster, entries: StateEntries) -> bool:
    """Whether the link never ran, and a link back brought its source what the target has: it leaves that out, and how
    much is to come is not known before it has read the logs.
    """
    if condition_of(entries) is not LinkCondition.NEVER_RAN:
        return False
    writers = {one.link for one in await registered_at(source)}
    return bool(writers) and any(
        back.name in writers for back in (await complete_link(link, source, target)).reverse_links
    )


async def acls_of(link: Link, target: Cluster) -> AclRecord | ClientError | None:
    """What its worker keeps of ACLs, or why that cannot be read; None: the link carries none."""
    if not link.sync_acls:
        return None
    try:
        return await read_record(link, target)
    except ClientError as error:
        return error


def summarise(
    link: Link,
    answers: tuple[bool, bool],
    entries: StateEntries | None,
    look: LinkLook | None,
    heartbeat: Heartbeat,
    trouble: str,
    locked: Mapping[str, str] = NOT_LOCKED,
    *,
    state_lost: bool = False,
    acls: AclRecord | ClientError | None = None,
) -> LinkStatus:
    """Put together what was seen; the arguments are as `link_findings` has them. Pure."""
    lags, unknown = (look.lags.lags, look.lags.unknown) if look is not None else ((), {})
    condition = condition_now(entries, heartbeat)
    counted = [lag for lag in lags if _counts(link, condition, lag.topic)]
    amounts_known = look is not None and not any(_counts(link, condition, where.topic) for where in unknown)
    stopped, owner = (entries.open_gaps(), entries.most_restarted()) if entries is not None else ({}, None)
    groups = entries.groups if entries is not None else GroupSyncs()
    synced = groups.synced_at_ms
    groups_known = entries is not None and not (link.groups and groups.looked_at_ms is None and not groups.names)
    found = link_findings(link, answers, entries, look, heartbeat, trouble, locked, state_lost=state_lost, acls=acls)
    return LinkStatus(
        link=link.name,
        source=link.source.name,
        target=link.target.name,
        condition=condition,
        source_answers=answers[0],
        target_answers=answers[1],
        topics=None if look is None else len({lag.topic for lag in lags} | {where.topic for where in unknown}),
        partitions=None if look is None else len(lags) + len(unknown),
        lag_records=sum(lag.lag_records for lag in counted) if amounts_known else None,
        lag_bytes=_known(sum, [lag.lag_bytes for lag in counted]) if amounts_known else None,
        lag_seconds=_known(max, [0.0, *(lag.lag_seconds for lag in counted)]) if amounts_known else None,
        lag_is_estimated=any(lag.lag_bytes_estimated or lag.lag_records_estimated for lag in counted),
        partitions_stopped=None if entries is None else len(stopped),
        partitions_held=None if look is None else len(look.holds),
        worker=heartbeat.worker,
        heartbeat_at_ms=heartbeat.at_ms,
        heartbeat_age_ms=heartbeat.age_ms,
        restarts=owner.restarts if owner is not None else 0,
        restart_reason=owner.restart_reason if owner is not None else "",
        last_seen_at_ms=_last_seen_at_ms(entries),
        groups=len(groups.names) if groups_known else None,
        groups_waiting=len(groups.waiting()) if groups_known else None,
        groups_failed=sum(bool(entry.failure) for entry in groups.by_group.values()) if groups_known else None,
        groups_looked_at_ms=groups.looked_at_ms,
        groups_never_synced=len(groups.names - synced.keys()) if groups_known else None,
        oldest_group_sync_at_ms=min(synced.values(), default=None) if groups.names <= synced.keys() else None,
        findings=found,
        acls=acls.look if isinstance(acls, AclRecord) else None,
        holds=None if look is None else look.holds,
        topics_paused=entries.paused_topics() if entries is not None else None,
        split=look.split if look is not None and isinstance(look.split, Split) else None,
        gaps=tuple(entries.gaps.values()) if entries is not None else (),
        partition_lags=tuple(sorted(lags, key=lambda lag: (lag.topic, lag.partition) not in stopped)),
        lags_unknown=tuple(sorted(unknown)),
        trouble=trouble,
    )


def _last_seen_at_ms(entries: StateEntries | None) -> int | None:
    checkpoints = entries.checkpoints.values() if entries is not None else ()
    return max((checkpoint.observed_at_ms for checkpoint in checkpoints), default=None)


def _counts(link: Link, condition: LinkCondition, topic: str) -> bool:
    """Whether a link's lag is of this topic too: that of a promoted one is what only the source has of people's."""
    return condition is not LinkCondition.PROMOTED or topic != link.canary_topic


def condition_now(entries: StateEntries | None, heartbeat: Heartbeat) -> LinkCondition:
    """The one word for a link: what its state says, and whether its worker lives."""
    condition = condition_of(entries)
    if condition not in (LinkCondition.RUNNING, LinkCondition.STOPPED_PARTITIONS):
        return condition
    if heartbeat.pulse is not Pulse.ALIVE:
        return _OF_PULSE.get(heartbeat.pulse, LinkCondition.UNKNOWN)
    owner = entries.most_restarted() if entries is not None else None
    return LinkCondition.RESTARTING if owner and owner.restarts >= RESTARTS_IN_A_LOOP else condition


_OF_PULSE: Final = MappingProxyType({Pulse.SILENT: LinkCondition.SILENT, Pulse.AWAITED: LinkCondition.AWAITED})


def _known(combine: Callable[[Sequence[T]], T], values: Sequence[T | None]) -> T | None:
    """What the values come to; unknown where one of them is."""
    known = [value for value in values if value is not None]
    return combine(known) if len(known) == len(values) else None


def condition_of(entries: StateEntries | None) -> LinkCondition:
    """The one word for a link's state topic, whoever lives; None: it could not be read."""
    if entries is None:
        return LinkCondition.UNKNOWN
    if entries.run is not None and entries.run.state is RunState.PROMOTED:
        return LinkCondition.PROMOTED
    if entries.run is not None and entries.run.state is RunState.PAUSED:
        return LinkCondition.PAUSED
    if entries.open_gaps():
        return LinkCondition.STOPPED_PARTITIONS
    return LinkCondition.RUNNING if entries.exists and entries.owner is not None else LinkCondition.NEVER_RAN


async def _enter(stack: AsyncExitStack, site: Site, trouble: list[str], locked: dict[str, str]) -> Cluster | None:
    try:
        return await stack.enter_async_context(Cluster(site, client_id="farshore-status", limits=STATUS_LIMITS))
    except FarshoreError as error:
        trouble.append(str(error))
        if isinstance(error, NOT_LET_IN):
            locked[site.name] = str(error)
        return None
