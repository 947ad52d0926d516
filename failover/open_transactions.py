"""Transactions that are open at the source and hold up a drain: nobody need be writing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.offsets import log_end_offsets
from broker.wire.vocabulary import IsolationLevel, TopicPartition
from failover.errors import TransactionOpen
from failover.limits import QUIET_S
from failover.snapshot import PartitionView


async def open_transactions(source: Cluster, views: Iterable[PartitionView]) -> dict[TopicPartition, int]:
    """By partition the offset at which one begins; none where the source does not tell."""
    ends = {TopicPartition(view.topic, view.partition): view.source_end or 0 for view in views}
    with suppress(ClientError):
        stable = await log_end_offsets(source, ends, IsolationLevel.READ_COMMITTED)  # behind the ends: it is open still
        return {at: stable[at] for at, end in ends.items() if stable[at] < end}
    return {}


class Holding:
    """Those that were open for QUIET_S while it was drained; by the end of that they may have timed out."""

    def __init__(self) -> None:
        self._since_s: dict[tuple[TopicPartition, int], float] = {}
        self._long: dict[TopicPartition, int] = {}

    def note(self, found: Mapping[TopicPartition, int], now_s: float) -> None:
        """What one look found."""
        self._since_s = {place: self._since_s.get(place, now_s) for place in found.items()}
        self._long |= {at: start for (at, start), since_s in self._since_s.items() if now_s - since_s >= QUIET_S}

    def error(self, site: str, timeout_s: float) -> TransactionOpen | None:
        """None: there was none."""
        return TransactionOpen(site, self._long, timeout_s) if self._long else None
