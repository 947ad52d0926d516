"""A target with records of which the link's state says nothing: somebody deleted that state, which was the map."""

from __future__ import annotations

from collections.abc import Mapping

from broker.client.cluster import Cluster
from broker.client.model import Topic
from broker.wire.vocabulary import TopicPartition
from mirror.api import GapKind, Link, LinkState, RunState, StateEntries, registered_at


async def unmapped_partitions(
    link: Link, state: LinkState, target: Cluster, at_target: Mapping[str, Topic]
) -> frozenset[TopicPartition]:
    """By the source's names, all of the target's that the link may have written; none where the state says of anything
    that it was mirrored, or no mirror of the link ever wrote there. Raises ClientError, StateDamaged.
    """
    if state.unread or any(state.map.mirrored_end(*at) is not None for at in state.map.partitions()):
        return frozenset()
    if not _is_gone(state.entries):
        return frozenset()
    found = frozenset(
        TopicPartition(source_topic, partition.partition)
        for name, topic in at_target.items()
        if (source_topic := link.source_topic(name)) is not None and source_topic != link.canary_topic
        for partition in topic.partitions
    )
    if found and any(one.link == link.name for one in await registered_at(target)):
        return found
    return frozenset()


def _is_gone(entries: StateEntries) -> bool:
    """Not so where a worker has just begun. One that has begun anew stands still at what it finds at the target, and
    nobody promotes a link that has mirrored nothing but without its map. Pure.
    """
    if entries.owner is None or (entries.run is not None and entries.run.state is RunState.PROMOTED):
        return True
    return any(gap.kind is GapKind.TARGET_NOT_EMPTY for gap in entries.open_gaps().values())
