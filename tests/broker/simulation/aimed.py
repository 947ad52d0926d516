"""Worlds in which one kind of trouble comes again and again, just where it can do harm: elsewhere it seldom does."""

from __future__ import annotations

import asyncio
import json

from broker.cluster.zookeeper import layout
from broker.wire.coordinator_keys import OFFSETS_TOPIC
from broker.wire.vocabulary import NO_LEADER, TopicPartition
from tests.broker.simulation.clients import PARTITIONS, TOPIC
from tests.broker.simulation.story import Story, zookeeper_ways
from tests.broker.simulation.world import SESSION_MS

OVER_S = SESSION_MS / 1000
"""So long after its last sign of life another one is elected."""


class SessionsEnd(Story):
    """The coordinator is cut off from ZooKeeper, and from nobody else, until another one has long been elected."""

    async def _disturb(self) -> None:
        world, rng = self.world, self.rng
        while True:
            await asyncio.sleep(rng.uniform(0.2, 0.6))
            before = world.leader_of(OFFSETS_TOPIC, 0)
            if before in world.nodes:
                world.note(f"{before}, the coordinator, is cut off from ZooKeeper")
                ways = zookeeper_ways(f"node-{before}")
                self._cut_ways(ways)
                await asyncio.sleep(OVER_S + rng.uniform(1.0, 3.0))
                self._mend_ways(ways)


class ControllersDeposed(Story):
    """What the controller orders one broker is held up on its way, until there is another controller."""

    async def _disturb(self) -> None:
        world, rng = self.world, self.rng
        while True:
            await asyncio.sleep(rng.uniform(0.2, 0.6))
            before = world.controller()
            if before is None:
                continue
            held = rng.choice([node for node in world.nodes if node != before])
            world.note(f"orders of {before} to {held} are held up")
            orders, ways = [(f"node-{before}", f"node-{held}")], zookeeper_ways(f"node-{before}")
            self._cut_ways(orders)
            await asyncio.sleep(rng.uniform(0.3, 1.0))
            self._cut_ways(ways)
            await asyncio.sleep(OVER_S + rng.uniform(0.5, 2.0))
            world.note(f"orders of {before} arrive at {held}")
            self._mend_ways(orders)
            await asyncio.sleep(rng.uniform(0.1, 0.4))
            self._mend_ways(ways)


class StatesPutBack(Story):
    """While all brokers are down the states of partitions are put back to those of an earlier day. Its epochs are far
    below those of the logs and were given out to nobody: of others no log tells that they were.
    """

    chaos_s = 16.0
    EARLIER = 500
    LATER = 1000

    async def _disturb(self) -> None:
        world, rng = self.world, self.rng
        await asyncio.sleep(rng.uniform(0.5, 1.0))
        # A log without any record may be in place of one that was lost: nobody leads then.
        while not all(self._all_have_records(index) for index in range(PARTITIONS)):
            await asyncio.sleep(0.1)
        away = rng.choice(list(world.nodes))
        # Alone it would show what it has beyond that; no log of others tells then that nobody acknowledged it.
        may_be_first = self._has_only_acknowledged(away)
        await self._all_die()
        older = {path: self._in_epoch(path, self.EARLIER) for path in self._states()}
        for path in older:
            self._put(path, self._in_epoch(path, self.LATER))
        # What is acknowledged now it lacks, and the logs of all others tell in which epoch that was.
        await self._start_all_but(away)
        while any(self._acknowledged_later(index) < 2 for index in range(PARTITIONS)):
            await asyncio.sleep(0.1)
        await self._all_die()
        world.note("states of an earlier day are put back")
        world.zookeeper.put_back = True
        for path, state in older.items():
            self._put(path, state)
        if may_be_first:
            world.start(away)
            await asyncio.sleep(rng.uniform(0.5, 2.0))
        await self._start_all_but(away)
        world.start(away)
        while not may_be_first and any(self._is_older(path) for path in older):
            await asyncio.sleep(0.1)  # where the others died now, it would be alone after all
        await super()._disturb()

    async def _administer(self) -> None:
        """Reassignments are no part of the states."""
        await asyncio.Event().wait()

    def _has_only_acknowledged(self, node_id: int) -> bool:
        server = self.world.nodes[node_id].server
        for index in range(PARTITIONS):
            committed = self.world.judge(TOPIC, index).committed
            partition = None if server is None else server.broker.partition(TOPIC, index)
            if partition is None or not committed or partition.log.log_end_offset > committed[-1].next_offset:
                return False
        return True

    def _all_have_records(self, index: int) -> bool:
        """Whether each replica has records."""
        servers = [node.server for node in self.world.nodes.values()]
        found = [None if server is None else server.broker.partition(TOPIC, index) for server in servers]
        return all(partition is not None and partition.log.log_end_offset for partition in found)

    def _is_older(self, path: str) -> bool:
        state = json.loads(self.world.zookeeper.read(path).data)
        return bool(state["leader_epoch"] <= self.LATER or state["leader"] == NO_LEADER)

    def _acknowledged_later(self, index: int) -> int:
        return sum(batch.epoch >= self.LATER for batch in self.world.judge(TOPIC, index).committed)

    def _states(self) -> list[str]:
        return [layout.partition_state(TopicPartition(TOPIC, index)) for index in range(PARTITIONS)]

    def _in_epoch(self, path: str, epoch: int) -> bytes:
        return json.dumps(json.loads(self.world.zookeeper.read(path).data) | {"leader_epoch": epoch}).encode()

    def _put(self, path: str, data: bytes) -> None:
        node = self.world.zookeeper.read(path)
        node.data, node.stat = data, node.stat._replace(version=node.stat.version + 1)
        self.world.counts["put"] += 1

    async def _all_die(self) -> None:
        for node_id in self.world.nodes:
            self.world.kill(node_id)
        await asyncio.sleep(OVER_S + 0.5)

    async def _start_all_but(self, away: int) -> None:
        for node_id in self.world.nodes:
            if node_id != away:
                self.world.start(node_id)
                await asyncio.sleep(self.rng.uniform(0.0, 0.5))


class DisksFull(Story):
    """Brokers die and stand still, so that others lead, whose disks take nothing just then."""

    async def _disturb(self) -> None:
        world, rng = self.world, self.rng
        while True:
            await asyncio.sleep(rng.uniform(0.2, 0.6))
            full = rng.sample(list(world.nodes), rng.choice([1, 2, len(world.nodes)]))
            for node in full:
                world.fill(node)
            await asyncio.sleep(rng.uniform(0.0, 0.3))
            self._fault(rng.choice(["kill", "pause", "stop"]), rng.choice(list(world.nodes)))
            await asyncio.sleep(rng.uniform(0.2, OVER_S + 1.0))
            for node in full:
                world.make_room(node)
