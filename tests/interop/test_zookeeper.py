"""KazooZooKeeper on real servers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kazoo.protocol.connection import _SESSION_EXPIRED

from broker.base.clock import SystemClock
from broker.cluster.zookeeper import kazoo_client, kazoo_session
from broker.cluster.zookeeper.errors import ConnectionLost, SessionExpired, ZooKeeperUnreachable
from broker.cluster.zookeeper.kazoo_session import KazooZooKeeper
from broker.cluster.zookeeper.session import WatchEvent, WatchKind, ZooKeeper
from deploy.cli.cluster import missing_zookeeper
from tests.broker.cluster.zookeeper_contract import Connect, Seen, ZooKeeperContract
from tests.interop.servers import ZooKeeperEnsemble, ZooKeeperServer
from tests.ports import free_port

TIMEOUT_MS = 4000
CONNECT_MS = 20_000
WAIT_S = 180


@pytest.fixture
async def connect(zookeeper: ZooKeeperServer) -> AsyncIterator[Connect]:
    async with sessions(f"{zookeeper.address}/test-{uuid.uuid4()}/chroot") as connect:
        yield connect


@contextlib.asynccontextmanager
async def sessions(servers: str) -> AsyncIterator[Connect]:
    opened: list[KazooZooKeeper] = []

    async def connect() -> KazooZooKeeper:
        opened.append(await KazooZooKeeper.connect(servers, TIMEOUT_MS, SystemClock(), CONNECT_MS))
        return opened[-1]

    try:
        yield connect
    finally:
        for session in opened:
            await session.close()


class TestKazoo(ZooKeeperContract):
    pass


async def test_kazoo_keeps_one_function_for_all_that_watch_a_znode(connect: Connect) -> None:
    zk = await connect()
    assert isinstance(zk, KazooZooKeeper)
    await zk.create("/a")
    seen = [Seen() for _ in range(100)]
    for one in seen:
        await zk.get("/a", one)
        await zk.children("/a", one)
    kept = [*zk._client._data_watchers.values(), *zk._client._child_watchers.values()]
    assert sum(map(len, kept)) == 2
    await zk.set("/a", b"1")
    assert [await one.next() for one in seen] == [WatchEvent(WatchKind.CHANGED, "/a")] * len(seen)


async def test_heartbeats_put_the_deadline_off(connect: Connect) -> None:
    zk, clock = await connect(), SystemClock()
    first = zk.alive_until
    assert first - clock.boottime() < zk.session_timeout_ms / 1000
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as tasks:
        beating = tasks.create_task(zk.run())
        while zk.alive_until < first + 1:
            await asyncio.sleep(0.05)
        beating.cancel()


async def test_a_heartbeat_is_agreed_on_by_a_quorum(connect: Connect) -> None:
    """It has a zxid of its own: a leader without followers cannot answer it."""
    zk = await connect()
    _, before = await zk.create("/before")
    moved: set[float] = {zk.alive_until}
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as tasks:
        beating = tasks.create_task(zk.run())
        while len(moved) < 3:
            moved.add(zk.alive_until)
            await asyncio.sleep(0.05)
        beating.cancel()
    _, after = await zk.create("/after")
    assert after.czxid - before.czxid >= len(moved)


async def test_the_server_decides_on_the_sessions_timeout(zookeeper: ZooKeeperServer) -> None:
    # The test server's tick is 500 ms: sessions have 2 to 20 of them.
    for asked_ms, granted_ms in ((100, 1000), (60_000, 10_000)):
        zk = await KazooZooKeeper.connect(zookeeper.address, asked_ms, SystemClock(), CONNECT_MS)
        assert zk.session_timeout_ms == granted_ms
        await zk.close()


async def test_where_nobody_serves_there_is_no_session() -> None:
    with pytest.raises(ZooKeeperUnreachable, match="no session with ZooKeeper"):
        await KazooZooKeeper.connect(f"127.0.0.1:{free_port()}", TIMEOUT_MS, SystemClock(), 500)


async def test_a_zookeeper_that_answers_is_no_finding(zookeeper: ZooKeeperServer) -> None:
    assert await missing_zookeeper(f"{zookeeper.address}/chroot") is None


async def test_a_paused_server_ends_the_deadline_before_the_session(tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path) as server:
        async with sessions(server.address) as connect:
            zk, clock = await connect(), SystemClock()
            lost = Seen()
            await zk.create("/live", ephemeral=True)
            await zk.get("/live", lost)
            async with asyncio.timeout(2 * WAIT_S), asyncio.TaskGroup() as tasks:
                beating = tasks.create_task(zk.run())
                server.pause()
                paused_at = clock.boottime()
                with pytest.raises(ConnectionLost):
                    await zk.set("/live", b"x")
                while clock.boottime() < zk.alive_until:
                    await asyncio.sleep(0.05)
                assert zk.alive_until - paused_at < TIMEOUT_MS / 1000
                assert (await lost.next()).kind is WatchKind.LOST
                # Until it is past the session's timeout by the server's clock as well.
                await asyncio.sleep(paused_at + TIMEOUT_MS / 1000 + 1 - clock.boottime())
                server.resume()
                goes_on = await _goes_on(zk)
                beating.cancel()
            # What it reads first when it wakes is the server's own: that time is up, or that the client is there again.
            assert goes_on is not zk.expired
            stat = await (await connect()).exists("/live")
            assert (stat.ephemeral_owner if stat else None) == (zk.session_id if goes_on else None)


async def test_an_ensemble_loses_a_server_and_the_session_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ZooKeeperEnsemble(tmp_path) as ensemble:
        async with sessions(ensemble.address) as connect:
            zk = await connect()
            await zk.create("/live", b"", ephemeral=True)
            async with asyncio.timeout(2 * WAIT_S), asyncio.TaskGroup() as tasks:
                beating = tasks.create_task(zk.run())
                for server in ensemble.servers:
                    server.kill9()
                    version = (await _until_answered(zk)) + 1
                    server.start()
                    assert version > 0
                beating.cancel()
            stat = await zk.exists("/live")
            assert stat is not None
            assert stat.ephemeral_owner == zk.session_id
    told = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert {record.name for record in told} == {kazoo_session.__name__}, "kazoo's own lines are many"
    assert [" broke; " in record.getMessage() for record in told] == [True, False] * (len(told) // 2)
    assert all(record.getMessage().endswith(" answers again") for record in told[1::2])


async def test_many_requests_while_no_server_is_found_do_not_stop_the_event_loop(tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path) as server:
        async with sessions(server.address) as connect:
            zk = await connect()
            assert isinstance(zk, KazooZooKeeper)
            asked = [zk.get("/") for _ in range(500)]
            server.kill9()
            deadline = time.monotonic() + WAIT_S
            while zk._client.connected and time.monotonic() < deadline:
                time.sleep(0.01)  # noqa: ASYNC251 - as one that is in the middle of a turn, the loop hears of nothing
            for each in asked:
                each.send(None)
            for each in asked:
                each.close()
            await asyncio.sleep(0)
            assert not zk.expired


async def test_who_hears_that_the_session_is_over_finds_it_expired(connect: Connect) -> None:
    """Also where kazoo's thread knows of it, and the loop, in the middle of a turn, has not been told yet."""
    zk = await connect()
    assert isinstance(zk, KazooZooKeeper)
    zk._client._call(_SESSION_EXPIRED, zk._client.handler.async_result())
    deadline = time.monotonic() + WAIT_S
    while not zk._ended and time.monotonic() < deadline:
        time.sleep(0.01)  # noqa: ASYNC251 - the loop hears of nothing
    assert not zk.expired
    for ask in (zk.exists("/"), zk.wait_connected()):
        with pytest.raises(SessionExpired):
            ask.send(None)
        assert zk.expired
        assert zk.alive_until == float("-inf")


async def test_a_session_that_is_connected_again_first_catches_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ZooKeeperServer(tmp_path) as server:
        async with sessions(server.address) as connect:
            zk = await connect()
            await zk.create("/live")
            # From before the kill on: the session may be connected again before `start` has returned.
            with caplog.at_level(logging.DEBUG, kazoo_client.kazoos_log.name):
                server.kill9()
                server.start()
                async with asyncio.timeout(WAIT_S):
                    await _until_answered(zk)
            sent = [record.getMessage() for record in caplog.records if "Sending request" in record.msg]
            caught_up, answered = (
                max(i for i, text in enumerate(sent) if name in text) for name in ("Sync", "SetData")
            )
            # What kazoo still had in its queue goes first, and is seen by whoever asks afterwards.
            assert caught_up < answered


async def _goes_on(zk: ZooKeeper) -> bool:
    try:
        return await _until_answered(zk) > 0
    except SessionExpired:
        return False


async def _until_answered(zk: ZooKeeper) -> int:
    """Writes until one write is known to have been made -> the znode's version."""
    while True:
        try:
            await zk.wait_connected()
            return (await zk.set("/live", b"")).version
        except ConnectionLost:
            await asyncio.sleep(0.05)
