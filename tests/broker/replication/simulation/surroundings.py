"""What the loops of a node reach: its leaders and the store. Both are far away and lose what they are told, and a node
that is paused learns of nothing before it goes on.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, Protocol, TypeVar

from broker.client.errors import ConnectionLost, RequestTimedOut
from broker.cluster.metadata import PartitionState, Written
from broker.cluster.metadata_store import OutcomeUnknown
from broker.replication.followers import FETCH_VERSION
from broker.wire.messages.fetch import FetchRequest, FetchResponse
from broker.wire.vocabulary import TopicPartition
from tests.broker.replication.simulation.node import Node

STORE: Final = 0
ASK_AGAIN_MS: Final = 200.0
T = TypeVar("T")


class Distance(Protocol):
    """`World`, as far as it is used here."""

    state: PartitionState
    counts: Counter[str]

    def at(self, delay_ms: float, action: Callable[[], None]) -> None: ...

    def at_node(self, delay_ms: float, node: Node, action: Callable[[], None], life: int | None = None) -> None: ...

    def reaches(self, one: int, other: int) -> bool: ...

    def far(self) -> float: ...

    def due_at_store(self, node: Node) -> float: ...

    def due_back(self, node: Node) -> float: ...

    def stored(self, state: PartitionState) -> None: ...

    def note(self, what: str) -> None: ...


async def awake(world: Distance, node: Node) -> None:
    """Returns when the node is not paused."""
    turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    world.at_node(0, node, lambda: _give(turn, None))
    await turn


def _give(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[T], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


class SimConnection:
    """To one leader. What is asked is answered in any order: an old request may be answered after a newer one."""

    def __init__(self, world: Distance, node: Node, peer: Node) -> None:
        self._world = world
        self._node = node
        self._peer = peer
        self._answer: asyncio.Future[FetchResponse] | None = None

    async def request(self, message: FetchRequest, version: int, *, timeout_ms: int) -> FetchResponse:
        assert version == FETCH_VERSION
        world, node, life = self._world, self._node, self._node.life
        await awake(world, node)
        answer: asyncio.Future[FetchResponse] = asyncio.get_running_loop().create_future()
        self._answer = answer
        if world.reaches(node.node_id, self._peer.node_id):
            world.at_node(world.far(), self._peer, lambda: self._serve(message, answer, life))
        world.at_node(ASK_AGAIN_MS, node, lambda: _fail(answer, RequestTimedOut("the leader did not answer")))
        response = await answer
        world.counts["divergences"] += any(
            data.diverging_epoch is not None for topic in response.responses for data in topic.partitions
        )
        return response

    async def send(self, message: object, version: int) -> None:
        """No fetch waits at a leader here."""

    def _serve(self, message: FetchRequest, answer: asyncio.Future[FetchResponse], life: int) -> None:
        response = self._peer.answer(message)
        if self._world.reaches(self._peer.node_id, self._node.node_id):
            self._world.at_node(self._world.far(), self._node, lambda: _give(answer, response), life)

    def abort(self) -> None:
        if self._answer is not None:
            _fail(self._answer, ConnectionLost("closed"))


class SimStore:
    """A session of one node: its requests come in order, or not at all, and so do the answers."""

    def __init__(self, world: Distance, node: Node) -> None:
        self._world = world
        self._node = node

    async def write_isr(self, states: Mapping[TopicPartition, PartitionState]) -> Written:
        ((where, wanted),) = states.items()
        self._world.note(f"{self._node.node_id} asks for the ISR {wanted.isr}")

        def write() -> Written:
            if wanted.version != self._world.state.version:
                return Written({}, frozenset({where}))
            self._world.stored(replace(wanted, version=wanted.version + 1))
            self._world.counts["isr changes"] += 1
            return Written({where: self._world.state}, frozenset())

        return await self._asked(write)

    async def partition_states(self, states: Mapping[TopicPartition, PartitionState]) -> Written:
        (where,) = states
        return await self._asked(lambda: Written({where: self._world.state}, frozenset()))

    async def _asked(self, act: Callable[[], Written]) -> Written:
        """Raises OutcomeUnknown."""
        world, node, life = self._world, self._node, self._node.life
        await awake(world, node)
        answer: asyncio.Future[Written] = asyncio.get_running_loop().create_future()

        def carry_out() -> None:
            written = act()
            if world.reaches(node.node_id, STORE):
                world.at_node(world.due_back(node), node, lambda: _give(answer, written), life)

        if world.reaches(node.node_id, STORE):
            world.at(world.due_at_store(node), carry_out)
        world.at_node(ASK_AGAIN_MS, node, lambda: _fail(answer, OutcomeUnknown("the store did not answer")))
        return await answer
