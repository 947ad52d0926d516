"""Writing where a source's logs ended when its link was promoted, for who asks later what came since."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.log import append
from broker.client.topics import describe_topics
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from mirror.limits import KEEP_FENCE_ENDS_MS
from mirror.link import Link
from mirror.offsets.entries import LinkRun
from mirror.offsets.fence_ends import FenceEnds, fence_entries
from mirror.offsets.source_ends import load_observation


async def may_keep_fence_ends(link: Link, target: Cluster) -> bool:
    """Whether there is a topic for them: no worker of the link may ever have made it. Raises nothing: as
    `keep_fence_ends` it holds nothing up.
    """
    with suppress(ClientError, TimeoutError):
        async with asyncio.timeout(KEEP_FENCE_ENDS_MS / 1000):
            return bool(await describe_topics(target, [link.ends_topic]))
    return False


async def keep_fence_ends(
    link: Link, target: Cluster, operation_id: str, ends: FenceEnds, before: LinkRun | None
) -> None:
    """Before this operation's promotion, which it does not hold up; `before`: the one that stands, whose ends count on.

    Where they cannot be kept in KEEP_FENCE_ENDS_MS nobody knows later what came since: then the state has no entry of
    that operation, and that is said.
    """
    if before is not None and before.operation_id == operation_id:  # they were kept before that
        return
    with suppress(ClientError, TimeoutError):
        async with asyncio.timeout(KEEP_FENCE_ENDS_MS / 1000):
            if before is None:
                await _write(link, target, [operation_id], ends)
            elif kept := (await load_observation(link, target)).fence_ends.get(before.operation_id):
                await _write(link, target, [before.operation_id, operation_id], kept)


async def _write(link: Link, target: Cluster, operation_ids: Sequence[str], ends: FenceEnds) -> None:
    """Raises ClientError."""
    now_ms = target.clock.now_ms()
    entries = fence_entries(operation_ids, ends)
    if entries:
        batch = encode_batch([Record(at, now_ms, key, value) for at, (key, value) in enumerate(entries)])
        await append(target, TopicPartition(link.ends_topic, 0), batch)
