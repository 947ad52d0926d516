"""What a session keeps of those who watch."""

from __future__ import annotations

from broker.cluster.metadata import ChangeKind
from broker.cluster.zookeeper.store import ZooKeeperMetadataStore
from tests.broker.clock import ManualClock
from tests.broker.cluster.contract import elected, topic
from tests.broker.cluster.fake_zookeeper import FakeSession, FakeZooKeeper


async def test_who_has_watched_leaves_nothing_with_the_session() -> None:
    """Each reign of a controller watches every topic, and a session sees many."""
    clock, sessions = ManualClock(), list[FakeSession]()
    server = FakeZooKeeper(clock)

    async def connect() -> FakeSession:
        sessions.append(server.connect())
        return sessions[-1]

    store = await ZooKeeperMetadataStore.open(connect, clock)
    await store.create_topic(await elected(store), topic("t"))
    before = len(sessions[0].watches)
    for _ in range(10):
        async with store.watch(*ChangeKind):
            assert len(sessions[0].watches) > before + len(ChangeKind) / 2
        assert len(sessions[0].watches) == before
    assert len(sessions) == 1
    await store.close()
