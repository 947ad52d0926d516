"""Worlds in which one kind of trouble comes again and again, just where it can do harm: elsewhere it seldom does."""

from __future__ import annotations

import asyncio

from broker.wire.coordinator_keys import OFFSETS_TOPIC
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
