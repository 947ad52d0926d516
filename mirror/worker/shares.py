"""Which replicators each node moves, while a session runs: they may join, also at a node that had none, and leave."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import TypeAlias

from broker.wire.vocabulary import TopicPartition
from mirror.worker.replicator import Replicator

Move: TypeAlias = Callable[[int, list[Replicator]], Awaitable[None]]
"""Moves the replicators of one node for ever; the list may grow."""


class Shares:
    """Per node its replicators, in one list that whoever moves them looks into again and again."""

    def __init__(self) -> None:
        self._by_node: dict[int, list[Replicator]] = {}
        self._nodes: dict[TopicPartition, int] = {}
        self._unmoved: asyncio.Queue[int] = asyncio.Queue()

    def node_of(self, source: TopicPartition) -> int | None:
        """By whose task the source partition is moved."""
        return self._nodes.get(source)

    def join(self, node_id: int, replicators: Iterable[Replicator]) -> None:
        """These are moved by that node's task from its next round on, in the place of who moved their partitions."""
        joining = list(replicators)
        taken_over = {replicator.source for replicator in joining}
        self.leave(taken_over)
        self._nodes |= dict.fromkeys(taken_over, node_id)
        if node_id in self._by_node:
            self._by_node[node_id] += joining
        else:
            self._by_node[node_id] = joining
            self._unmoved.put_nowait(node_id)

    def leave(self, sources: Collection[TopicPartition]) -> None:
        """Nobody moves these source partitions from now on."""
        for share in self._by_node.values():
            share[:] = [replicator for replicator in share if replicator.source not in sources]
        for where in sources:
            self._nodes.pop(where, None)

    async def run(self, move: Move) -> None:
        """A task for each node, for ever. Raises what they raise."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                node_id = await self._unmoved.get()
                tasks.create_task(_awaited(move(node_id, self._by_node[node_id])))


async def _awaited(work: Awaitable[None]) -> None:
    await work
