"""Who is about to move clients back along a link back: what the site that was lost has alone, of each link there."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from broker.base.errors import FarshoreError
from broker.base.time_limits import timeout_at
from broker.client.cluster import Cluster
from broker.client.fanout import both, side_by_side
from broker.client.topics import list_topics
from failover.failback.looking import find_link_back, look_back
from failover.failback.operation import open_failback, refuse_moves_back
from failover.failback.plan import FailbackRefusal
from failover.limits import UNDECIDED_READ_S, UNDECIDED_S
from failover.observing.readers import Readers
from failover.observing.sites import Sites
from failover.planning.undecided import Undecided
from mirror.api import (
    Link,
    NotRead,
    carried_back,
    load_partial_state,
    look_for_tails,
    promoted_backs,
    promotion_of,
    read_entries,
)

NAMED_MAX: Final = 3
"""Partitions of which it is not known that are named with the reason."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One for all that is asked, whoever is silent; times are those of the event loop."""

    read_until_s: float
    ends_s: float

    @classmethod
    def from_now(cls) -> Limit:
        now_s = asyncio.get_running_loop().time()
        return cls(now_s + UNDECIDED_READ_S, now_s + UNDECIDED_S)


def opposite(moved: Collection[str], links: Sequence[Link]) -> tuple[Link, ...]:
    """Of `links`, all of the file, those of which one of the `moved` may bring back what they mirror. Pure."""
    backs = [link for link in links if link.name in moved]  # alone: to compare all with all takes minutes of a thousand
    return tuple(link for link in links if carried_back(link, backs).links)


def not_told(links: Iterable[Link], why: str) -> tuple[Undecided, ...]:
    """Of links of which nothing could be asked."""
    return tuple(_not_told(link, why) for link in links)


def _not_told(link: Link, why: str) -> Undecided:
    return Undecided(link.name, link.source.name, link.target.name, None, None, why, (_see(link),))


async def look_for_undecided(
    moved: Collection[str],
    links: Sequence[Link],
    ends: tuple[Cluster | None, Cluster],
    limit: Limit,
    passing: Collection[FailbackRefusal] = (),
) -> tuple[Undecided, ...]:
    """Of each promoted link the other way whose link back is among the `moved`, where there is something, or that is
    not known. `links`: all of the file. `ends`: source and target of the `moved`; None: that one does not answer.
    `passing`: what a failback is refused for now, and is over when it is typed. Raises nothing.
    """
    there, here = ends
    asked = opposite(moved, links)
    if there is None:
        return not_told(asked, f"{asked[0].target.name} does not answer") if asked else ()

    async def look(link: Link) -> Undecided | None:
        try:
            async with timeout_at(limit.ends_s):
                found = await _tails_of(link, moved, links, (here, there), limit)
        except TimeoutError:
            return _not_told(link, f"it was not told within {UNDECIDED_S:g} s")
        except FarshoreError as error:
            return _not_told(link, str(error))
        if found is None or not found.records:
            return found
        may_come_back = await _may_come_back(
            link, links, (here, there), limit, {*passing, FailbackRefusal.GROUPS_IN_USE}
        )
        return replace(found, commands=(*found.commands, _come_back(link))) if may_come_back else found

    return tuple(found for found in await side_by_side(look(link) for link in asked) if found is not None)


async def _tails_of(
    link: Link, moved: Collection[str], links: Sequence[Link], ends: tuple[Cluster, Cluster], limit: Limit
) -> Undecided | None:
    """None: the link is not promoted, none of the `moved` brings back what it mirrored, or there is nothing. `ends`:
    its source and target. Raises ClientError, MirrorError.
    """
    source, target = ends
    if promotion_of(await read_entries(link, target, only=())) is None:
        return None
    state, at_target = await both(load_partial_state(link, target), list_topics(target))
    if not any(back.name in moved for back in find_link_back(link, links, state.entries, at_target).links):
        return None
    backs = await promoted_backs(link, source, target, state.entries)
    seen = await look_for_tails(link, source, target, state, backs, limit.read_until_s)
    if seen is None or not (seen.records or seen.not_read):
        return None
    found = _not_told(link, _why(seen.not_read))
    return replace(found, partitions=len(seen.records), records=sum(seen.records.values())) if seen.records else found


async def _may_come_back(
    link: Link,
    links: Sequence[Link],
    ends: tuple[Cluster, Cluster],
    limit: Limit,
    passing: Collection[FailbackRefusal],
) -> bool:
    """Whether it is known that a failback of the link would not be refused, but for what is `passing`."""
    source, target = ends
    readers = Readers.among({}, target.site.name)
    sites = Sites(link, source, target, (), target.clock.now_ms, readers=readers)
    try:
        async with timeout_at(limit.ends_s):
            log = await open_failback(sites)
            own_id = log.operation_id if log is not None else ""
            plan = await look_back(link, links, ends, "", own_id, readers.elsewhere)
            backs = [back for back in links if back.name == plan.link_back]
            for back in backs:
                await refuse_moves_back(sites, back, own_id)
    except (TimeoutError, FarshoreError):
        return False
    return bool(backs) and set(plan.refusals) <= set(passing)


def _see(link: Link) -> str:
    return f"farshore stranded list --link {link.name}"


def _come_back(link: Link) -> str:
    return f"farshore failback --link {link.name}"


def _why(not_read: Sequence[NotRead]) -> str:
    told = [f"{one.topic}-{one.partition} at {one.site}: {one.why or 'not read in the time'}" for one in not_read]
    more = [f"and {len(told) - NAMED_MAX} more"] if len(told) > NAMED_MAX else []
    return "; ".join([*told[:NAMED_MAX], *more])
