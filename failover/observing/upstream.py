"""Whether the source of a move stands by for a site that is still active, or is about to take its clients over: then
the move would open a second one.

A link that runs into the source, and has brought topics of the move there, says at the source that it was not moved.
Such links are followed up to a site that takes writes, or does not say. `elsewhere.py` follows those that were moved.
A move along such a link freezes that site, which is not the active one then: its journal stands at the link's target.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from broker.base.errors import FarshoreError
from broker.base.time_limits import timeout
from broker.client.cluster import Cluster
from broker.client.fanout import side_by_side
from broker.client.site import Site
from broker.client.site_role import site_standing
from broker.client.topics import list_topics
from failover.freezing.choice import UNFROZEN, Freezing
from failover.journal.standing import under_way
from failover.limits import ELSEWHERE_S
from failover.observing.contact import CLIENT_ID
from failover.observing.elsewhere import takes_writes
from failover.observing.readers import Readers
from failover.planning.plan import Elsewhere
from mirror.api import STATUS_LIMITS, Link, promotion_of, read_entries


@dataclass(frozen=True, slots=True)
class _Feed:
    """What a link brings, as its source calls that; none where it is promoted, or never brought any. `is_active`: that
    source takes writes to it; None: it does not say. `operation_id`: a move along it that has not ended; not
    `is_told`: the link's target did not say whether there is one.
    """

    link: Link
    topics: frozenset[str] = frozenset()
    is_active: bool | None = None
    operation_id: str = ""
    is_told: bool = True


async def look_upstream(
    link: Link, links: Sequence[Link], freezing: Freezing, topics: Iterable[str], readers: Readers | None = None
) -> tuple[Elsewhere, ...]:
    """Who is about to take some of these topics (its own names) to the move's source. And for whom that stands by,
    where it is closed for good to some of them: who of those that feed it is active, or does not say, or is moved from.
    One that is only frozen was the active site when a move began. `readers`: as `look_elsewhere` has them.

    Where the source itself does not say who is about to take them there, that is in the answer, too.
    """
    readers = readers if readers is not None else Readers()
    here = frozenset(topics)
    level, closed = {link.source.name: here}, {link.source.name: _closed_for_good(freezing, here)}
    seen, found = {link.source.name, link.target.name}, list[Elsewhere]()
    while level := {site: names for site, names in level.items() if names}:
        ways = _ways_to(level, [one for one in links if one.name != link.name and one.source.name not in seen])
        standing_by = {one.name: names for one, names in _ways_to(closed, [one for one, _ in ways])}
        level = {}
        for feed in await side_by_side(_look(one, standing_by.get(one.name, frozenset()), readers) for one, _ in ways):
            name, site = feed.link.name, feed.link.source.name
            if feed.operation_id:
                found.append(Elsewhere(name, feed.link.target.name, is_active=False, operation_id=feed.operation_id))
            elif feed.topics and feed.is_active is not False:
                found.append(Elsewhere(name, site, feed.is_active))
            elif not (feed.is_told or feed.topics):
                found.append(Elsewhere(name, feed.link.target.name, None))
            elif feed.topics:
                level[site] = level.get(site, frozenset()) | feed.topics
        closed = level
        seen |= level.keys()
    return tuple({(one.site, one.operation_id): one for one in found}.values())


async def look_moving_in(
    link: Link, links: Sequence[Link], topics: Iterable[str], readers: Readers
) -> tuple[Elsewhere, ...]:
    """As `look_upstream`, who is about to take topics to the move's source alone: that is asked, and nobody else."""
    return await look_upstream(link, links, UNFROZEN, topics, readers)


async def look_above_lost(link: Link, links: Sequence[Link], topics: Iterable[str]) -> tuple[Elsewhere, ...]:
    """As `look_upstream`, of a source that is lost, and with it what the links into it, and its role, would say.

    So only who certainly is the active site counts: somebody made it that, it has every topic of the move, and got none
    of them from the source. A site that may be one keeps nobody from leaving a lost source.
    """
    here = frozenset(topics)
    ways = [
        (one, its)
        for one in links
        if (one.target.name, one.name != link.name) == (link.source.name, True)
        and one.source.name != link.target.name
        and len(its := frozenset(filter(None, map(one.source_topic, here)))) == len(here) > 0
    ]
    found = await side_by_side(_is_made_active(one, its, links, here) for one, its in ways)
    active = [one for (one, _), is_active in zip(ways, found, strict=True) if is_active]
    return tuple({one.source.name: Elsewhere(one.name, one.source.name, is_active=True) for one in active}.values())


def not_among(found: Iterable[Elsewhere], above: Iterable[Elsewhere]) -> tuple[Elsewhere, ...]:
    """Those `above` whose site, or operation, `found` does not tell of. Pure."""
    known = {(one.site, one.operation_id) for one in found}
    return tuple(one for one in above if (one.site, one.operation_id) not in known)


def _closed_for_good(freezing: Freezing, topics: Iterable[str]) -> frozenset[str]:
    patterns = () if freezing.source is None else freezing.source.closed_for_good
    denials = freezing.source_denials
    return frozenset(
        topic
        for topic in topics
        if any(re.fullmatch(pattern, topic) for pattern in patterns)
        or (denials is not None and denials.touches((re.escape(topic),)))
    )


def _ways_to(level: dict[str, frozenset[str]], links: Iterable[Link]) -> list[tuple[Link, frozenset[str]]]:
    """The links to these sites that select some of these topics, with those, as the links' sources call them."""
    named = ((one, map(one.source_topic, level.get(one.target.name, ()))) for one in links)
    return [(one, carried) for one, names in named if (carried := frozenset(filter(None, names)))]


async def _look(link: Link, topics: frozenset[str], readers: Readers) -> _Feed:
    """`topics`: for which the link's target stands by."""
    try:
        async with timeout(ELSEWHERE_S), _called(link.target) as target:
            operations = await readers.operations_at(target)
            now_ms = target.clock.now_ms()
            if operation_id := under_way(link, operations, now_ms, even_failbacks=False):  # it goes the other way
                return _Feed(link, operation_id=operation_id)
            if not topics:
                return _Feed(link)
            entries = await read_entries(link, target)
    except (FarshoreError, TimeoutError):  # what is unknown is said to be
        return _Feed(link, topics, is_told=False)
    brought = topics & entries.mirrored_topics()
    if not brought or promotion_of(entries) is not None:
        return _Feed(link)
    with suppress(FarshoreError, TimeoutError):
        async with timeout(ELSEWHERE_S), _called(link.source) as source:
            writes = await takes_writes(source, brought)
            return _Feed(link, brought, None if isinstance(writes, FarshoreError) else writes)
    return _Feed(link, brought)


async def _is_made_active(link: Link, topics: frozenset[str], links: Iterable[Link], here: Collection[str]) -> bool:
    """Whether the link's source is. It calls those `topics` that the lost site has as `here`."""
    backs = [one for one in links if (one.source, one.target) == (link.target, link.source)]
    with suppress(FarshoreError, TimeoutError):
        async with timeout(ELSEWHERE_S), _called(link.source) as source:
            standing = await site_standing(source)
            if standing is None or standing.epoch == 0 or any(map(standing.refuses, topics)):
                return False
            if not topics <= (await list_topics(source)).keys():
                return False
            mirrored = [(await read_entries(back, source)).mirrored_topics() for back in backs]
            return not any(names & set(here) for names in mirrored)
    return False


def _called(site: Site) -> Cluster:
    return Cluster(site, client_id=CLIENT_ID, limits=STATUS_LIMITS)
