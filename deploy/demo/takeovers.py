"""When a partition's next owner wrote its first record: by the producer in the batches, and by when they were there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Final

from broker.client.cluster import Cluster
from broker.client.log import read_batches
from broker.client.offsets import log_end_offsets
from broker.wire.vocabulary import TopicPartition


class EndsSeen:
    """Where logs ended, again and again. Seconds are those of the steady clock."""

    def __init__(self, cluster: Cluster, partitions: Sequence[TopicPartition]) -> None:
        self._cluster = cluster
        self.partitions = tuple(partitions)
        self._seen: list[tuple[float, Mapping[TopicPartition, int]]] = []

    async def watch(self, every_s: float) -> None:
        """Until cancelled."""
        while True:
            ends = await log_end_offsets(self._cluster, self.partitions)
            self._seen.append((time.monotonic(), ends))
            await asyncio.sleep(every_s)

    def at(self, moment_s: float) -> Mapping[TopicPartition, int]:
        """The last ends that were seen before a moment; none: nothing was."""
        return next((ends for at_s, ends in reversed(self._seen) if at_s <= moment_s), {})

    def reached_s(self, where: TopicPartition, offset: int) -> float | None:
        """When the log was first seen to have this offset."""
        return next((at_s for at_s, ends in self._seen if ends.get(where, 0) > offset), None)

    def newest(self) -> Mapping[TopicPartition, int]:
        return self._seen[-1][1] if self._seen else {}


ON_ITS_WAY_S: Final = 0.3
"""What a killed worker had sent has landed by then, and nobody can have taken its place: its lease lives."""


async def first_by_another(
    cluster: Cluster, ends: EndsSeen, topic: str, killed_s: float, on_its_way_s: float = ON_ITS_WAY_S
) -> float | None:
    """When the topic had the first record, after its owner's end, that another session wrote; None: it has none.

    A session has an epoch of its producer id for itself; what the fences of the next one leave are no records.
    """
    before, last, found = ends.at(killed_s + on_its_way_s), ends.newest(), []
    for where in ends.partitions:
        if where.topic != topic:
            continue
        owner: tuple[int, int] | None = None
        async for header, _ in read_batches(cluster, where, 0, last[where]):
            if header.is_control:
                continue
            producer = (header.producer_id, header.producer_epoch)
            if header.base_offset < before.get(where, 0):
                owner = producer
            elif owner is not None and producer != owner:
                found.append(ends.reached_s(where, header.last_offset))
                break
    return min((at_s for at_s in found if at_s is not None), default=None)
