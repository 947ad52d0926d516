"""What the site that a move goes to lacks of its own former records, which links back to it had mirrored on."""

from __future__ import annotations

from contextlib import suppress

from broker.base.time_limits import timeout
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.fanout import side_by_side
from broker.client.topics import list_topics
from broker.wire.vocabulary import TopicPartition
from mirror.api import Link, MirrorError, PartingKind, SourceParting, source_partings, that_are_missing


async def target_lacks(link: Link, source: Cluster, target: Cluster) -> tuple[SourceParting, ...]:
    """By the links back of `link` as both sites complete it: from its target to its source. Its own mirror brings none
    of that, since it came from there. Raises ClientError, MirrorError.
    """
    found: list[SourceParting] = []
    for back in link.reverse_links:
        found += that_are_missing(await source_partings(back, target, source))
    return tuple(found)


async def lacks_within(within_s: float, link: Link, source: Cluster, target: Cluster) -> tuple[SourceParting, ...]:
    """As `target_lacks`, for a failover, which no source holds up: whatever that does not tell in time is not known.
    Raises ClientError for what the target does.
    """
    found = await side_by_side(_within(within_s, back, source, target) for back in link.reverse_links)
    return tuple(one for lacks in found for one in lacks)


async def parted_within(within_s: float, link: Link, source: Cluster, target: Cluster) -> frozenset[TopicPartition]:
    """Where the source is seen to have lost what was mirrored from it, or to have others there: a log that lost its end
    may have grown past it since, so that its offsets say nothing of it. None that cannot be compared in time.
    """
    with suppress(ClientError, MirrorError, TimeoutError):
        async with timeout(within_s):
            found = await source_partings(link, source, target)
            return frozenset(one.where for one in found if one.kind is PartingKind.CUT)
    return frozenset()


async def _within(within_s: float, back: Link, source: Cluster, target: Cluster) -> tuple[SourceParting, ...]:
    try:
        async with timeout(within_s):
            return that_are_missing(await source_partings(back, target, source))
    except TimeoutError:
        why = f"{source.site.name} did not tell it within {within_s:g} s"
    except (ClientError, MirrorError) as error:
        why = str(error)
    return tuple(
        SourceParting(name, at.partition, PartingKind.NOT_COMPARED, 0, 0, why, target_topic=back.target_topic(name))
        for name, topic in sorted((await list_topics(target)).items())
        if back.selects_topic(name) and name != back.canary_topic
        for at in topic.partitions
    )
