"""What ZooKeeper had is gone, or another one answers at its address: nobody takes what he has for leftovers."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from copy import deepcopy
from pathlib import Path

import pytest

from broker.cluster.metadata_store import MetadataUnreadable
from broker.cluster.zookeeper import kept_session, layout
from broker.cluster.zookeeper.seen import CHANGES, FILE_NAME
from broker.cluster.zookeeper.session import SetData
from broker.cluster.zookeeper.store import ZooKeeperMetadataStore
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition
from tests.broker.clock import ManualClock
from tests.broker.cluster.fake_zookeeper import FakeSession, FakeZooKeeper, _Node
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

    made = await ZooKeeperMetadataStore.open(connect, cluster.clock)
    await made.elect_controller(STRANGER)
    await made.close()


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


async def test_an_older_copy_of_zookeeper_is_not_followed_and_a_newer_one_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ISR of its day had a broker that lacks what was acknowledged since; all brokers may have been stopped."""
    monkeypatch.setattr(kept_session, "SEEN_SAVED_S", 0.01)
    async with running_cluster(tmp_path, *NODES) as cluster:
        async with cluster.clients() as clients:
            await create(clients[1], "t", min_insync_replicas="2")
            first = await cluster.led("t")
            assert (await clients[first].produce("t", batch_of("a"))).error_code == 0
        older = deepcopy(cluster.zookeeper.copy())
        await cluster.kill(first)
        second = await cluster.led("t")
        async with cluster.clients() as clients:
            assert (await clients[second].produce("t", batch_of("b"))).error_code == 0
        await noted(cluster, tmp_path)
        newest = await replaced(cluster)
        put_back(cluster.zookeeper, older)
        left = len(cluster.servers)
        await until(lambda: sum("put back to an older copy" in text for text in caplog.messages) == left)
        assert not [path for path in cluster.zookeeper.paths() if path.startswith(f"{layout.BROKER_IDS}/")]
        await cluster.stop(second)
        with pytest.raises(MetadataUnreadable, match="put back to an older copy") as refused:
            await cluster.start(second)
        assert "put back what ZooKeeper had last" in str(refused.value.hint)
        cluster.zookeeper = newest
        await cluster.start(first, second)
        await until(lambda: (state := cluster.told("t")) is not None and set(state.isr) == set(NODES))
        async with cluster.clients() as clients:
            assert await read_all(clients[await cluster.led("t")]) == ["a", "b"]


async def test_nobody_leads_by_an_older_copy_that_has_the_sessions_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_session, "SEEN_SAVED_S", 0.01)
    async with running_cluster(tmp_path, *NODES) as cluster, cluster.clients() as clients:
        await create(clients[1], "t", min_insync_replicas="2")
        leader = await cluster.led("t")
        older = deepcopy(cluster.zookeeper.copy())
        await create(clients[1], "later")
        await noted(cluster, tmp_path)
        newest = cluster.zookeeper.copy()
        cluster.zookeeper._nodes = older

        async def refused() -> bool:
            answer = await clients[leader].produce("t", batch_of("a"))
            return answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

        await until(refused)
        assert any("put back to an older copy" in text for text in caplog.messages)
        cluster.zookeeper._nodes = newest

        async def taken() -> bool:
            return (await clients[leader].produce("t", batch_of("a"))).error_code == 0

        await until(taken)


async def test_an_older_copy_of_which_nobody_knows_is_led_above_all_logs_when_all_replicas_are_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What the brokers had seen is gone with a disk, or was removed. Who comes first lacks what was acknowledged since,
    and by the older copy would lead.
    """
    async with running_cluster(tmp_path, *NODES) as cluster:
        async with cluster.clients() as clients:
            await create(clients[1], "t", min_insync_replicas="2")
            behind = await cluster.led("t")
            assert (await clients[behind].produce("t", batch_of("a"))).error_code == 0
        await until(lambda: ends(cluster) == {(0, 1, 1)})
        state = layout.partition_state(TopicPartition("t", 0))
        whole = cluster.zookeeper.read(state).data
        await cluster.kill_all()
        # Who dies last may be alone in sync by now.
        cluster.zookeeper.write(cluster.zookeeper.connect(), [SetData(state, whole)])
        older = deepcopy(cluster.zookeeper.copy())
        later = json.loads(cluster.zookeeper.read(state).data) | {"leader_epoch": 50}
        cluster.zookeeper.write(cluster.zookeeper.connect(), [SetData(state, json.dumps(later).encode())])
        others = [node for node in NODES if node != behind]
        await cluster.start(*others)
        await until(lambda: (state := cluster.told("t")) is not None and set(state.isr) == set(others))
        async with cluster.clients() as clients:
            assert (await clients[await cluster.led("t")].produce("t", batch_of("b"))).error_code == 0
        await cluster.kill_all()
        put_back(cluster.zookeeper, older)
        for file in tmp_path.glob(f"*/{FILE_NAME}"):
            file.unlink()
        await cluster.start(behind)
        assert await cluster.led("t") == behind
        async with cluster.clients() as clients:
            assert (await clients[behind].produce("t", batch_of("c"))).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        await cluster.start(others[0])
        waits = f"t-0 is led by nobody: its logs are of a later day than the metadata, and replicas [{others[1]}] have"
        await until(lambda: any(waits in text for text in caplog.messages))
        async with cluster.clients() as clients:
            for client in clients.values():
                assert (await client.produce("t", batch_of("c"))).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await cluster.start(others[1])
        async with cluster.clients() as clients:
            leader = await cluster.led("t", among=others)
            assert await read_all(clients[leader]) == ["a", "b"]

            async def taken() -> bool:
                return (await clients[await cluster.led("t")].produce("t", batch_of("d"))).error_code == 0

            await until(taken)
            assert await read_all(clients[await cluster.led("t")]) == ["a", "b", "d"]
        await until(lambda: ends(cluster) == {(0, 3, 3)})
        assert cluster.broker(leader).replicas.topics["t"].partitions[0].leader_epoch > 50


async def test_one_state_that_a_hand_put_back_loses_nothing_where_those_that_ran_last_are_started_first(
    tmp_path: Path,
) -> None:
    """Its epochs are few below those of the logs: who was behind would have given out as many, had it been first."""
    async with running_cluster(tmp_path, *NODES) as cluster:
        async with cluster.clients() as clients:
            await create(clients[1], "t", min_insync_replicas="2")
            behind = await cluster.led("t")
            assert (await clients[behind].produce("t", batch_of("a"))).error_code == 0
        await until(lambda: ends(cluster) == {(0, 1, 1)})
        path = layout.partition_state(TopicPartition("t", 0))
        older = cluster.zookeeper.read(path).data
        await cluster.kill(behind)
        others = [node for node in NODES if node != behind]
        await until(lambda: (state := cluster.told("t")) is not None and set(state.isr) == set(others))
        async with cluster.clients() as clients:
            assert (await clients[await cluster.led("t")].produce("t", batch_of("b"))).error_code == 0
        await cluster.kill_all()
        cluster.zookeeper.write(cluster.zookeeper.connect(), [SetData(path, older)])
        await cluster.start(*others)
        await cluster.start(behind)
        async with cluster.clients() as clients:
            assert await read_all(clients[await cluster.led("t", among=others)]) == ["a", "b"]
        await until(lambda: ends(cluster) == {(0, 2, 2)})


async def test_a_broker_that_is_alone_leads_above_its_own_log(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, 1) as cluster:
        async with cluster.clients() as clients:
            await clients[1].create_topic("t")
            assert (await clients[1].produce("t", batch_of("a"))).error_code == 0
        await cluster.kill_all()
        state = layout.partition_state(TopicPartition("t", 0))
        for epoch, value in ((50, "b"), (7, "c")):
            other = json.loads(cluster.zookeeper.read(state).data) | {"leader_epoch": epoch}
            cluster.zookeeper.write(cluster.zookeeper.connect(), [SetData(state, json.dumps(other).encode())])
            await cluster.start(1)
            async with cluster.clients() as clients:
                assert (await clients[await cluster.led("t")].produce("t", batch_of(value))).error_code == 0
                assert await read_all(clients[1]) == ["a", "b", "c"][: 2 if value == "b" else 3]
            partition = cluster.broker(1).replicas.topics["t"].partitions[0]
            assert partition.log.leader_epoch == partition.leader_epoch > 50 - (value == "b")
            await cluster.kill_all()


def put_back(zookeeper: FakeZooKeeper, nodes: dict[str, _Node]) -> None:
    """To a copy; the sessions of its day are over."""
    over = {path for path, node in nodes.items() if node.stat.ephemeral_owner}
    zookeeper._nodes = {path: node for path, node in nodes.items() if path not in over}
    for path in over:
        parent, _, name = path.rpartition("/")
        zookeeper._nodes[parent or "/"].children.discard(name)


async def test_no_producer_id_comes_twice_after_an_older_copy() -> None:
    """A producer of before would take another's sequence for its own. No count tells that ids were given out."""
    clock = ManualClock()
    server = FakeZooKeeper(clock)

    async def allocated() -> set[int]:
        async def connect() -> FakeSession:
            return server.connect()

        made = await ZooKeeperMetadataStore.open(connect, clock)
        ids = [id for _ in range(3) for id in await made.allocate_producer_ids(1, 1000)]
        await made.close()
        clock.advance(60_000)
        assert len(set(ids)) == len(ids) == 3000
        return set(ids)

    before = await allocated()
    older = deepcopy(server.copy())
    since = await allocated()
    put_back(server, older)
    assert not (before | since) & await allocated()


async def noted(cluster: RunningCluster, folder: Path) -> None:
    """That every broker that runs has seen how far the metadata are."""
    changes = str(cluster.zookeeper.read(CHANGES).stat.version)
    files = [folder / str(node) / FILE_NAME for node in cluster.servers]
    await until(lambda: all(file.exists() and file.read_text().split()[-1] == changes for file in files))


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
