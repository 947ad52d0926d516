"""The looks that a drill is judged from. It changes nothing at either site."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from broker.base.errors import FarshoreError
from broker.client.cluster import Cluster
from broker.client.durable_topics import FewReplicas
from broker.client.fanout import both
from broker.client.site_role import site_standing
from broker.client.site_start import brokers_starting_active
from failover.drilling.drill import NONE_PENDING, OPEN, AuditNote, LinkDrill, TargetGates, judge_drill
from failover.drilling.foreseen import (
    of_freeze,
    of_held_at_target,
    of_other_types,
    of_seen_by_worker,
    of_switchover,
    of_way_back,
)
from failover.drilling.moved import MovedLink, look_at_moved
from failover.drilling.own_topics import look_for_few_replicas, of_few_replicas
from failover.errors import FreezeNotAllowed, NewerVersion, OperationUnderWay
from failover.freezing.acl_rights import refuse_first_acls
from failover.freezing.choice import UNFROZEN, Freezing, read_roles, with_denials
from failover.journal.standing import refuse_second
from failover.limits import DRILL_PENDING_S
from failover.losses.left_records import count_left
from failover.observing.contact import CLIENT_ID, SiteFinding
from failover.observing.elsewhere import look_elsewhere
from failover.observing.moved_back import moved_back_by
from failover.observing.observe import observe
from failover.observing.open_transactions import PendingOffsets, still_pending, watch_pending
from failover.observing.partings import target_lacks
from failover.observing.readers import Journals, Readers
from failover.observing.seen_by_worker import WorkersSight, watching
from failover.observing.sites import Sites
from failover.observing.snapshot import Snapshot
from failover.observing.upstream import look_above_lost, not_among
from failover.observing.what_stays import OtherGroups, other_groups, what_stays
from failover.planning.moves import plan_moves
from failover.running.verification import pending_moves
from mirror.api import (
    STATUS_LIMITS,
    CarriedBack,
    GroupSyncs,
    HeartbeatWatch,
    Link,
    SourceParting,
    carried_back,
    complete_link,
    link_status,
    read_entries,
)

T = TypeVar("T")


async def drill_link(
    link: Link,
    heartbeats: HeartbeatWatch,
    audit: AuditNote,
    now_ms: Callable[[], int],
    links: Sequence[Link] = (),
    journals: Journals | None = None,
    *,
    reads_stranded: bool = True,
) -> LinkDrill:
    """Look at the link as it is, and as it would be seen if its source were dead. A lost site is a finding, and so is
    what could not be looked at. `links`: all of the file. `journals`: of who drills several links.
    Not `reads_stranded`: who drills again and again, and does not read each time what the source of a moved link has.
    """
    readers = Readers.among(journals if journals is not None else {}, link.target.name)
    status, looks = await both(
        link_status(link, heartbeats), _looks(link, links, now_ms, readers, reads_stranded=reads_stranded)
    )
    seen = (looks.blind, looks.live, looks.syncs, audit, now_ms(), looks.trouble, looks.gates)
    drill = judge_drill(status, *seen, returns_active=looks.returns_active, pending=looks.pending, moved=looks.moved)
    told = {(one.kind, one.subject) for one in drill.findings}
    more = (
        *(of_seen_by_worker(link) if looks.is_seen_by_worker else ()),
        *of_other_types(looks.live),
        *of_held_at_target(looks.held, link.target.name),
        *of_few_replicas(looks.few_replicas, link.target.name),
        *of_switchover(looks.live, looks.freezing, looks.gates.elsewhere, told),
        *of_freeze(link.source.name, looks.no_freeze),
        *of_way_back(link.name, link.source.name, looks.back),
    )
    drill = replace(drill, findings=(*drill.findings, *more), is_ready=drill.is_ready and not more)
    if (seen_last := looks.live or looks.blind) is None:
        return drill
    return replace(drill, stays=what_stays(seen_last, looks.others), left_at_source=seen_last.left_at_source)


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
    freezing: Freezing = UNFROZEN
    no_freeze: FreezeNotAllowed | None = None
    back: CarriedBack = field(default_factory=CarriedBack)
    moved: MovedLink | None = None
    held: frozenset[str] = frozenset()
    """Groups at the target in transactions that do not end."""


async def _looks(
    link: Link, links: Sequence[Link], now_ms: Callable[[], int], readers: Readers, *, reads_stranded: bool
) -> _Looks:
    async with AsyncExitStack() as stack:
        try:
            target = await stack.enter_async_context(_cluster(link, at_source=False))
            blind = await observe(link, None, target, (), now_ms(), target_in_part=True)
            entries, few = await both(read_entries(link, target), look_for_few_replicas(link, target))
            gates, held = await both(
                _gates(link, links, target, blind, now_ms, readers), _held_at_target(target, blind)
            )
            if blind.is_promoted:
                is_untold = blind.operation_id not in await readers.operations.read(target)
                back_by = await moved_back_by(Sites(link, None, target, (), now_ms))
                blind = replace(blind, is_untold=is_untold, moved_back_by=back_by)
            mirrored = {view.target_topic for view in blind.partitions if view.mirrored_source_next is not None}
            back = carried_back(link, links, mirrored)
            seen = _Looks(blind, None, entries.groups, "", gates, few_replicas=few, back=back, held=held)
        except FarshoreError as error:
            return _Looks(trouble=str(error))
        sight = WorkersSight([link], target)
        try:
            async with watching(sight):
                source = await stack.enter_async_context(_cluster(link, at_source=True))
            sites = Sites(link, source, target, (), now_ms, readers=readers)
            return await _at_source(seen, sites, reads_stranded=reads_stranded)
        except FarshoreError as error:
            return replace(seen, trouble=str(error), is_seen_by_worker=bool(sight.links))


async def _at_source(seen: _Looks, sites: Sites, *, reads_stranded: bool) -> _Looks:
    """`seen`, with what the source tells: where that is not all, what it does tell, and why there is no more. Raises
    FarshoreError where it tells nothing.
    """
    link, source, target = sites.link, sites.source, sites.target
    assert source is not None, "it was called"
    untold: list[str] = []

    async def told(asked: Awaitable[T], instead: T) -> T:
        try:
            return await asked
        except FarshoreError as error:
            untold.append(str(error))
            return instead

    async def missing() -> tuple[SourceParting, ...]:
        return await target_lacks(await complete_link(link, source, target), source, target)

    looking = told(observe(link, source, target, (), sites.now_ms(), target_in_part=True, readers=sites.readers), None)
    live, others = await both(looking, other_groups(link, source))
    if live is None:
        live = await replace(sites, in_part=True).look_past_source(patience_s=0)
        if live.source_finding.is_gone:
            return replace(seen, trouble=untold[0])
        if live.source_finding is SiteFinding.ALIVE:  # by now
            untold.clear()
    live = replace(live, left_at_source=await count_left(sites, live.left_at_source))
    lacks = await told(missing(), ())
    active = await told(_returning_active(link, source), ())
    pending = await told(_pending(source, live), PendingOffsets(frozenset(live.pending_groups)))
    freezing = await told(read_roles(link, source, target), seen.freezing)
    no_freeze = None if live.is_promoted else await told(_no_freeze(source, freezing, live), None)
    moved = MovedLink(why_not_known="it was not read") if live.is_promoted else None
    if moved is not None and reads_stranded:
        moved = await look_at_moved(link, source, target)
    gates, trouble = replace(seen.gates, lacks=lacks), "; ".join(dict.fromkeys(untold))
    seen = replace(seen, live=live, gates=gates, returns_active=active, pending=pending, others=others)
    return replace(seen, freezing=freezing, no_freeze=no_freeze, moved=moved, trouble=trouble)


async def _no_freeze(source: Cluster, freezing: Freezing, live: Snapshot) -> FreezeNotAllowed | None:
    """Why ACLs would not close it. That farshore may make them is asked of whoever moves: a drill need not."""
    try:
        await refuse_first_acls(source, freezing.topics, {view.topic for view in live.partitions})
    except FreezeNotAllowed as error:
        return error
    return None


async def _pending(source: Cluster, live: Snapshot) -> PendingOffsets:
    """As the drain of a switchover asks, which a moved link has no more."""
    if live.is_promoted:
        return PendingOffsets(frozenset(live.pending_groups))
    return await watch_pending(live.pending_groups, partial(still_pending, source, live), DRILL_PENDING_S)


async def _held_at_target(target: Cluster, blind: Snapshot) -> frozenset[str]:
    """Groups that a failover would find in a transaction there. The mirror commits in such, too, which end soon."""
    moves = () if blind.is_promoted else tuple(plan_moves(blind))

    async def look(groups: Collection[str]) -> frozenset[str]:
        asked = [move for move in moves if move.group in groups]
        return frozenset(move.group for move in await pending_moves(target, blind, asked))

    first = await look({move.group for move in moves})
    return (await watch_pending(first, look, DRILL_PENDING_S)).held


async def _returning_active(link: Link, source: Cluster) -> tuple[int, ...]:
    """Brokers of the source that would take writes to the link's topics as soon as they are back from its loss."""
    standing = await site_standing(source)
    if standing is None or standing.covers(link.topics):
        return ()
    return await brokers_starting_active(source)


async def _gates(
    link: Link,
    links: Sequence[Link],
    target: Cluster,
    blind: Snapshot,
    now_ms: Callable[[], int],
    readers: Readers,
) -> TargetGates:
    topics = {view.topic for view in blind.partitions}
    above_lost = look_above_lost(link, () if blind.is_promoted else links, topics)  # groups that stayed follow a move
    elsewhere, above = await both(look_elsewhere(link, links, topics, readers=readers), above_lost)
    elsewhere = (*elsewhere, *not_among(elsewhere, above))
    freezing = await with_denials(await read_roles(link, None, target), None, target)
    try:
        refuse_second(await readers.operations.read(target), (link.source.name, link.target.name), now_ms())
    except (OperationUnderWay, NewerVersion) as error:
        return TargetGates(freezing, error, elsewhere)
    return TargetGates(freezing, None, elsewhere)


def _cluster(link: Link, *, at_source: bool) -> Cluster:
    return Cluster(link.source if at_source else link.target, client_id=CLIENT_ID, limits=STATUS_LIMITS)
