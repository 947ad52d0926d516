"""What a controller's end and a broker's stop cost, and what they leave."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from broker.cluster.orders import StaleBrokerEpoch
from broker.cluster.zookeeper.topics import PARTITIONS_AT_ONCE
from broker.controller.controller import ClusterController
from broker.controller.requests import NewTopic
from broker.errors import BrokerError
from tests.broker.cluster.fake_zookeeper import FakeSession, Loss
from tests.broker.controller.checked_zookeeper import SESSION_MS
from tests.broker.controller.cluster_world import World

PARTITIONS = 1000


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World(1)
    for node in world.brokers:
        world.start(node)
    await world.settle()
    yield world
    for node in world.brokers:
        await world.kill(node)


def controller_of(world: World) -> ClusterController:
    (node,) = {broker.view.controller for broker in world.brokers.values()}
    assert node is not None
    controller = world.brokers[node].controller
    assert controller is not None
    return controller


async def test_a_thousand_partitions_are_led_again_after_one_write_for_each_hundred(world: World) -> None:
    made = await controller_of(world).create_topic(NewTopic("wide", PARTITIONS, 3), 60_000)
    await world.settle()
    dead = world.brokers[0].view.controller
    assert dead is not None
    lost = sum(state.leader == dead for state in made.partitions)
    assert lost in (PARTITIONS // 3, PARTITIONS // 3 + 1)
    writes = 0

    def count(session: FakeSession, request: str, path: str) -> Loss | None:
        nonlocal writes
        writes += request == "multi"
        return None

    world.zookeeper.losses = count
    await world.kill(dead)
    world.pass_time(SESSION_MS)
    left = [broker for node, broker in world.brokers.items() if node != dead]

    async with asyncio.timeout(60):
        while sum(len(broker.led()) for broker in left) != PARTITIONS or any(
            state.leader == dead for broker in left for _, state in broker.states.values()
        ):
            for _ in range(200):
                await asyncio.sleep(0)
    # Its broker leaves every ISR, a hundred in one write; both others stood for election.
    assert writes <= PARTITIONS // PARTITIONS_AT_ONCE + 2
    await world.settle()


async def test_a_broker_that_stops_in_order_leads_nothing_by_then(world: World) -> None:
    controller = controller_of(world)
    await controller.create_topic(NewTopic("t", 6, 3), 60_000)
    await controller.create_topic(NewTopic("alone", assignment={0: [1]}), 60_000)
    leaving = world.brokers[1]
    assert leaving.store is not None
    epoch = leaving.store.broker_epoch
    with pytest.raises(StaleBrokerEpoch):
        await controller.controlled_shutdown(1, epoch - 1, 60_000)
    kept = await controller.controlled_shutdown(1, epoch, 60_000)
    assert [where.topic for where in kept] == ["alone"], "nobody else has it"
    async with asyncio.timeout(60):
        while leaving.led().keys() != kept:
            await asyncio.sleep(0)
    topics = await leaving.store.topics()
    assert {state.isr for state in topics["t"].partitions} <= {(0, 2), (2, 0)}
    assert topics["alone"].partitions[0].leader == 1
    await world.kill(1)
    await world.settle()


@pytest.mark.parametrize("busy_orders", [1, 2, 3, 5])
async def test_what_a_broker_refuses_for_a_moment_it_is_ordered_again_as_it_is_then(
    world: World, busy_orders: int
) -> None:
    controller = controller_of(world)
    node = world.brokers[0].view.controller
    others = [broker for broker in world.brokers.values() if broker.node_id != node]
    await controller.create_topic(NewTopic("t", 6, 3), 60_000)
    await controller.create_topic(NewTopic("gone", 3, 3), 60_000)
    await world.settle()
    others[0].busy_orders = busy_orders
    await world.kill(others[1].node_id)
    world.pass_time(SESSION_MS)
    with suppress(BrokerError):
        await controller.delete_topic("gone", 1)
    await world.settle()
    assert others[0].busy_orders == 0
    assert controller_of(world) is controller, "no election was needed for it"


@pytest.mark.parametrize("steps", range(8))
async def test_a_request_that_a_controllers_end_overtakes_leaves_nothing_behind(world: World, steps: int) -> None:
    """A coroutine that is never awaited is a warning, and so an error here."""
    controller, node = controller_of(world), world.brokers[0].view.controller
    assert node is not None
    killing = asyncio.create_task(world.kill(node))
    for _ in range(steps):
        await asyncio.sleep(0)
    asking = asyncio.create_task(controller.delete_topic("none", 1))
    await killing
    asking.cancel()
    await asyncio.wait([asking])
    gc.collect()
