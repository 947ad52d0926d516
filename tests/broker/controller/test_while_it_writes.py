"""What others write, or ZooKeeper refuses, in the middle of what a controller does."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from broker.cluster.zookeeper import layout
from broker.cluster.zookeeper.errors import ZooKeeperError
from broker.cluster.zookeeper.session import SetData
from broker.controller.requests import NewTopic
from broker.wire.vocabulary import TopicPartition
from tests.broker.cluster.fake_zookeeper import FakeSession, Loss
from tests.broker.controller.checked_zookeeper import SESSION_MS
from tests.broker.controller.cluster_world import World
from tests.broker.controller.test_failover import controller_of, world

__all__ = ["world"]
T0 = TopicPartition("t", 0)


async def turns() -> None:
    for _ in range(300):
        await asyncio.sleep(0)


async def test_a_move_does_not_end_while_one_that_stays_has_just_left_the_isr(world: World) -> None:
    """What the replica that goes and the other one acknowledged would be on one disk."""
    controller = controller_of(world)
    await controller.create_topic(NewTopic("t", assignment={0: [0]}), 60_000)
    await controller.alter_reassignments({T0: [1, 2]}, 60_000)
    leader = world.brokers[0]
    assert leader.store is not None
    await turns()
    state, path = leader.states[T0][1], layout.partition_state(T0)
    assert set(state.replicas) == {0, 1, 2}
    asked: list[str] = []

    def shrink(_session: FakeSession, request: str, first: str) -> Loss | None:
        """The leader is quicker than the controller, which has read that all three are in sync."""
        standing = json.loads(world.zookeeper.read(path).data)
        if len(standing["isr"]) == len(world.brokers) and request == "multi" and first == layout.CONTROLLER_EPOCH:
            asked.append(first)
            if len(asked) > 1:
                later = json.dumps(standing | {"isr": [0, 2]}).encode()
                world.zookeeper.write(world.zookeeper.connect(), [SetData(path, later)])
        return None

    world.zookeeper.losses = shrink
    assert (await leader.store.write_isr({T0: replace(state, isr=(1, 2, 0))})).states
    await turns()
    (newest,) = (await leader.store.topics())["t"].partitions
    assert (set(newest.replicas), set(newest.isr)) == ({0, 1, 2}, {0, 2})


async def test_an_election_that_zookeeper_refuses_is_made_by_who_reigns_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next event would find nothing new of the broker that is gone, and leave its partitions without a leader."""
    await controller_of(world).create_topic(NewTopic("t", 6, 3), 60_000)
    await world.settle()
    reigning = world.brokers[0].view.controller
    dead = next(node for node in world.brokers if node != reigning)
    refused: list[str] = []
    multi = FakeSession.multi

    async def refuse_once(self: FakeSession, operations: list[SetData]) -> list[object]:
        states = [operation.path for operation in operations if operation.path.endswith("/state")]
        if states and not refused:
            refused.extend(states)
            raise ZooKeeperError("the request is too large")
        return await multi(self, operations)

    monkeypatch.setattr(FakeSession, "multi", refuse_once)
    await world.kill(dead)
    world.pass_time(SESSION_MS)
    left = [broker for node, broker in world.brokers.items() if node != dead]
    async with asyncio.timeout(30):
        while not refused or sum(len(broker.led()) for broker in left) != 6:
            await turns()
            world.pass_time(1000)
