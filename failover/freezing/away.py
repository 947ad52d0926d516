"""Topics of a move's target that another site has, by other links: the move is not to open them there.

A site that was closed as a whole is opened by the way back of one pair of links, and takes no writes to the topics of
the pairs that are still to come, nor to those that other links bring there from a site that is written to
(`docs/adr/0038-a-site-that-was-closed-is-opened-by-topics.md`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from broker.base.time_limits import timeout
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.fanout import both, side_by_side
from broker.client.topics import list_topics
from failover.freezing.choice import Freezing, target_topics_of
from failover.freezing.denials import is_named
from failover.limits import ELSEWHERE_S
from failover.observing.elsewhere import look_along
from failover.observing.sites import Sites
from mirror.api import Link, MirrorError, may_carry_on, may_write_one_topic, promotion_of, read_entries


async def with_kept(freezing: Freezing, sites: Sites) -> Freezing:
    """What stays closed at the target, where more than the move's own would be opened; and which links carry what would
    stop at the source beside that. Raises ClientError for the former.
    """
    from_source = [
        one for one in sites.links if one.source.name == sites.link.source.name and one.name != sites.link.name
    ]
    beside = [one.name for one in from_source if any(map(one.selects_topic, freezing.others))]
    freezing = replace(freezing, beside=tuple(beside))
    if not freezing.opens_others:
        return freezing
    away, brought = await both(_topics_away(sites), _topics_brought(sites))
    kept = sorted(away | brought)
    at_both = await _at_both(freezing, sites, kept) if kept else ()
    return replace(freezing, target_kept=tuple(kept), closed_at_both=at_both)


async def _at_both(freezing: Freezing, sites: Sites, kept: Sequence[str]) -> tuple[str, ...]:
    """Those of them with a topic that both sites have and the source refuses behind the move: its clients can write at
    neither. A site that stands by for a third one does so, too. Raises ClientError.
    """
    if sites.source is None or freezing.source is None:
        return ()
    then = freezing.left(freezing.source) if freezing.is_by_role else freezing.source
    at_source, at_target = await both(list_topics(sites.source), list_topics(sites.target))
    refused = [name for name in at_source.keys() & at_target.keys() if then.refuses(name)]
    return tuple(one for one in kept if any(is_named(name, (one,)) for name in refused))


async def _topics_away(sites: Sites) -> set[str]:
    """Regular expressions of the links from the target whose clients went along them, and have not come back, or may
    have. A link that shares a topic with the move is none of those: by its state the move is judged as a whole
    (`failover/observing/elsewhere.py`).
    """
    site = sites.link.target.name
    others = [one for one in sites.links if one.source.name == site and not may_carry_on(sites.link, one)]
    if not others:
        return set()
    names = await list_topics(sites.target)
    carried = [frozenset(filter(one.selects_topic, names)) for one in others]
    looked = await side_by_side(
        look_along(one, topics, sites.links, sites.readers, site) for one, topics in zip(others, carried, strict=True)
    )
    away = [hop.link for hop in looked if hop.is_moved or hop.operation_id or not hop.is_told]
    return {topic for link in away for topic in link.topics}


async def _topics_brought(sites: Sites) -> set[str]:
    """Regular expressions of the links to the target that run, and have brought something: what they carry is written
    at their sources, whether a plan refused them, was not asked for them, or goes from elsewhere.
    """
    site = sites.link.target.name
    others = [
        one
        for one in sites.links
        if one.target.name == site and one.name != sites.link.name and not may_write_one_topic(sites.link, one)
    ]
    brings = await side_by_side(_brings(one, sites.target) for one in others)
    return {topic for one, is_so in zip(others, brings, strict=True) if is_so for topic in target_topics_of(one)}


async def _brings(link: Link, target: Cluster) -> bool:
    """Where its state cannot be read, or not in time, too: closed too long is mended, two active sites are not."""
    try:
        async with timeout(ELSEWHERE_S):
            entries = await read_entries(link, target)
    except (ClientError, MirrorError, TimeoutError):
        return True
    return promotion_of(entries) is None and bool(entries.mirrored_topics())
