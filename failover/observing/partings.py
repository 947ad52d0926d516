"""What the site that a switchover goes to lacks of its own former records, which links back to it had mirrored on."""

from __future__ import annotations

from broker.client.cluster import Cluster
from mirror.api import Link, SourceParting, source_partings, that_are_missing


async def target_lacks(link: Link, source: Cluster, target: Cluster) -> tuple[SourceParting, ...]:
    """By the links back of `link` as both sites complete it: from its target to its source. Its own mirror brings none
    of that, since it came from there. Raises ClientError, MirrorError.
    """
    found: list[SourceParting] = []
    for back in link.reverse_links:
        found += that_are_missing(await source_partings(back, target, source))
    return tuple(found)
