"""What goes from this broker: deleted by order, or set aside because no order names it.

Taken away at once, by another name; removed later, one at a time, while others go on.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path

from broker.cluster.orders import LeaderAndIsr
from broker.errors import LogStorageError
from broker.replicas.files import PartitionFiles
from broker.topics.partition import Partition
from broker.wire.vocabulary import TopicPartition

log = logging.getLogger(__name__)


class Removing:
    """Nobody finds the partitions any more that are given here."""

    def __init__(self, files: PartitionFiles) -> None:
        self._files = files
        # Folders that are to be removed. Threads add to it; the event is only set in the loop.
        self._doomed: deque[Path] = deque()
        self._wanted = asyncio.Event()

    async def retire(self, partitions: Iterable[Partition]) -> dict[TopicPartition, LogStorageError]:
        """Those that could not be taken away; the next start does."""
        if not (listed := list(partitions)):
            return {}
        doomed, failures = await asyncio.to_thread(self._files.retire, listed)
        self._doom(doomed)
        for where, error in failures.items():
            log.warning("the folder of %s stays until the next start: %s", where, error)
        return failures

    async def delete(
        self, partitions: Iterable[Partition], deleted: Mapping[TopicPartition, uuid.UUID]
    ) -> dict[TopicPartition, LogStorageError]:
        """Also what is not open, or was set aside, of these topic ids -> as `retire`."""
        failures = await self.retire(partitions)
        left = {where: topic_id for where, topic_id in deleted.items() if where not in failures}
        try:
            self._doom(await asyncio.to_thread(self._files.retire_folders, left))
        except LogStorageError as error:
            log.warning("of deleted topics something stays until the next start: %s", error)
            failures |= dict.fromkeys(left, error)
        return failures

    async def set_aside(self, partitions: Iterable[Partition]) -> None:
        if listed := list(partitions):
            self._doom(await asyncio.to_thread(self._files.set_aside, listed))

    async def set_aside_leftovers(self, order: LeaderAndIsr) -> None:
        """Folders that a complete order does not name. Raises LogStorageError."""
        kept = {(order.topics[where.topic].topic_id, where.partition) for where in order.partitions}
        self._doom(await asyncio.to_thread(self._files.set_aside_leftovers, kept, order.unreadable))

    def _doom(self, paths: Iterable[Path]) -> None:
        self._doomed.extend(paths)
        self._wanted.set()

    async def run(self) -> None:
        """Ends only by being cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            await self.sweep()

    async def sweep(self) -> None:
        while self._doomed:
            await asyncio.to_thread(self._files.remove, self._doomed.popleft())
