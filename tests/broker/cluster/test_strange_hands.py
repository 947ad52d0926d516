"""A person, or a program of theirs, writes what is no metadata into one znode: only what it describes is concerned."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.cluster.zookeeper.session import Create, Delete, SetData
from tests.broker.cluster.fake_zookeeper import FakeZooKeeper
from tests.broker.cluster.test_three_replicas import NODES, create, read_all
from tests.broker.running_cluster import RunningCluster, running_cluster, until
from tests.broker.wire_client import batch_of

STATE = "/brokers/topics/bad/partitions/0/state"
STATE_OF_T = "/brokers/topics/t/partitions/0/state"
HALF_RIGHT = {
    "an ISR of names": (
        STATE,
        b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":["a",null]}',
    ),
    "an ISR that is a text": (
        STATE,
        b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":"123"}',
    ),
    "an epoch that no order can carry": (
        STATE,
        b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":99999999999,"isr":[1]}',
    ),
    "replicas that are names": (
        "/brokers/topics/bad",
        b'{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","partitions":{"0":["x","y"]}}',
    ),
    "a config that is a number": ("/config/topics/bad", b'{"version":1,"config":{"retention.ms":5}}'),
    "a config that should be one": ("/config/topics/bad", b'{"version":1,"config":{"retention.ms":"abc"}}'),
    "a broker that cannot be read": ("/brokers/ids/9", b"{"),
    "a broker without a number": ("/brokers/ids/nine", b""),
}


def write(zookeeper: FakeZooKeeper, path: str, data: bytes) -> None:
    there = zookeeper.find(path) is not None
    zookeeper.write(zookeeper.connect(), [SetData(path, data) if there else Create(path, data)])


async def begun(cluster: RunningCluster) -> None:
    async with cluster.clients() as clients:
        await create(clients[1], "t", min_insync_replicas="2")
        await create(clients[1], "bad")
    await cluster.led("bad")


async def produced(cluster: RunningCluster, value: str) -> None:
    async with cluster.clients() as clients:
        assert (await clients[await cluster.led("t")].produce("t", batch_of(value))).error_code == 0


async def another_controls(cluster: RunningCluster) -> int:
    """After the one that did was killed; -> that."""
    await until(lambda: cluster.controller is not None)
    killed = cluster.controller
    assert killed is not None
    await cluster.kill(killed)
    await until(lambda: cluster.controller not in (None, killed))
    return killed


@pytest.mark.parametrize(("path", "data"), HALF_RIGHT.values(), ids=HALF_RIGHT)
async def test_every_other_topic_goes_on_also_under_the_next_controller(tmp_path: Path, path: str, data: bytes) -> None:
    async with running_cluster(tmp_path, *NODES) as cluster:
        await begun(cluster)
        write(cluster.zookeeper, path, data)
        killed = await another_controls(cluster)
        await until(lambda: (state := cluster.told("t")) is not None and len(state.isr) == len(NODES) - 1)
        await produced(cluster, "a")
        await cluster.start(killed)
        await until(lambda: (state := cluster.told("t")) is not None and len(state.isr) == len(NODES))
        await produced(cluster, "b")
        async with cluster.clients() as clients:
            await create(clients[1], "new")
            assert await read_all(clients[await cluster.led("t")]) == ["a", "b"]


@pytest.mark.parametrize("path", ["/controller", "/controller_epoch"])
async def test_without_a_controllers_znode_brokers_serve_on_and_have_one_when_it_is_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    async with running_cluster(tmp_path, *NODES) as cluster:
        await begun(cluster)
        zookeeper = cluster.zookeeper
        whole = zookeeper.read(path).data
        write(zookeeper, path, b"{")
        killed = cluster.controller
        assert killed is not None
        if path == "/controller_epoch":
            await cluster.kill(killed)
        await until(lambda: f"it is not known who is the controller: znode {path} cannot be read" in caplog.text)
        async with cluster.clients() as clients:
            state = cluster.told("t")
            assert state is not None
            for node_id, client in clients.items():
                taken = await client.produce("t", batch_of("a"), acks=1)
                assert (taken.error_code == 0) == (node_id == state.leader)
        write(zookeeper, path, whole)
        if path == "/controller":
            await cluster.kill(killed)
        await until(lambda: cluster.controller not in (None, killed))
        await produced(cluster, "b")


@pytest.mark.parametrize("lost", [(STATE_OF_T,), (STATE_OF_T, "/brokers/topics/t/partitions/0")])
async def test_a_partition_whose_state_is_lost_is_not_made_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lost: tuple[str, ...]
) -> None:
    """Nobody ever led it, the next controller would say, and so it has no records."""
    async with running_cluster(tmp_path, *NODES) as cluster:
        await begun(cluster)
        await produced(cluster, "a")
        zookeeper = cluster.zookeeper
        hand = zookeeper.connect()
        whole = zookeeper.read(STATE_OF_T).data
        zookeeper.write(hand, [Delete(path) for path in lost])
        killed = await another_controls(cluster)
        await cluster.start(killed)
        await until(lambda: "nobody leads t: the states of its partitions [0] are not in the metadata" in caplog.text)
        zookeeper.write(hand, [Create(path, whole if path == STATE_OF_T else b"") for path in reversed(lost)])
        await cluster.start(await another_controls(cluster))
        await until(lambda: (state := cluster.told("t")) is not None and len(state.isr) == len(NODES))
        await produced(cluster, "b")
        async with cluster.clients() as clients:
            assert await read_all(clients[await cluster.led("t")]) == ["a", "b"]
