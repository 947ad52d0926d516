"""Whose turn it is at a partition's files.

Making partitions takes as long as the disk does, and orders about others are carried out meanwhile. What is about the
same partition, by its name, waits until everything before it that is about it has ended: two at once would open one
log twice, or take away the folder of an open one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from broker.wire.vocabulary import TopicPartition


class _Turn:
    def __init__(self, wheres: Collection[TopicPartition] | None) -> None:
        self.wheres = None if wheres is None else frozenset(wheres)
        self.is_over = asyncio.Event()

    def concerns(self, other: _Turn) -> bool:
        return self.wheres is None or other.wheres is None or not self.wheres.isdisjoint(other.wheres)


class Turns:
    """Who waits, waits for those before it alone: so nobody waits for each other."""

    def __init__(self) -> None:
        self._turns: list[_Turn] = []
        """In the order in which they were asked for."""

    @asynccontextmanager
    async def at(self, wheres: Collection[TopicPartition] | None) -> AsyncIterator[None]:
        """None: all partitions there are."""
        turn = _Turn(wheres)
        earlier = [other for other in self._turns if other.concerns(turn)]
        self._turns.append(turn)
        try:
            for other in earlier:
                await other.is_over.wait()
            yield
        finally:
            self._turns.remove(turn)
            turn.is_over.set()
