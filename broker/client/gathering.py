"""Reading many partitions at once, one request to each leader: what is asked in the meantime goes into the next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final, TypeAlias

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.log import FetchLimits, brings_nothing, fetch_each, read_batches_by, records_of
from broker.wire.batch import BatchHeader
from broker.wire.messages.fetch import PartitionData
from broker.wire.vocabulary import IsolationLevel, TopicPartition

PARTITION_MIN_BYTES: Final = 64 * 1024

_Asked: TypeAlias = dict[tuple[TopicPartition, int], "asyncio.Future[PartitionData | ClientError]"]


class GatheredReads:
    """Reads for many tasks of one event loop. Over a distance that many readers cost the round trips of one.

    One round is under way at a time, for one isolation level; who asked first is served first.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._turns = {isolation: asyncio.Lock() for isolation in IsolationLevel}
        self._asked: dict[IsolationLevel, _Asked] = {isolation: {} for isolation in IsolationLevel}

    async def read_batches(
        self, where: TopicPartition, start: int, end: int, isolation: IsolationLevel
    ) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
        """As `broker.client.log.read_batches`."""
        async for header, batch in read_batches_by(self._fetch, where, start, end, isolation):
            yield header, batch

    async def _fetch(self, where: TopicPartition, position: int, isolation: IsolationLevel) -> PartitionData:
        asked = self._asked[isolation]
        answer = asked.get((where, position))
        if answer is None:
            answer = asked[where, position] = asyncio.get_running_loop().create_future()
        async with self._turns[isolation]:
            while not answer.done():
                await self._round(isolation)
        found = answer.result()
        if isinstance(found, ClientError):
            raise found
        return found

    async def _round(self, isolation: IsolationLevel) -> None:
        """Answer what was asked until now, each partition once. Who is cancelled here leaves it to the next."""
        await asyncio.sleep(0)  # those who were woken by one answer ask together
        asked = self._asked[isolation]
        positions: dict[TopicPartition, int] = {}
        for where, position in asked:
            positions.setdefault(where, position)
        max_bytes = self._cluster.limits.fetch_max_bytes
        limits = FetchLimits(
            max_bytes, max(PARTITION_MIN_BYTES, max_bytes // len(positions)), self._cluster.limits.fetch_max_wait_ms
        )
        found: dict[TopicPartition, PartitionData | ClientError]
        try:
            found = await fetch_each(self._cluster, positions, limits, isolation)
        except ClientError as error:  # no broker answers: that is everybody's answer
            found = dict.fromkeys(positions, error)
        crowded = any(not isinstance(data, ClientError) and len(records_of(data)) for data in found.values())
        for where, position in positions.items():
            data = found[where]
            if crowded and not isinstance(data, ClientError) and brings_nothing(data, position, isolation):
                continue  # the others may have had its room: it is the next round's first
            asked.pop((where, position)).set_result(data)
