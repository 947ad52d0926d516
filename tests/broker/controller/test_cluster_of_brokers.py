"""Controllers that are killed, cut off and deposed at any await, in clusters whose brokers come and go."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace

import pytest

from broker.controller.leaders import LeaderBalance
from broker.controller.requests import NewTopic
from broker.errors import BrokerError
from broker.wire.vocabulary import TopicPartition
from tests.broker.cluster.fake_zookeeper import FakeSession
from tests.broker.controller.cluster_world import World
from tests.worlds import first_worlds

SEEDS = (*range(first_worlds(25, of=100)), 262, 1315)
"""262: a topic whose making was cut off waits for a broker that is away when the next controller begins. 1315: one that
was followed and has not noticed orders a broker that has just begun.
"""
OPERATED_SEEDS = range(first_worlds(15, of=60))
SEEDS_VARIABLE = "FARSHORE_CONTROLLER_SEEDS"
"""Runs these, given as FIRST:COUNT, in the place of the fixed ones."""
ACTIONS = 40
BALANCE = LeaderBalance(check_interval_s=5, imbalance_max_percent=10)


async def live_through(seed: int, actions: int = ACTIONS, *, operated: bool = False) -> World:
    """`operated`: there are operators, who say who is to lead, and where partitions are to be. Raises Violation."""
    world = World(seed, brokers=4, balance=BALANCE) if operated else World(seed)
    story = Story(world, operated)
    try:
        for node in world.brokers:
            world.start(node)
        for _ in range(actions):
            for _ in range(world.rng.randrange(60)):
                await asyncio.sleep(0)
            await story.next()
        story.calm()
        await world.settle()
    finally:
        story.end()
        for node in world.brokers:
            await world.kill(node)
        answers = await asyncio.gather(*story.asking, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return world


class Story:
    """What happens, by the world's dice."""

    def __init__(self, world: World, operated: bool) -> None:
        self.world = world
        self.rng = world.rng
        self.asking: list[asyncio.Task[None]] = []
        self._acts = [
            (self._create, 6), (self._grow, 2), (self._delete, 2), (self._kill, 3), (self._start, 5),
            (self._expire, 2), (self._cut, 2), (self._mend, 3), (self._time, 6), (self._change_isr, 4),
            (self._prefer, 2), (self._cut_way, 1), (self._leave, 2),
        ]  # fmt: skip
        if operated:
            self._acts += [(self._elect, 4), (self._reassign, 6), (self._call_off, 2), (self._die_in_between, 4)]

    async def next(self) -> None:
        acts, weights = zip(*self._acts, strict=True)
        await self.rng.choices(acts, weights)[0]()

    def calm(self) -> None:
        self.world.zookeeper.written = lambda session: None

    def end(self) -> None:
        for task in self.asking:
            task.cancel()

    def _node(self) -> int:
        return self.rng.choice(sorted(self.world.brokers))

    def _ask(self, what: str) -> None:
        """At a broker that may not be the controller, or not for long."""
        controller = self.world.brokers[self._node()].controller
        name = f"t{self.rng.randrange(6)}"
        count, factor = self.rng.randint(1, 4), self.rng.randint(1, 3)
        if controller is None:
            return

        async def asked() -> None:
            try:
                if what == "create":
                    await controller.create_topic(NewTopic(name, count, factor), 1)
                elif what == "grow":
                    await controller.grow_topic(name, count + 3, None, 1)
                else:
                    await controller.delete_topic(name, 1)
            except BrokerError:
                return

        self.asking.append(asyncio.create_task(asked()))

    async def _create(self) -> None:
        self._ask("create")

    async def _grow(self) -> None:
        self._ask("grow")

    async def _delete(self) -> None:
        self._ask("delete")

    async def _kill(self) -> None:
        await self.world.kill(self._node())

    async def _die_in_between(self) -> None:
        """A controller between two of its writes, of which a reassignment has up to three."""
        left = self.rng.randint(1, 3)

        def written(session: FakeSession) -> None:
            nonlocal left
            left -= 1
            node = next((node for node, known in self.world.sessions.items() if known is session), None)
            if left == 0 and node is not None:
                self.calm()
                session.cut()
                self.asking.append(asyncio.create_task(self.world.kill(node)))

        self.world.zookeeper.written = written
        nodes = sorted(self.world.brokers)
        led = sorted(where for node in nodes for where in self.world.brokers[node].led())
        if led:
            where = self.rng.choice(led)
            for node in nodes:
                # Who is not the controller refuses.
                self._move({where: self.rng.sample(nodes, self.rng.randint(1, 3))}, node)

    async def _start(self) -> None:
        for node, broker in self.world.brokers.items():
            if not broker.runs:
                self.world.start(node)
                return

    async def _expire(self) -> None:
        if (session := self.world.sessions.get(self._node())) is not None:
            self.world.zookeeper.expire(session)

    async def _cut(self) -> None:
        if (session := self.world.sessions.get(self._node())) is not None and session.reachable:
            session.cut()

    async def _mend(self) -> None:
        for node, session in self.world.sessions.items():
            if self.world.brokers[node].runs and not session.reachable:
                session.mend()

    async def _time(self) -> None:
        self.world.pass_time(self.rng.choice([500, 2000, 7000]))

    async def _cut_way(self) -> None:
        self.world.cut_ways = [] if self.world.cut_ways else [{self._node(), self._node()}]

    async def _leave(self) -> None:
        """A broker that is stopped in order; whether the controller hears of it or not, it goes."""
        leaving, asked = self._node(), self.world.brokers[self._node()].controller
        store = self.world.brokers[leaving].store
        if asked is None or store is None:
            return

        async def left() -> None:
            await asked.controlled_shutdown(leaving, store.broker_epoch, 1)
            await self.world.kill(leaving)

        self.asking.append(asyncio.create_task(self._try(left())))

    async def _prefer(self) -> None:
        broker = self.world.brokers[self._node()]
        if broker.runs and broker.store is not None and broker.states:
            self.asking.append(asyncio.create_task(self._try(broker.store.request_preferred_elections(broker.states))))

    async def _elect(self) -> None:
        controller = self.world.brokers[self._node()].controller
        if controller is not None:
            wheres = self.rng.choice([None, self._partitions()])
            self.asking.append(asyncio.create_task(self._try(controller.elect_leaders(wheres, 1, unclean=False))))

    def _partitions(self) -> list[TopicPartition]:
        return [TopicPartition(f"t{self.rng.randrange(6)}", self.rng.randrange(4)) for _ in range(3)]

    def _move(self, wanted: dict[TopicPartition, Sequence[int] | None], node: int | None = None) -> None:
        controller = self.world.brokers[self._node() if node is None else node].controller
        if controller is not None:
            self.asking.append(asyncio.create_task(self._try(controller.alter_reassignments(wanted, 1))))

    async def _reassign(self) -> None:
        nodes = sorted(self.world.brokers)
        self._move({where: self.rng.sample(nodes, self.rng.randint(1, 3)) for where in self._partitions()})

    async def _call_off(self) -> None:
        self._move(dict.fromkeys(self._partitions()))

    async def _change_isr(self) -> None:
        """As a leader does: a follower that is slow leaves, one that caught up comes back."""
        broker = self.world.brokers[self._node()]
        led = sorted(broker.led().items())
        if not broker.runs or broker.store is None or not led:
            return
        where, state = self.rng.choice(led)
        topic_id, _ = broker.states[where]
        # Only one that fetches can have caught up.
        followers = [self.world.brokers[node] for node in state.replicas if node != broker.node_id]
        there = [each.node_id for each in followers if each.runs and (topic_id, where.partition) in each.folders]
        wanted = replace(state, isr=(broker.node_id, *(node for node in there if self.rng.random() < 0.5)))

        async def changed() -> None:
            if broker.store is None:
                return
            written = await broker.store.write_isr({where: wanted})
            known = broker.states.get(where)
            if where in written.states and known is not None and known[1] == state:
                broker.states[where] = (known[0], written.states[where])

        self.asking.append(asyncio.create_task(self._try(changed())))

    async def _try(self, work: asyncio.Future[None] | object) -> None:
        try:
            await work  # type: ignore[misc]  # any awaitable
        except BrokerError:
            return


def asked(otherwise: Sequence[int]) -> Sequence[int]:
    if (given := os.environ.get(SEEDS_VARIABLE)) is None:
        return otherwise
    first, count = map(int, given.split(":"))
    return range(first, first + count)


@pytest.mark.parametrize("seed", asked(SEEDS))
async def test_whatever_happens_is_followed_by_order(seed: int) -> None:
    await live_through(seed)


@pytest.mark.parametrize("seed", asked(OPERATED_SEEDS))
async def test_operators_move_leaders_and_replicas_whatever_happens(seed: int) -> None:
    await live_through(seed, operated=True)


@pytest.mark.parametrize("seed", [3, 17])
async def test_a_seed_gives_the_same_once_more(seed: int) -> None:
    first, again = [await live_through(seed) for _ in range(2)]
    assert first.orders == again.orders
    assert len(first.orders) > 10
    nodes = [[(path, world.zookeeper.read(path).data) for path in world.zookeeper.paths()] for world in (first, again)]
    assert nodes[0] == nodes[1]
