"""Topics of a move's target that went to another site along other links: the move is not to open them there.

A site that was closed as a whole is opened by the way back of one pair of links, and takes no writes to the topics of
the pairs that are still to come (`docs/adr/0038-a-site-that-was-closed-is-opened-by-topics.md`).
"""

from __future__ import annotations

from dataclasses import replace

from broker.client.fanout import side_by_side
from broker.client.topics import list_topics
from failover.freezing.choice import Freezing
from failover.observing.elsewhere import look_along
from failover.observing.sites import Sites
from mirror.api import may_carry_on


async def with_kept(freezing: Freezing, sites: Sites) -> Freezing:
    """What stays closed at the target, where more than the move's own would be opened. Raises ClientError for that."""
    if not freezing.opens_others:
        return freezing
    kept = await _topics_away(sites)
    return replace(freezing, target_kept=tuple(sorted(kept)))


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
        look_along(one, topics, sites.links, site) for one, topics in zip(others, carried, strict=True)
    )
    away = [hop.link for hop in looked if hop.is_moved or hop.operation_id or not hop.is_told]
    return {topic for link in away for topic in link.topics}
