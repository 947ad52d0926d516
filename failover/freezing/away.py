"""Topics of a move's target that another site has, by other links: the move is not to open them there.

A site that was closed as a whole is opened by the way back of one pair of links, and takes no writes to the topics of
the pairs that are still to come, nor to those that other links bring there from a site that is written to
(`docs/adr/0038-a-site-that-was-closed-is-opened-by-topics.md`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from broker.base.expressions import any_of
from broker.base.time_limits import timeout
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.fanout import both, side_by_side
from broker.client.topics import list_topics
from failover.freezing.choice import Freezing, target_topics_of
from failover.limits import ELSEWHERE_S
from failover.observing.elsewhere import look_along
from failover.observing.sites import Sites
from mirror.api import Link, MirrorError, may_carry_on, may_write_one_topic, promotion_of, read_entries


def with_beside(freezing: Freezing, link: Link, links: Sequence[Link]) -> Freezing:
    """Which of all `links` carry what would stop at the source beside the move's own. Pure."""
    from_source = [one for one in links if one.source.name == link.source.name and one.name != link.name]
    beside = [one.name for one in from_source if any(map(one.selects_topic, freezing.others))]
    return replace(freezing, beside=tuple(beside))


async def with_kept(freezing: Freezing, sites: Sites) -> Freezing:
    """What stays closed at the target, where more than the move's own would be opened. Raises ClientError."""
    if not freezing.opens_others:
        return freezing
    target = sites.link.target.name
    left, brought = await both(_away_from(sites, target), _brought_to(sites, target, sites.target))
    kept = _topics_of(left, brought)
    if not kept:
        return freezing
    freezing = replace(freezing, target_kept=tuple(sorted(kept)))
    at_both, for_third = await both(
        _at_both(freezing, sites, left, brought), _for_third(freezing, sites, left, brought)
    )
    return replace(freezing, closed_at_both=at_both, closed_for_third=for_third)


def _topics_of(left: Iterable[Link], brought: Iterable[Link]) -> set[str]:
    """Regular expressions of a site's topics that went along the one links, and came along the others."""
    return {topic for link in left for topic in link.topics} | {
        topic for link in brought for topic in target_topics_of(link)
    }


async def _for_third(
    freezing: Freezing, sites: Sites, left: Sequence[Link], brought: Sequence[Link]
) -> tuple[str, ...]:
    """What of `target_kept` the target refuses behind the move for links that end at a third site, which nobody asks
    whether it takes writes. Raises ClientError.
    """
    source = sites.link.source.name
    went = [link for link in left if link.target.name != source]
    theirs = _topics_of(went, [link for link in brought if link.source.name != source])
    if not theirs:
        return ()
    names = (name for name in await list_topics(sites.target) if not name.startswith("__"))
    refused = freezing.kept_closed(names)
    return tuple(one for one in freezing.target_kept if one in theirs and any(map(any_of((one,)), refused)))


async def _at_both(freezing: Freezing, sites: Sites, left: Sequence[Link], brought: Sequence[Link]) -> tuple[str, ...]:
    """What of `target_kept` both sites refuse behind the move, and no third site has: its clients can write at neither.
    `left`, `brought`: the links by which it is kept, of which only those between the two sites count. One expression
    that is of topics of a third site, too, is not named: nobody is to be told to open those. Raises ClientError.
    """
    source, site = sites.source, sites.link.source.name
    if source is None or freezing.source is None:
        return ()
    went = [link for link in left if link.target.name == site]
    between = _topics_of(went, [link for link in brought if link.source.name == site])
    if not between:
        return ()
    at_source, at_target = await both(list_topics(source), list_topics(sites.target))
    is_between = any_of(tuple(sorted(between)))
    names = [name for name in at_source.keys() & at_target.keys() if not name.startswith("__") and is_between(name)]
    then = freezing.left(freezing.source) if freezing.is_by_role else freezing.source
    refused = freezing.kept_closed(filter(then.refuses, names))
    if not refused:
        return ()
    is_theirs = any_of(tuple(sorted(await _third_sites_topics(sites, source, left, brought))))
    theirs = [name for name in {*at_source, *at_target} if is_theirs(name)]
    return tuple(
        one
        for one in freezing.target_kept
        if one in between and any(map(any_of((one,)), refused)) and not any(map(any_of((one,)), theirs))
    )


async def _third_sites_topics(sites: Sites, source: Cluster, left: Sequence[Link], brought: Sequence[Link]) -> set[str]:
    """Regular expressions of what a third site has, or may have: it went there from either end of the move, or comes
    from there to one of them. `left`, `brought`: those of the target.
    """
    here, there = sites.link.source.name, sites.link.target.name
    left_here, brought_here = await both(_away_from(sites, here), _brought_to(sites, here, source))
    went = [one for one in (*left, *left_here) if one.target.name not in (here, there)]
    comes = [one for one in (*brought, *brought_here) if one.source.name not in (here, there)]
    return _topics_of(went, comes)


async def _away_from(sites: Sites, site: str) -> list[Link]:
    """The links from this end of the move whose clients went along them, and have not come back, or may have. A link
    from the target that shares a topic with the move is none of those: by its state the move is judged as a whole
    (`failover/observing/elsewhere.py`).
    """
    link = sites.link
    others = [one for one in sites.links if one.source.name == site and one.name != link.name]
    cluster: Cluster | None = sites.source
    if site == link.target.name:
        others, cluster = [one for one in others if not may_carry_on(link, one)], sites.target
    if not others or cluster is None:
        return []
    names = await list_topics(cluster)
    carried = [frozenset(filter(one.selects_topic, names)) for one in others]
    looked = await side_by_side(
        look_along(one, topics, sites.links, sites.readers, site) for one, topics in zip(others, carried, strict=True)
    )
    return [hop.link for hop in looked if hop.is_moved or hop.operation_id or not hop.is_told]


async def _brought_to(sites: Sites, site: str, cluster: Cluster) -> list[Link]:
    """The links to this end of the move that run, and have brought something: what they carry is written at their
    sources, whether a plan refused them, was not asked for them, or goes from elsewhere.
    """
    link = sites.link
    others = [one for one in sites.links if one.target.name == site and one.name != link.name]
    if site == link.target.name:
        others = [one for one in others if not may_write_one_topic(link, one)]
    brings = await side_by_side(_brings(one, cluster) for one in others)
    return [one for one, is_so in zip(others, brings, strict=True) if is_so]


async def _brings(link: Link, target: Cluster) -> bool:
    """Where its state cannot be read, or not in time, too: closed too long is mended, two active sites are not."""
    try:
        async with timeout(ELSEWHERE_S):
            entries = await read_entries(link, target)
    except (ClientError, MirrorError, TimeoutError):
        return True
    return promotion_of(entries) is None and bool(entries.mirrored_topics())
