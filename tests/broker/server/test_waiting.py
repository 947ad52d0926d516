"""What a start waits for is said: whom, for how long at most, and once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.base.clock import Clock
from broker.cluster.metadata import CLIENT_LISTENER, BrokerRegistration, Endpoint
from broker.cluster.metadata_store import NodeIdTaken
from broker.cluster.zookeeper import layout
from broker.cluster.zookeeper.session import ZooKeeper
from broker.config import BrokerConfig
from broker.outside import Outside
from broker.server import serving
from tests.broker.on_zookeeper import World
from tests.broker.running_cluster import until
from tests.ports import free_port

WAIT_S = 60


def waits(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for text in caplog.messages if text.startswith("waiting ")]


@asynccontextmanager
async def starting(world: World, folder: Path, port: int = 0) -> AsyncIterator[asyncio.Event]:
    """A broker that starts meanwhile -> whether it serves; it does at the end, and stops."""
    serves, stop = asyncio.Event(), asyncio.Event()

    async def run() -> None:
        async with world.broker(folder, listen_port=port):
            serves.set()
            await stop.wait()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(run())
        yield serves
        async with asyncio.timeout(WAIT_S):
            await serves.wait()
        stop.set()


async def test_zookeeper_that_does_not_answer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "broker")
    world, answers = World(), asyncio.Event()

    async def open_session(servers: str, timeout_ms: int, clock: Clock, connect_timeout_ms: int) -> ZooKeeper:
        await answers.wait()
        return await world.open_session(servers, timeout_ms, clock, connect_timeout_ms)

    async def serve_a_moment() -> None:
        config = BrokerConfig(tmp_path, listen_port=0, zookeeper="zk:2181/east")
        async with serving(config, Outside(world.clock, open_session)):
            pass

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(serve_a_moment())
        await until(lambda: waits(caplog) == ["waiting for ZooKeeper at zk:2181/east to answer, 18 s at most"])
        answers.set()


async def test_a_controller_that_is_not_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "broker")
    world = World()
    async with world.broker(tmp_path / "first", node_id=2):
        pass
    dead = world.server.connect()
    await dead.create(layout.CONTROLLER, layout.encode_controller(9, 0), ephemeral=True)
    told = "waiting for the controller to say what this broker has, and for its logs to be open"
    async with starting(world, tmp_path / "own") as serves:
        await until(lambda: told in waits(caplog))
        assert not serves.is_set()
        world.server.expire(dead)
    assert waits(caplog).count(told) == 1


async def test_a_node_id_that_another_broker_has_is_told_with_its_address(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    world.server.session_timeout_ms = 1000
    async with world.broker(tmp_path / "one") as server:
        with pytest.raises(NodeIdTaken, match=rf"runs already: .* {server.address} .*did not end in 2 s"):
            async with world.broker(tmp_path / "two"):
                pass
        (told,) = waits(caplog)
    assert f"by the one at {server.address} (session 0x" in told
    assert "2 s at most: broker 1 is registered already" in told


async def test_an_earlier_life_of_this_broker_is_waited_for_and_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world, port = World(), free_port()
    async with world.broker(tmp_path / "first", node_id=2):
        pass
    dead = world.server.connect()
    registration = BrokerRegistration(1, (Endpoint(CLIENT_LISTENER, "127.0.0.1", port),))
    await dead.create(layout.broker(1), layout.encode_broker(registration, 0), ephemeral=True)
    async with starting(world, tmp_path / "own", port) as serves:
        await until(lambda: len(waits(caplog)) == 1)
        assert not serves.is_set()
        world.server.expire(dead)
    (told,) = [text for text in waits(caplog) if "session" in text]
    assert f"by an earlier life at this address, 127.0.0.1:{port} (session 0x" in told
