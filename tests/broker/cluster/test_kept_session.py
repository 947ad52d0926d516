"""What a broker does between two sessions with ZooKeeper, on the fake one."""

from __future__ import annotations

import asyncio

import pytest

from broker.cluster.metadata import Change, ChangeKind
from broker.cluster.zookeeper.errors import NotAllowed
from broker.cluster.zookeeper.store import ZooKeeperMetadataStore
from tests.broker.cluster.contract import WAIT_S, next_change, registration
from tests.broker.cluster.fake_zookeeper import FakeSession, FakeZooKeeper
from tests.broker.cluster.test_zookeeper_store import Clock


async def test_who_is_refused_at_a_new_session_says_so_once_and_waits(caplog: pytest.LogCaptureFixture) -> None:
    """Its password was changed meanwhile: it leads nothing until it has the right one, and does not end."""
    server = FakeZooKeeper(Clock())
    sessions: list[FakeSession] = []
    refusals = 0

    async def connect() -> FakeSession:
        nonlocal refusals
        if len(sessions) == 1 and refusals < 3:
            refusals += 1
            raise NotAllowed("/north: ZooKeeper lets only others do that")
        sessions.append(server.connect())
        return sessions[-1]

    store = await ZooKeeperMetadataStore.open(connect, server.clock)
    epoch = await store.register_broker(registration(1))
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(store.run())
        async with store.watch(ChangeKind.SESSION) as changes:
            server.expire(sessions[0])
            assert await next_change(changes) == Change(ChangeKind.SESSION)
        assert (await store.brokers())[1].epoch > epoch
        running.cancel()
    assert refusals == 3
    [said] = [record.getMessage() for record in caplog.records if "not for this broker" in record.getMessage()]
    assert "/north" in said
    assert "compare username and password in zookeeper_security" in said
