"""What ZooKeeper had is gone, or another one answers at its address: nobody takes what he has for leftovers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from broker.cluster.metadata_store import MetadataUnreadable
from broker.cluster.zookeeper import layout
from broker.cluster.zookeeper.store import ZooKeeperMetadataStore
from tests.broker.cluster.fake_zookeeper import FakeSession, FakeZooKeeper
from tests.broker.cluster.test_three_replicas import NODES, create, ends, read_all
from tests.broker.running_cluster import RunningCluster, running_cluster, until
from tests.broker.wire_client import batch_of

STRANGER = 9


async def replaced(cluster: RunningCluster) -> FakeZooKeeper:
    """Another ZooKeeper, with nothing in it, stands where the old one was; -> that."""
    gone, cluster.zookeeper = cluster.zookeeper, FakeZooKeeper(cluster.clock)
    for session in list(cluster.sessions.values()):
        gone.expire(session)
    return gone


async def made_by_another(cluster: RunningCluster) -> None:
    """As a broker does that is started with an empty folder."""

    async def connect() -> FakeSession:
        return cluster.zookeeper.connect()

    store = await ZooKeeperMetadataStore.open(connect, cluster.clock)
    await store.elect_controller(STRANGER)
    await store.close()


async def left_empty(cluster: RunningCluster) -> None:
    """Nobody has been there."""


@pytest.mark.parametrize("found", [made_by_another, left_empty])
async def test_brokers_that_run_wait_for_their_own_and_then_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, found: Callable[[RunningCluster], Awaitable[None]]
) -> None:
    async with running_cluster(tmp_path, *NODES) as cluster:
        async with cluster.clients() as clients:
            await create(clients[1], "t", min_insync_replicas="2")
            assert (await clients[await cluster.led("t")].produce("t", batch_of("a"))).error_code == 0
        own = await replaced(cluster)
        await found(cluster)
        await until(lambda: sum("is not in ZooKeeper any more" in text for text in caplog.messages) == len(NODES))
        assert all((tmp_path / str(node) / "t-0").exists() for node in NODES)
        assert not [path for path in cluster.zookeeper.paths() if path.startswith(f"{layout.BROKER_IDS}/")]
        cluster.zookeeper = own
        await until(lambda: (state := cluster.told("t")) is not None and set(state.isr) == set(NODES))
        async with cluster.clients() as clients:

            async def taken() -> bool:
                return (await clients[await cluster.led("t")].produce("t", batch_of("b"))).error_code == 0

            await until(taken)
            assert await read_all(clients[await cluster.led("t")]) == ["a", "b"]
        await until(lambda: ends(cluster) == {(0, 2, 2)})


async def test_a_broker_with_partitions_makes_no_new_cluster(tmp_path: Path) -> None:
    """Not one of the same id either: its topics would not be in it."""
    async with running_cluster(tmp_path, 1, cluster_id="the-one") as cluster:
        async with cluster.clients() as clients:
            await clients[1].create_topic("t")
        await cluster.stop(1)
        own = await replaced(cluster)
        with pytest.raises(MetadataUnreadable, match="has no cluster"):
            await cluster.start(1)
        assert cluster.zookeeper.find(layout.CLUSTER_ID) is None
        assert (tmp_path / "1" / "t-0").exists()
        cluster.zookeeper = own
        await cluster.kill_all()
        await cluster.start(1)
        await cluster.led("t")
