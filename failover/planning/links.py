"""From what was asked for to a plan per link: both sites called, looked at, and judged."""

from __future__ import annotations

import asyncio
import getpass
import os
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace

from broker.base.errors import FarshoreError, first_of
from broker.base.time_limits import timeout
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.fanout import both, side_by_side
from broker.client.groups import list_groups
from broker.client.topics import list_topics
from failover.freezing.away import with_beside, with_kept
from failover.freezing.choice import Freezing, read_roles, with_denials
from failover.freezing.hooks import Hooks
from failover.journal.standing import is_verified, under_way
from failover.limits import DRAIN_POLL_S, LACKS_IN_PART_S, SOURCE_ROLE_S
from failover.losses.lacked import count_lacked, find_lacked
from failover.losses.left_records import count_left
from failover.observing.contact import AHEAD_OF_FENCE, CLIENT_ID, UNTIL_DEAD, Patience, SiteFinding, reach
from failover.observing.elsewhere import look_elsewhere
from failover.observing.held_silence import held_silence
from failover.observing.moved_back import moved_back_by
from failover.observing.observe import kept_brokers
from failover.observing.partings import parted_within, target_lacks
from failover.observing.readers import Readers
from failover.observing.seen_by_worker import WorkersSight
from failover.observing.sites import Sites
from failover.observing.snapshot import Snapshot
from failover.observing.upstream import look_above_lost, look_upstream, not_among
from failover.observing.what_stays import others_beside, shared_of, what_stays
from failover.planning.intent import Intent
from failover.planning.moves import with_lacked_skips
from failover.planning.not_named import groups_not_named
from failover.planning.plan import Elsewhere, plan_failover, plan_switchover
from failover.planning.settling import Settling, SiteUnanswered, is_target_in_part, may_pass
from failover.planning.site_plan import SourceNames
from failover.planning.to_datetime import moves_to
from failover.running.link_run import LinkMove
from failover.running.steps import Operation
from mirror.api import Link, MirrorError, SourceBrokers, SourceParting


async def mark_interrupted(snapshot: Snapshot, sites: Sites) -> Snapshot:
    """The snapshot, marked where the operation that promoted the link never came to a verified end that its journal
    tells of; one that is damaged tells of none. Of one that did, or of which the journal has nothing, where its clients
    went back since. Raises NewerVersion, ClientError, StateDamaged.
    """
    if not snapshot.is_promoted:
        return snapshot
    log = (await sites.readers.operations.read(sites.target)).get(snapshot.operation_id)
    if log is not None:
        log.check_version()
    if log is not None and not is_verified(log):
        return replace(snapshot, interrupted=True)
    back_by = await moved_back_by(sites)
    return replace(snapshot, interrupted=False, is_untold=log is None, moved_back_by=back_by)


def this_process() -> str:
    """Who carries an operation on, as other operators are told."""
    return f"{getpass.getuser()} on {socket.gethostname()}, process {os.getpid()}"


async def enter_sites(
    stack: AsyncExitStack,
    link: Link,
    groups: tuple[str, ...],
    now_ms: Callable[[], int],
    *,
    looks_ahead: bool = False,
    beside: Sequence[Link] = (),
    patience: Patience = UNTIL_DEAD,
) -> Sites:
    """Both clusters; the source is None when none of its brokers lets it be asked, also of those that the link's worker
    knew and the file does not name. The source is called from the first moment on, however far the target is;
    `looks_ahead`: that is looked at meanwhile. Meanwhile it is also watched whether the workers of the link, and of
    those `beside` it, see the source. `patience`: as `reach` has it; where nothing was heard that is held on to.

    Raises ClientError where the target does not answer: nothing can be planned then, nor any journal be read.
    """
    target, readers = Cluster(link.target, client_id=CLIENT_ID), Readers()
    alone = Sites(link, None, target, groups, now_ms, readers=readers)
    sight = WorkersSight((link, *beside), target)
    try:
        async with asyncio.TaskGroup() as tasks:
            entering = tasks.create_task(stack.enter_async_context(target))

            async def kept() -> SourceBrokers:
                await asyncio.wait([entering])  # not by itself: who is cancelled here would take it along
                return await kept_brokers(link, entering.result())

            calling = tasks.create_task(reach(stack, link.source, now_ms, kept, patience))
            await entering
            begun = tasks.create_task(readers.begin(link, target))
            looking = tasks.create_task(_look_ahead(begun, alone)) if looks_ahead else None
            watching = tasks.create_task(sight.watch())
            source, answers, calls = await calling
            if source is None and patience == UNTIL_DEAD:
                await sight.settle(calls.last_call_ends_s)
            watching.cancel()
            if source is not None and looking is not None:
                looking.cancel()
    except BaseExceptionGroup as errors:
        raise first_of(errors) from None
    if source is None and sight.links:  # it grows: what was told of it at first is old
        return replace(alone, answers=answers, seen_by=sight.links)
    if source is not None:
        return replace(alone, source=source, answers=answers)
    silence = await stack.enter_async_context(held_silence(link.source.name, calls, sight))
    ahead = looking.result() if looking is not None else None
    return replace(alone, answers=answers, ahead=ahead, silence=silence)


async def _look_ahead(begun: asyncio.Task[None], alone: Sites) -> Snapshot | None:
    """None where the target does not tell all: whoever looks for good asks again, and is told why."""
    await asyncio.wait([begun])
    with suppress(ClientError, MirrorError):
        seen = await alone.look_past_source(patience_s=0)
        return None if seen.unanswered else seen
    return None


async def enter_links(
    stack: AsyncExitStack,
    links: Sequence[Link],
    intent: Intent,
    now_ms: Callable[[], int],
    declared: tuple[Link, ...],
    *,
    goes_on: bool = False,
) -> list[Sites]:
    """As `enter_sites`, of the intent's links, which all go from one site to another: each is called once. `declared`:
    all links. `goes_on`: nobody is asked or told before the fence, which is held until a source has been silent for as
    long as one is that is found dead.
    """
    if intent.no_groups:
        links = [replace(link, groups=()) for link in links]
    is_failover = intent.operation is Operation.FAILOVER
    is_expected = intent.even_if_source_answers or intent.even_if_source_partly_there  # it has its time to say so
    first = await enter_sites(
        stack,
        links[0],
        intent.groups,
        now_ms,
        looks_ahead=is_failover,
        beside=links[1:],
        patience=AHEAD_OF_FENCE if is_failover and goes_on and not is_expected else UNTIL_DEAD,
    )
    return [
        replace(first, link=link, links=declared, ahead=first.ahead if link is links[0] else None) for link in links
    ]


async def plan_links(
    intent: Intent, sites: Sequence[Sites], hooks: Hooks
) -> tuple[list[LinkMove], dict[str, FarshoreError]]:
    """Each link by itself, side by side -> their plans, and why one could not be looked at. Where none could, raises
    what the first of them does.
    """
    looked = await side_by_side(_plan_or_error(intent, one, hooks) for one in sites)
    failed = {
        one.link.name: found for one, found in zip(sites, looked, strict=True) if isinstance(found, FarshoreError)
    }
    if len(failed) == len(sites):
        raise next(iter(failed.values()))
    return [found for found in looked if isinstance(found, LinkMove)], failed


async def _plan_or_error(intent: Intent, sites: Sites, hooks: Hooks) -> LinkMove | FarshoreError:
    try:
        return await plan_or_refuse(intent, sites, hooks)
    except FarshoreError as error:
        return error


async def plan_or_refuse(intent: Intent, sites: Sites, hooks: Hooks, *, waits: bool = True) -> LinkMove:
    """As `plan_link`, of a move that has not begun: a switchover whose source does not answer wholly is refused as
    that, whatever of it was asked for in vain; but a source that just loses a broker has the time to notice it, where
    it `waits`. Raises SiteUnanswered, and as `plan_link` for all else.
    """
    settling = Settling(sites.source if waits else None)
    while True:
        try:
            move = await plan_link(intent, sites, hooks)
            if not settling.awaits(move.plan):
                return move
        except ClientError as error:
            if intent.operation is not Operation.SWITCHOVER or not may_pass(error):  # what is not answers, and says no
                raise
            seen = await sites.look_past_source(patience_s=0)
            if not settling.goes_on(seen):
                return await _refused(intent, sites, hooks, seen, (error, settling.seconds))
        if sites.source is not None:
            sites.source.set_aside(())
        await asyncio.sleep(DRAIN_POLL_S)


async def _refused(
    intent: Intent, sites: Sites, hooks: Hooks, seen: Snapshot, untold: tuple[ClientError, float]
) -> LinkMove:
    """The plan of a switchover that is refused, as the source does not answer wholly. `untold`: what came of asking it,
    and for how many seconds. Raises SiteUnanswered where it does by now.
    """
    if seen.source_answers:
        site = seen.target if is_target_in_part(seen) else f"{seen.source} or {seen.target}"
        raise SiteUnanswered(untold[0], site, untold[1]) from untold[0]
    named = sites.link.named_topics | {view.topic for view in seen.partitions}
    freezing = await _freezing_source(sites, hooks, named, intent.whole_site)
    plan = plan_switchover(
        seen,
        left_groups=intent.left_groups,
        set_back_groups=intent.set_back_groups,
        freezing=replace(freezing, freezes=intent.freezes, hooks=hooks),
    )
    return LinkMove(plan, sites.as_found(seen))


async def refuse_heard(refused: LinkMove) -> None:
    """Raise SourceHeard where a source that was found dead speaks before it counts as dead: then it is not told as
    that, whatever else the move is refused for.
    """
    if refused.plan.snapshot.source_finding is SiteFinding.DEAD:
        await refused.sites.still_silent()


async def source_names(source: Cluster | None) -> SourceNames:
    """Its topics and groups, as far as it tells them in time."""
    if source is not None:
        with suppress(ClientError, TimeoutError):
            async with timeout(SOURCE_ROLE_S):
                topics, groups = await both(list_topics(source), list_groups(source))
                shared = shared_of(groups)
                return SourceNames(frozenset(topics), frozenset(groups) - shared, shared)
    return SourceNames()


async def plan_link(intent: Intent, sites: Sites, hooks: Hooks) -> LinkMove:
    """Look, and say what would be done. Raises FreezeNotAllowed, ClientError, MirrorError, NewerVersion."""
    if intent.operation is Operation.SWITCHOVER:
        roles = await read_roles(sites.link, sites.source, sites.target, whole_site=intent.whole_site)
        roles, named = replace(roles, freezes=intent.freezes), sites.link.named_topics
        freezing = await with_denials(roles, sites.source, sites.target, named)
        freezing = await with_kept(with_beside(freezing, sites.link, sites.links), sites)
        (sites, snapshot), others = await both(_look_compared(sites, Sites.look), others_beside(sites))
        lacks = await _lacks(sites)
        snapshot = replace(await mark_interrupted(snapshot, sites), lacked=await count_lacked(sites, lacks))
        snapshot = replace(snapshot, left_at_source=await count_left(sites, snapshot.left_at_source))
        plan = plan_switchover(
            snapshot,
            left_groups=intent.left_groups,
            set_back_groups=intent.set_back_groups,
            freezing=replace(freezing, hooks=hooks),
            elsewhere=await _elsewhere(sites, snapshot, freezing),
            lacks=lacks,
        )
        return LinkMove(
            replace(plan, not_named=await groups_not_named(sites), stays=what_stays(snapshot, others)), sites
        )
    sites, seen = await _look_compared(sites, Sites.look_past_source)
    snapshot = await mark_interrupted(seen, sites)
    sites = sites.as_found(snapshot)
    lacks, lacked = await find_lacked(sites, snapshot)
    snapshot, sites = replace(snapshot, lacked=lacked), replace(sites, lacks=lacks, lacked=lacked)
    moves = None
    if intent.timestamp_ms is not None:
        found = await moves_to(snapshot, sites.target, intent.timestamp_ms)
        moves = tuple(with_lacked_skips(move, snapshot) for move in found)
    mirrored = sites.link.named_topics | {view.topic for view in snapshot.partitions}
    freezing, others = await both(_freezing_source(sites, hooks, mirrored, intent.whole_site), others_beside(sites))
    plan = plan_failover(
        snapshot,
        allow_data_loss=intent.allow_data_loss,
        even_if_source_answers=intent.even_if_source_answers,
        even_if_source_partly_there=intent.even_if_source_partly_there,
        moves=moves,
        left_groups=intent.left_groups,
        left_partitions=intent.left_partitions,
        set_back_groups=intent.set_back_groups,
        freezing=freezing,
        elsewhere=await _elsewhere(sites, snapshot, freezing),
        lacks=lacks,
    )
    not_named, stays = await groups_not_named(sites), what_stays(snapshot, others)
    return LinkMove(replace(plan, not_named=not_named, stays=stays), sites)


async def _look_compared(sites: Sites, look: Callable[[Sites], Awaitable[Snapshot]]) -> tuple[Sites, Snapshot]:
    """A worker that runs would have said where the source's log is another one by now; and nobody knows that one does.
    A switchover of a link that was moved before looks for what the source alone has.
    """
    seen = await look(sites)
    is_settled = look is Sites.look and seen.is_promoted
    if sites.source is None or not seen.is_source_there or is_settled:
        return sites, seen
    link = sites.readers.completed.get(sites.link.name, sites.link)
    parted = await parted_within(LACKS_IN_PART_S, link, sites.source, sites.target)
    if parted <= sites.parted:
        return sites, seen
    sites = replace(sites, parted=sites.parted | parted)
    return sites, await look(sites)


async def _lacks(sites: Sites) -> tuple[SourceParting, ...]:
    """Behind a look, which has completed the link."""
    if sites.source is None:
        return ()
    return await target_lacks(sites.readers.completed.get(sites.link.name, sites.link), sites.source, sites.target)


async def _elsewhere(sites: Sites, snapshot: Snapshot, freezing: Freezing) -> tuple[Elsewhere, ...]:
    """Where an operation is taken up, it says by itself that the source was left: who does not tell, and for whom the
    source stood by, was asked before.
    """
    topics = {view.topic for view in snapshot.partitions}
    found, above = await both(
        look_elsewhere(sites.link, sites.links, topics, readers=sites.readers),
        _upstream(sites, snapshot, freezing, topics),
    )
    above = not_among(found, above)
    is_untold = freezing.source_denials is not None and any(one.is_active is None for one in found)
    if not above and not is_untold:
        return found
    operations = await sites.readers.operations.read(sites.target)
    if not under_way(sites.link, operations, sites.target.clock.now_ms()):
        return (*found, *above)
    return tuple(one for one in found if one.is_active is not None or not is_untold)


async def _upstream(
    sites: Sites, snapshot: Snapshot, freezing: Freezing, topics: Collection[str]
) -> tuple[Elsewhere, ...]:
    """None of a link that was moved: the groups that stayed behind follow it."""
    if snapshot.is_promoted:
        return ()
    if sites.source is None:
        return await look_above_lost(sites.link, sites.links, topics)
    return await look_upstream(sites.link, sites.links, freezing, topics, sites.readers)


async def _freezing_source(sites: Sites, hooks: Hooks, mirrored: Collection[str], whole_site: bool) -> Freezing:
    """A source that is left becomes the standby site, as far as it is there."""
    roles = await read_roles(sites.link, sites.source, sites.target, whole_site=whole_site, even_without_source=True)
    freezing = replace(roles, freezes=True, hooks=replace(hooks, freeze=(), thaw=()))
    denied = await with_denials(freezing, sites.source, sites.target, mirrored, even_without_source=True)
    return await with_kept(with_beside(denied, sites.link, sites.links), sites)
