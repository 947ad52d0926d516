"""The fake is held to the contract of the real one, and its faults do what they say."""

from __future__ import annotations

import pytest

from broker.cluster.zookeeper.errors import ConnectionLost, SessionExpired
from broker.cluster.zookeeper.session import WatchEvent, WatchKind
from tests.broker.clock import ManualClock
from tests.broker.cluster.fake_zookeeper import FakeSession, FakeZooKeeper, Loss
from tests.broker.cluster.zookeeper_contract import Connect, Seen, ZooKeeperContract


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def server(clock: ManualClock) -> FakeZooKeeper:
    return FakeZooKeeper(clock, session_timeout_ms=6000)


class TestFake(ZooKeeperContract):
    @pytest.fixture
    def connect(self, server: FakeZooKeeper) -> Connect:
        async def connect() -> FakeSession:
            return server.connect()

        return connect


@pytest.mark.parametrize("loss", Loss)
async def test_a_lost_answer_tells_nothing_of_the_write(server: FakeZooKeeper, loss: Loss) -> None:
    zk = server.connect()
    server.losses = lambda session, request, path: loss if request == "create" else None
    with pytest.raises(ConnectionLost):
        await zk.create("/a")
    assert (await zk.exists("/a") is not None) is (loss is Loss.AFTER)


async def test_a_lost_connection_ends_every_watch(server: FakeZooKeeper) -> None:
    zk = server.connect()
    seen = Seen()
    await zk.children("/", seen)
    zk.cut()
    assert await seen.next() == WatchEvent(WatchKind.LOST, "")
    with pytest.raises(ConnectionLost):
        await zk.get("/")
    zk.mend()
    await zk.wait_connected()
    await server.connect().create("/a")
    assert seen.events.empty()
    assert await zk.children("/") == ["a"]


async def test_a_session_cut_off_expires_by_time_and_learns_of_it_late(
    server: FakeZooKeeper, clock: ManualClock
) -> None:
    zk, other = server.connect(), server.connect()
    await zk.create("/live", ephemeral=True)
    zk.cut()
    clock.advance(5999)
    server.tick()
    assert await other.exists("/live") is not None
    assert zk.alive_until < clock.boottime()
    clock.advance(1)
    server.tick()
    assert await other.exists("/live") is None
    assert not zk.expired
    zk.mend()
    assert zk.expired
    with pytest.raises(SessionExpired):
        await zk.get("/")
    assert not other.expired
