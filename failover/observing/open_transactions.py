"""Transactions that are open at the source and hold up a drain: nobody need be writing, nor have written."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.fanout import split_failures
from broker.client.groups import stable_offsets_of_groups
from broker.client.offsets import log_end_offsets
from broker.client.site import Site
from broker.wire.vocabulary import IsolationLevel, TopicPartition
from failover.errors import TransactionOpen
from failover.limits import DRAIN_POLL_S, QUIET_S
from failover.observing.snapshot import PartitionView, Snapshot


async def open_transactions(source: Cluster, views: Iterable[PartitionView]) -> dict[TopicPartition, int]:
    """By partition the offset at which one begins; none where the source does not tell."""
    ends = {TopicPartition(view.topic, view.partition): view.source_end or 0 for view in views}
    with suppress(ClientError):
        stable = await log_end_offsets(source, ends, IsolationLevel.READ_COMMITTED)  # behind the ends: it is open still
        return {at: stable[at] for at, end in ends.items() if stable[at] < end}
    return {}


async def still_pending(source: Cluster, seen: Snapshot, groups: Collection[str]) -> frozenset[str]:
    """Of these groups those of which an offset in the partitions of the look is still pending. Raises ClientError."""
    partitions = [TopicPartition(view.topic, view.partition) for view in seen.partitions]
    found, failures = split_failures(await stable_offsets_of_groups(source, sorted(groups), partitions))
    for error in failures.values():
        raise error
    return frozenset(name for name, offsets in found.items() if offsets.pending)


class PendingOffsets(NamedTuple):
    """`groups` had offsets in a transaction that had not ended, and `held` in each look: who commits in one transaction
    after the other has some in many a look.
    """

    groups: frozenset[str] = frozenset()
    held: frozenset[str] = frozenset()


async def watch_pending(
    first: Iterable[str], look: Callable[[frozenset[str]], Awaitable[frozenset[str]]], for_s: float
) -> PendingOffsets:
    """`first`: the groups that had offsets pending in the first look. `look`: which of these have. Raises what it
    raises.
    """
    loop = asyncio.get_running_loop()
    until_s = loop.time() + for_s
    groups = held = frozenset(first)
    while held and loop.time() < until_s:
        await asyncio.sleep(DRAIN_POLL_S)
        held &= await look(held)
    return PendingOffsets(groups, held)


class Holding:
    """Those that were open for QUIET_S while it was drained; by the end of that they may have timed out."""

    def __init__(self) -> None:
        self._since_s: dict[tuple[TopicPartition, int], float] = {}
        self._long: dict[TopicPartition, int] = {}

    def note(self, found: Mapping[TopicPartition, int], now_s: float) -> None:
        """What one look found."""
        self._since_s = {place: self._since_s.get(place, now_s) for place in found.items()}
        self._long |= {at: start for (at, start), since_s in self._since_s.items() if now_s - since_s >= QUIET_S}

    def error(self, site: Site, timeout_s: float, *, is_first: bool = True) -> TransactionOpen | None:
        """None: there was none. `is_first`: as of TransactionOpen."""
        return TransactionOpen(site, self._long, timeout_s, is_first=is_first) if self._long else None
