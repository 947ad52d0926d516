"""An ISR that a leader wrote by what it knew of a broker's earlier life (KIP-903): what that broker had may be gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import UUID

import pytest

from broker.cluster.metadata import BrokerRegistration, LiveBroker, PartitionState, TopicState
from broker.controller.cluster import Cluster
from broker.controller.requests import NewTopic
from broker.wire.vocabulary import TopicPartition
from tests.broker.controller.checked_zookeeper import SESSION_MS
from tests.broker.controller.cluster_world import World

WHERE = TopicPartition("t", 0)


class Scene:
    """A partition that one broker leads, another one follows, while the third is the controller."""

    def __init__(self, world: World) -> None:
        self.world = world
        (controller,) = {broker.view.controller for broker in world.brokers.values()}
        assert controller is not None
        self.controller = controller
        self.leader, self.follower = (node for node in world.brokers if node != controller)

    async def create(self) -> None:
        controller = self.world.brokers[self.controller].controller
        assert controller is not None
        replicas = [self.leader, self.follower, self.controller]
        await controller.create_topic(NewTopic("t", assignment={0: replicas}), 60_000)
        await self.world.settle()

    def epoch(self, node: int) -> int:
        store = self.world.brokers[node].store
        assert store is not None
        return store.broker_epoch

    async def state(self) -> PartitionState:
        store = self.world.brokers[self.leader].store
        assert store is not None
        return (await store.topics(["t"]))["t"].partitions[0]

    async def write(self, isr: tuple[int, ...], *known: tuple[int, int]) -> None:
        """As the leader; `known` are epochs of brokers in which they were found in sync."""
        store = self.world.brokers[self.leader].store
        assert store is not None
        written = await store.write_isr({WHERE: replace(await self.state(), isr=isr, isr_epochs=known)})
        assert not written.refused

    async def rest(self) -> PartitionState:
        """The state when nothing happens any more."""
        for _ in range(2000):
            await asyncio.sleep(0)
        return await self.state()


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    world = World(1)
    for node in world.brokers:
        world.start(node)
    await world.settle()
    scene = Scene(world)
    await scene.create()
    yield scene
    for node in world.brokers:
        await world.kill(node)


async def test_who_is_gone_does_not_stay_in_an_isr_that_its_leader_wrote_later(scene: Scene) -> None:
    """Until the leader misses it, nothing would be acknowledged; and it would be in sync when it comes back."""
    earlier = scene.epoch(scene.follower)
    await scene.world.kill(scene.follower)
    scene.world.pass_time(SESSION_MS)
    assert scene.follower not in (await scene.rest()).isr
    await scene.write((scene.leader, scene.follower, scene.controller), (scene.follower, earlier))
    assert set((await scene.rest()).isr) == {scene.leader, scene.controller}


async def test_who_was_in_sync_in_an_earlier_life_is_not_in_this_one(scene: Scene) -> None:
    world, follower = scene.world, scene.follower
    earlier = scene.epoch(follower)
    await world.kill(follower)
    world.pass_time(SESSION_MS)
    world.start(follower)
    before = await scene.rest()
    assert scene.epoch(follower) > earlier
    assert follower not in before.isr
    everybody = (scene.leader, follower, scene.controller)
    # The leader had asked for it before it heard of the other life.
    await scene.write(everybody, (follower, earlier))
    after = await scene.rest()
    assert set(after.isr) == {scene.leader, scene.controller}
    assert after.leader_epoch > before.leader_epoch
    await scene.write(everybody, (follower, scene.epoch(follower)))
    assert await scene.rest() == replace(after, isr=everybody, version=after.version + 1)


def test_a_new_controller_finds_who_was_restarted_whatever_a_leader_has_written_since() -> None:
    """Between the restart at 700 and the controller's first look the leader took in a third one, at 800."""
    epochs = ((1, 90), (2, 95), (3, 60))
    state = PartitionState(1, 4, (1, 2, 3), (1, 2, 3), version=7, written_at=800, isr_epochs=epochs)
    topic = TopicState("t", UUID(int=1), (state,))
    live = {1: 90, 2: 700, 3: 60}
    cluster = Cluster({"t": topic}, {node: LiveBroker(BrokerRegistration(node, ()), at) for node, at in live.items()})
    after = cluster.elections_after_taking_over()[WHERE]
    assert (after.leader, after.leader_epoch, after.isr) == (1, 5, (1, 3))
