"""A move from the same site to a third one at the same time, or on from this one's target, or into its source: its
journal stands at its own target, and neither fences the other.

So it is asked before the fence, and before clients are let in again at a source that was frozen for a move in vain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from failover.errors import OperationUnderWay
from failover.limits import DRAIN_POLL_S, OTHERS_END_S
from failover.observing.elsewhere import look_elsewhere
from failover.observing.sites import Sites
from failover.observing.upstream import look_moving_in
from failover.planning.plan import Elsewhere, OperationPlan, may_be_second
from mirror.api import Link


async def refuse_third_site(plan: OperationPlan, sites: Sites) -> tuple[Elsewhere, ...]:
    """Raises OperationUnderWay where a third site has taken over topics of the move since the plan was made, or is
    about to, or the move's source is; also of one that is taken up, and has not opened its target yet. To be asked when
    this one's own first entry is written: then of two that begin at once one sees the other, or both do. Whoever did
    not tell when it was planned is not asked again: the plan said so, and the fence would wait for him.

    -> who does not tell now, and was not unknown then: he told, or nothing led to him yet. Where the plan would have
    been refused for him, this is, too; but for a source that ACLs close: those may be this operation's own by now.
    """
    link, seen = sites.link, plan.snapshot
    topics = {view.topic for view in seen.partitions}
    untold_then = _untold_then(plan, sites.links)
    found = await look_elsewhere(link, sites.links, topics, untold_then, readers=sites.readers)
    is_asked = sites.source is not None and not _is_source_untold(plan)
    if is_asked and (seen.interrupted or not seen.is_promoted):  # groups that stayed follow a move
        found = (*found, *await look_moving_in(link, sites.links, topics, sites.readers))
    for one in found:
        if one.operation_id or one.is_active:
            moves = f"{one.operation_id} takes", f"to {one.site}, or back from there"
            who, where = moves if one.operation_id else ("another operation moved", f"to {one.site}")
            second = f"beside it {link.target.name} would be a second active site; nothing more was changed"
            how = f"farshore operation show {one.operation_id}" if one.operation_id else "farshore operation list"
            raise OperationUnderWay(
                f"since the plan was made, {who} topics of {link.name} {where}: {second}",
                hint=f"`{how}` says how it ends, `farshore site role` who takes writes; then look again with --dry-run",
                subject=link.name,
                operation_id=one.operation_id,
            )
    silent = tuple(one for one in found if one.is_active is None and one.site not in untold_then)
    if maybe := [one for one in silent if plan.freezing.was_left_by_role and may_be_second(one, seen, plan.freezing)]:
        source, site = link.source.name, maybe[0].site
        raise OperationUnderWay(
            f"right before the fence {site} does not say whether it is active for topics of {link.name}, which the "
            f"plan did not have as unknown: {source} was left for good, so that two might be; nothing more was changed",
            hint=f"`farshore status --link {maybe[0].link}` has the reason; then look again with --dry-run",
            subject=link.name,
        )
    return silent


async def active_by_now(plan: OperationPlan, sites: Sites) -> frozenset[str]:
    """As `active_elsewhere`, of what is moved; who did not tell when it was planned is not asked. Looks again for
    OTHERS_END_S where nothing but operations that have not ended is in the way.
    """
    loop = asyncio.get_running_loop()
    until_s = loop.time() + OTHERS_END_S
    topics = {view.topic for view in plan.snapshot.partitions} | sites.link.named_topics
    while True:
        found = await _beside(sites, topics, _untold_then(plan, sites.links))
        if not found or not all(one.operation_id for one in found) or loop.time() > until_s:
            return frozenset(one.site for one in found)
        await asyncio.sleep(DRAIN_POLL_S)


async def active_elsewhere(sites: Sites, topics: Collection[str]) -> frozenset[str]:
    """Third sites that have taken over these topics, or are about to, or do not tell: beside them the link's source
    would be a second active site if clients were let in there again. Nobody is asked where the file has no other link
    that may have them.
    """
    return frozenset(one.site for one in await _beside(sites, topics))


async def _beside(sites: Sites, topics: Collection[str], unasked: Collection[str] = ()) -> list[Elsewhere]:
    """`unasked`: sites that are passed over. So is an operation that is given up just now: it opens no site, and where
    it waits for this one as this one does for it neither source would be let take writes again.
    """
    link = sites.link
    others = [one for one in sites.links if one.name != link.name]
    if not any(link.source in (one.source, one.target) for one in others):
        return []
    found = await look_elsewhere(link, others, topics, unasked, even_giving_up=False, readers=sites.readers)
    return [one for one in found if one.operation_id or one.is_active is not False]


def _untold_then(plan: OperationPlan, links: Collection[Link]) -> frozenset[str]:
    """Third sites that were asked what came to them, and did not tell. One of which only that was not known whether it
    is active for what it brings to the source is none of those: it may have told the rest.
    """
    ends = {one.name: one.target.name for one in links}
    untold = (one for one in plan.elsewhere if one.is_active is None and one.site != plan.snapshot.source)
    return frozenset(one.site for one in untold if ends.get(one.link, one.site) == one.site)


def _is_source_untold(plan: OperationPlan) -> bool:
    """Whether the move's own source did not tell who brings topics of it there."""
    return any(one.is_active is None and one.site == plan.snapshot.source for one in plan.elsewhere)
