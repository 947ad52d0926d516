"""Where a source's logs end right before its link is promoted, as far as anybody knows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.fanout import split_failures
from broker.client.offsets import list_each_offset
from broker.client.topics import list_topics
from broker.wire.vocabulary import LATEST, TopicPartition
from failover.limits import FENCE_ENDS_S
from failover.snapshot import Snapshot
from mirror.api import FenceEnd, Link


async def ends_at_fence(
    link: Link, source: Cluster | None, seen: Snapshot, now_ms: Callable[[], int]
) -> dict[TopicPartition, FenceEnd]:
    """`source` None: it is not asked, and what the last look saw counts; so it is of what it does not tell in time."""
    found: dict[TopicPartition, FenceEnd] = {}
    for view in seen.partitions:
        where = TopicPartition(view.topic, view.partition)
        if view.source_end is not None:
            found[where] = FenceEnd(view.source_end, seen.taken_at_ms, is_told=True)
        elif view.seen_source_end is not None and view.seen_at_ms is not None:
            found[where] = FenceEnd(view.seen_source_end, view.seen_at_ms, is_told=False)
    if source is not None:
        with suppress(ClientError, TimeoutError):
            async with asyncio.timeout(FENCE_ENDS_S):
                found |= await _told(link, source, now_ms())
    return found


async def _told(link: Link, source: Cluster, asked_at_ms: int) -> dict[TopicPartition, FenceEnd]:
    """Raises ClientError."""
    wanted = [
        TopicPartition(name, partition.partition)
        for name, topic in (await list_topics(source)).items()
        if link.selects_topic(name) and name != link.canary_topic
        for partition in topic.partitions
    ]
    told, _ = split_failures(await list_each_offset(source, dict.fromkeys(wanted, LATEST)))
    return {where: FenceEnd(at.offset, asked_at_ms, is_told=True) for where, at in told.items()}
