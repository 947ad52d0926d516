"""Whether clients may write to a link's topics at either of its two sites, by the roles of these."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from broker.client.cluster import Cluster
from broker.client.errors import KafkaError
from broker.client.site_role import site_standing
from broker.wire.errors import ErrorCode
from broker.wire.site_role import SiteStanding
from mirror.link import Link


@dataclass(frozen=True, slots=True)
class ClosedAtBoth:
    """`topics` of the source to which no client can write there, nor at the target: each site's role refuses it."""

    topics: tuple[str, ...]
    source: SiteStanding
    target: SiteStanding


async def look_for_closed(link: Link, source: Cluster, target: Cluster, topics: Iterable[str]) -> ClosedAtBoth | None:
    """None also where the brokers of a site have no roles, and where the link's file has a third site: its clients may
    write there, which these two do not tell. Raises ClientError.
    """
    if link.known_sites - {link.source.name, link.target.name}:
        return None
    here = await role_of(source)
    refused = [name for name in topics if name != link.canary_topic and here is not None and here.refuses(name)]
    if here is None or not refused:  # as of most links at most times: then the target has nothing to say to it
        return None
    there = await role_of(target)
    if there is None:
        return None
    closed = tuple(sorted(name for name in refused if there.refuses(link.target_topic(name))))
    return ClosedAtBoth(closed, here, there) if closed else None


async def role_of(cluster: Cluster) -> SiteStanding | None:
    """None: its brokers have none, or do not tell whoever lacks the right to ask. Raises ClientError."""
    try:
        return await site_standing(cluster)
    except KafkaError as error:
        if error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:  # farshore's own brokers ask no rights
            return None
        raise
