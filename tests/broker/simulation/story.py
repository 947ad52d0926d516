"""What happens in one world: a cluster begins, everything goes wrong for a while, and then it must come to rest."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from broker.client.errors import ClientError
from broker.wire.coordinator_keys import OFFSETS_TOPIC
from broker.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from broker.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from broker.wire.messages.delete_topics import DeleteTopicsRequest
from broker.wire.messages.elect_leaders import ElectLeadersRequest
from broker.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.broker.replication.simulation.judge import Found
from tests.broker.simulation.clients import GROUP, PARTITIONS, TOPIC, Clients
from tests.broker.simulation.network import CLIENTS
from tests.broker.simulation.world import TICK_S, World
from tests.broker.simulation.zookeeper import ZOOKEEPER

BEGIN_S: Final = 30.0
CHAOS_S: Final = 8.0
SETTLED_S: Final = 90.0
LOOK_S: Final = 0.2
HOUR_MS: Final = 3_600_000
FAULTS: Final = ("kill", "kill", "torn", "pause", "pause", "cut", "cut", "cut", "reset", "stop", "clock", "full")


class Story:
    chaos_s = CHAOS_S

    def __init__(self, seed: int, folder: Path) -> None:
        self.world = World(seed, folder)
        self.rng = random.Random(f"story {seed}")
        self.clients = Clients(self.world, random.Random(f"clients {seed}"))
        self._pace_s = self.rng.choice([0.3, 0.6, 1.2])

    @property
    def trace(self) -> list[str]:
        return self.world.trace

    @property
    def counts(self) -> Counter[str]:
        return self.world.counts

    def run(self) -> None:
        """Raises Found, and whatever else was found."""
        self.world.loop.run(self._to_the_end())

    async def _to_the_end(self) -> None:
        try:
            await self._whole()
        finally:
            self.world.close()

    async def _whole(self) -> None:
        world, clients = self.world, self.clients
        async with asyncio.TaskGroup() as tasks:
            always = [tasks.create_task(self._ticks())]
            for node_id in world.nodes:
                world.start(node_id)
            await self._until(lambda: len(list(world.servers())) == len(world.nodes), BEGIN_S, "all brokers serve")
            await self._make_topic(TOPIC, PARTITIONS)
            while not await clients.look_at_commit():
                await self._make_coordinator()
            writing = [tasks.create_task(clients.write()) for _ in range(2)]
            writing.append(tasks.create_task(clients.commit()))
            always += [tasks.create_task(one) for one in (clients.read(), clients.look_at_commits())]
            world.note("faults begin")
            try:
                async with asyncio.timeout(self.chaos_s):
                    async with asyncio.TaskGroup() as chaos:
                        chaos.create_task(self._disturb())
                        chaos.create_task(self._administer())
            except TimeoutError:
                pass
            world.note("faults are over")
            clients.writes = False
            world.heal()
            await asyncio.wait(writing)
            world.note("nobody writes any more")
            await self._settled()
            world.note("all is at rest")
            clients.check_refused()
            for task in always:
                task.cancel()

    async def _ticks(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.world.zookeeper.tick()

    async def _until(self, condition: Callable[[], bool], limit_s: float, what: str) -> None:
        end = self.world.loop.time() + limit_s
        while not condition():
            if self.world.loop.time() > end:
                raise Found(f"it never came to this: {what}")
            await asyncio.sleep(LOOK_S)

    async def _settled(self) -> None:
        end = self.world.loop.time() + SETTLED_S
        while (
            problem := self.world.unsettled(TOPIC, OFFSETS_TOPIC)
        ) is not None or not await self.clients.look_at_commit():
            if self.world.loop.time() > end:
                raise Found(f"never at rest: {problem}")
            self.world.heal()
            await asyncio.sleep(LOOK_S)

    async def _make_topic(self, name: str, partitions: int) -> None:
        configs = [CreatableTopicConfig("min.insync.replicas", "2")]
        request = CreateTopicsRequest([CreatableTopic(name, partitions, 3, configs=configs)], 5000)
        for _ in range(20):
            try:
                answer = await self.clients.ask(self.clients.any_node(), request, 7, 6000)
            except ClientError:
                continue
            if answer.topics[0].error_code in (0, 36):
                return
            await asyncio.sleep(0.5)
        raise Found(f"{name} cannot be made")

    async def _make_coordinator(self) -> None:
        """The first who asks for it has its topic made."""
        with suppress(ClientError):
            await self.clients.ask(self.clients.any_node(), FindCoordinatorRequest(GROUP), 2)
        await asyncio.sleep(LOOK_S)

    # -- what goes wrong -------------------------------------------------------------------------------------------

    async def _disturb(self) -> None:
        while True:
            await asyncio.sleep(self.rng.expovariate(1 / self._pace_s))
            what = self.rng.choice(FAULTS)
            self._fault(what, self.rng.choice(list(self.world.nodes)))

    def _fault(self, what: str, node_id: int) -> None:
        world, rng, loop = self.world, self.rng, self.world.loop
        node = world.nodes[node_id]
        if node.life.dead:
            return
        if what == "clock":
            world.set_wall(node_id, rng.choice([-HOUR_MS, 0, HOUR_MS]))
        elif what == "kill":
            world.kill(node_id)
            loop.call_later(rng.uniform(0.05, 3.0), world.start, node_id)
        elif what == "torn" and node.disk is not None and node.runs:
            node.disk.dies_at = node.disk.changes + rng.randint(1, 12)
            loop.call_later(rng.uniform(1.0, 4.0), world.start, node_id)
        elif what == "pause":
            world.pause(node_id)
            loop.call_later(rng.choice([0.1, 0.6, 2.0, 4.0]), world.go_on, node_id)
        elif what == "full":
            world.fill(node_id)
            loop.call_later(rng.uniform(0.2, 3.0), world.make_room, node_id)
        elif what == "stop":
            world.note(f"{node_id} is stopped")
            node.stop.set()
        elif what == "reset":
            other = rng.choice([f"node-{one}" for one in world.nodes if one != node_id])
            world.network.reset(f"node-{node_id}", other)
        elif what == "cut":
            self._cut(f"node-{node_id}")

    def _cut(self, host: str) -> None:
        world, rng = self.world, self.rng
        others = [f"node-{one}" for one in world.nodes if f"node-{one}" != host]
        shape = rng.choice(["one way", "pair", "alone", "zookeeper", "zookeeper", "clients"])
        other = rng.choice(others)
        ways = {
            "one way": [(host, other)],
            "pair": [(host, other), (other, host)],
            "alone": [way for one in others for way in ((host, one), (one, host))],
            "zookeeper": zookeeper_ways(host),
            "clients": [(host, CLIENTS), (CLIENTS, host)],
        }[shape]
        world.note(f"{host} is cut: {shape} {other}")
        self._cut_ways(ways)
        world.loop.call_later(rng.choice([0.2, 1.0, 3.0]), self._mend_ways, ways)

    def _cut_ways(self, ways: list[tuple[str, str]]) -> None:
        self.world.counts["cuts"] += 1
        for way in ways:
            self.world.cut(*way)

    def _mend_ways(self, ways: list[tuple[str, str]]) -> None:
        for way in ways:
            self.world.mend(*way)

    # -- what operators do -----------------------------------------------------------------------------------------

    async def _administer(self) -> None:
        while True:
            await asyncio.sleep(self.rng.expovariate(1 / (2 * self._pace_s)))
            try:
                await self._order(self.rng.choice(["move", "move", "elect", "make", "delete"]))
            except ClientError:
                continue

    async def _order(self, what: str) -> None:
        ask, node_id = self.clients.ask, self.clients.any_node()
        self.world.note(what)
        if what == "move":
            replicas = self.rng.sample(list(self.world.nodes), 3)
            partition = ReassignablePartition(self.rng.randrange(PARTITIONS), replicas)
            await ask(node_id, AlterPartitionReassignmentsRequest(3000, [ReassignableTopic(TOPIC, [partition])]), 0)
        elif what == "elect":
            await ask(node_id, ElectLeadersRequest(0, None, 3000), 2)
        elif what == "make":
            await ask(node_id, CreateTopicsRequest([CreatableTopic("u", 2, 3)], 3000), 7)
        else:
            await ask(node_id, DeleteTopicsRequest(topic_names=["u"], timeout_ms=3000), 5)
        self.world.counts[what] += 1


def zookeeper_ways(host: str) -> list[tuple[str, str]]:
    return [(host, ZOOKEEPER), (ZOOKEEPER, host)]
