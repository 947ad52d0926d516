"""The looks that a drill is judged from. It changes nothing at either site."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

from broker.base.errors import FarshoreError
from broker.client.cluster import Cluster
from broker.client.durable_topics import FewReplicas
from broker.client.fanout import both
from broker.client.site_role import site_standing
from broker.client.site_start import brokers_starting_active
from failover.contact import CLIENT_ID
from failover.drill import NONE_PENDING, OPEN, AuditNote, LinkDrill, TargetGates, judge_drill
from failover.drill_findings import DrillFinding
from failover.elsewhere import look_elsewhere
from failover.errors import NewerVersion, OperationUnderWay
from failover.freezing import read_roles, with_denials
from failover.gates import RefusalReason
from failover.journal_log import load_operations
from failover.limits import DRILL_PENDING_S
from failover.observe import observe
from failover.open_transactions import PendingOffsets, pending_groups, watch_pending
from failover.own_topics import look_for_few_replicas, of_few_replicas
from failover.partings import target_lacks
from failover.seen_by_worker import WorkersSight, watching
from failover.sites import Sites
from failover.snapshot import Snapshot
from failover.standing import refuse_second
from failover.what_stays import OtherGroups, other_groups, what_stays
from mirror.api import STATUS_LIMITS, GroupSyncs, HeartbeatWatch, Link, complete_link, link_status, read_entries


async def drill_link(
    link: Link, heartbeats: HeartbeatWatch, audit: AuditNote, now_ms: Callable[[], int], links: Sequence[Link] = ()
) -> LinkDrill:
    """Look at the link as it is, and as it would be seen if its source were dead. A lost site is a finding, and so is
    what could not be looked at. `links`: all of the file.
    """
    status, looks = await both(link_status(link, heartbeats), _looks(link, links, now_ms))
    seen = (looks.blind, looks.live, looks.syncs, audit, now_ms(), looks.trouble, looks.gates)
    drill = judge_drill(status, *seen, returns_active=looks.returns_active, pending=looks.pending)
    more = (
        *(_seen(link) if looks.is_seen_by_worker else ()),
        *_other_types(looks.live),
        *of_few_replicas(looks.few_replicas, link.target.name),
    )
    seen_last = looks.live or looks.blind
    stays = () if seen_last is None else what_stays(seen_last, looks.others)
    return replace(drill, findings=(*drill.findings, *more), is_ready=drill.is_ready and not more, stays=stays)


def _seen(link: Link) -> Iterable[DrillFinding]:
    """Beside the lost site."""
    text = f"no broker of it answers here, and meanwhile it answered the worker of {link.name}: it is not lost"
    step = "see why this machine does not reach it, and run commands where it is reached"
    yield DrillFinding(RefusalReason.SOURCE_SEEN_BY_WORKER.value, link.source.name, text, step)


def _other_types(live: Snapshot | None) -> Iterable[DrillFinding]:
    """What refuses a switchover, and no failover."""
    for group in live.groups if live is not None and not live.is_promoted else ():
        if group.other_type:
            text = f"it is of type {group.other_type}, and nobody tells what its members at the source read"
            step = f"a switchover wants it stopped, or --leave-group {shlex.quote(group.group)}"
            yield DrillFinding(RefusalReason.GROUP_OF_OTHER_TYPE.value, group.group, text, step)


@dataclass(frozen=True, slots=True)
class _Looks:
    """With the source dead, and as it is; None where a site does not tell, and then why."""

    blind: Snapshot | None = None
    live: Snapshot | None = None
    syncs: GroupSyncs = field(default_factory=GroupSyncs)
    trouble: str = ""
    gates: TargetGates = OPEN
    returns_active: tuple[int, ...] = ()
    pending: PendingOffsets = NONE_PENDING
    is_seen_by_worker: bool = False
    others: OtherGroups = field(default_factory=OtherGroups)
    few_replicas: tuple[FewReplicas, ...] = ()


async def _looks(link: Link, links: Sequence[Link], now_ms: Callable[[], int]) -> _Looks:
    async with AsyncExitStack() as stack:
        try:
            target = await stack.enter_async_context(_cluster(link, at_source=False))
            blind = await observe(link, None, target, (), now_ms(), target_in_part=True)
            entries, few = await both(read_entries(link, target), look_for_few_replicas(link, target))
            gates = await _gates(link, links, target, blind, now_ms)
            seen = _Looks(blind, None, entries.groups, "", gates, few_replicas=few)
        except FarshoreError as error:
            return _Looks(trouble=str(error))
        sight = WorkersSight([link], target)
        try:
            async with watching(sight):
                source = await stack.enter_async_context(_cluster(link, at_source=True))
            looking = observe(link, source, target, (), now_ms(), target_in_part=True)
            live, others = await both(looking, other_groups(link, source))
            lacks = await target_lacks(await complete_link(link, source, target), source, target)
            active = await _returning_active(link, source)
            pending = await _pending(Sites(link, source, target, (), now_ms), live)
            gates = replace(seen.gates, lacks=lacks)
            return replace(seen, live=live, gates=gates, returns_active=active, pending=pending, others=others)
        except FarshoreError as error:
            return replace(seen, trouble=str(error), is_seen_by_worker=bool(sight.links))


async def _pending(sites: Sites, live: Snapshot) -> PendingOffsets:
    """As the drain of a switchover asks, which a moved link has no more."""
    if live.is_promoted:
        return PendingOffsets(frozenset(live.pending_groups))
    return await watch_pending(
        lambda groups: pending_groups(replace(sites, groups=tuple(groups)), live), DRILL_PENDING_S
    )


async def _returning_active(link: Link, source: Cluster) -> tuple[int, ...]:
    """Brokers of the source that would take writes to the link's topics as soon as they are back from its loss."""
    standing = await site_standing(source)
    if standing is None or standing.covers(link.topics):
        return ()
    return await brokers_starting_active(source)


async def _gates(
    link: Link, links: Sequence[Link], target: Cluster, blind: Snapshot, now_ms: Callable[[], int]
) -> TargetGates:
    topics = {view.topic for view in blind.partitions}
    elsewhere = await look_elsewhere(link, links, topics)
    freezing = await with_denials(await read_roles(link, None, target), None, target)
    try:
        refuse_second(await load_operations(target), (link.source.name, link.target.name), now_ms())
    except (OperationUnderWay, NewerVersion) as error:
        return TargetGates(freezing, error, elsewhere)
    return TargetGates(freezing, None, elsewhere)


def _cluster(link: Link, *, at_source: bool) -> Cluster:
    return Cluster(link.source if at_source else link.target, client_id=CLIENT_ID, limits=STATUS_LIMITS)
