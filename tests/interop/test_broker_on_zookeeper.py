"""farshore's broker with its metadata in a real ZooKeeper."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from broker.wire.errors import ErrorCode
from tests.broker.running import running_server
from tests.broker.wire_client import batch_of, connect, values_in
from tests.interop.servers import FarshoreBroker, ZooKeeperServer

SESSION_MS = 4000
WAIT_S = 180


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not await condition():
            await asyncio.sleep(0.05)


async def test_a_broker_whose_zookeeper_stands_still_stops_in_time_and_goes_on(tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path / "zookeeper") as zookeeper:
        settings: dict[str, Any] = {
            "zookeeper": f"{zookeeper.address}/site",
            "zookeeper_session_timeout_ms": SESSION_MS,
        }
        async with running_server(tmp_path / "data", **settings) as server, connect(server.address) as client:
            await client.create_topic("t", 3)
            acknowledged, last_asked_at = 0, 0.0

            async def produces() -> bool:
                nonlocal acknowledged, last_asked_at
                asked_at = time.monotonic()
                code = (await client.produce("t", batch_of(f"{acknowledged}"))).error_code
                assert code in (0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                if code == 0:
                    acknowledged, last_asked_at = acknowledged + 1, asked_at
                return code == 0

            async def refuses() -> bool:
                return not await produces()

            await until(produces)
            await asyncio.to_thread(zookeeper.pause)
            paused_at = time.monotonic()
            await until(refuses)
            assert last_asked_at - paused_at < SESSION_MS / 1000
            await asyncio.sleep(paused_at + SESSION_MS / 1000 + 1 - time.monotonic())
            assert not await produces()
            await asyncio.to_thread(zookeeper.resume)
            await until(produces)
            assert values_in(await client.fetch("t", 0)) == [f"{number}" for number in range(acknowledged)]

            async def creates() -> bool:
                # Until the controllership is renewed too.
                return "later" in server.broker.topics or (await client.try_create_topic("later")) == 0

            await until(creates)


async def test_a_thousand_partitions_are_made_and_found_again(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    settings: dict[str, Any] = {"zookeeper": f"{zookeeper.address}/test-{uuid.uuid4()}", "node_id": 7}
    async with running_server(tmp_path, **settings) as server, connect(server.address) as client:
        await client.create_topic("wide", 1000)
        assert (await client.produce("wide", batch_of("a"), partition=999)).error_code == 0
    async with running_server(tmp_path, **settings) as server, connect(server.address) as client:
        assert len(server.broker.topics["wide"].partitions) == 1000
        assert {p.leader_epoch for p in server.broker.topics["wide"].partitions.values()} == {1}


class ConfiguredBroker(FarshoreBroker):
    """A broker of a cluster, as a configuration file says."""

    def __init__(self, folder: Path, zookeeper: str) -> None:
        super().__init__(folder)
        self.file = folder / "farshore.toml"
        folder.mkdir()
        self.file.write_text(
            f'[sites.east]\nbootstrap_servers = "{self.bootstrap}"\n'
            f'[sites.east.cluster]\nzookeeper = "{zookeeper}"\n'
            f'[[sites.east.brokers]]\nnode_id = 7\nlisten = "{self.bootstrap}"\ndata_dir = "data"\nrack = "a"\n'
        )

    def command(self) -> list[str]:
        run = ["broker", "run", "--site", "east", "--node-id", "7"]
        return [*super().command()[:3], "--config", str(self.file), *run]


async def test_a_broker_killed_waits_for_its_earlier_life_and_has_everything(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    with ConfiguredBroker(tmp_path / "broker", f"{zookeeper.address}/test-{uuid.uuid4()}") as server:
        async with connect(server.bootstrap) as client:
            await client.create_topic("t")
            assert (await client.produce("t", batch_of("a"))).error_code == 0
        await asyncio.to_thread(server.kill9)
        await asyncio.to_thread(server.start)
        async with connect(server.bootstrap) as client:

            async def leads() -> bool:
                found = await client.fetch("t", 0)
                assert found.error_code in (0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                assert found.error_code or values_in(found) == ["a"]
                return found.error_code == 0

            await until(leads)
            assert (await client.produce("t", batch_of("b"))).error_code == 0
