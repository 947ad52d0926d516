"""A person, or a program of theirs, writes what is no metadata into one znode: only what it describes is concerned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.cluster_description import ClusterFindingKind
from broker.client.cluster_verification import verify_cluster
from broker.client.site import Site
from broker.cluster.zookeeper.session import Create, Delete, SetData
from broker.controller.requests import NewTopic
from broker.wire.errors import ErrorCode
from broker.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from broker.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from tests.broker.cluster.fake_zookeeper import FakeZooKeeper
from tests.broker.cluster.test_three_replicas import NODES, create, read_all
from tests.broker.running import TIMEOUT_MS
from tests.broker.running_cluster import RunningCluster, running_cluster, until
from tests.broker.wire_client import batch_of, connect

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
    """Once: a broker that was registered anew refuses records until it has read whether its site takes them."""
    async with cluster.clients() as clients:
        code = ErrorCode.NOT_ENOUGH_REPLICAS
        while code is ErrorCode.NOT_ENOUGH_REPLICAS:
            code = ErrorCode.of((await clients[await cluster.led("t")].produce("t", batch_of(value))).error_code)
        assert not code


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


async def test_a_broker_whose_registration_is_removed_comes_back_by_itself(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, *NODES) as cluster:
        await begun(cluster)
        await produced(cluster, "a")
        for _ in range(2):
            leader = await cluster.led("t")
            epoch = cluster.broker(leader).broker_epoch
            remove(cluster.zookeeper, f"/brokers/ids/{leader}")
            await until(lambda leader=leader, epoch=epoch: cluster.broker(leader).broker_epoch > epoch)
            await all_in_sync(cluster)
        await produced(cluster, "b")
        async with cluster.clients() as clients:
            assert await read_all(clients[await cluster.led("t")]) == ["a", "b"]


@pytest.mark.parametrize("path", ["/brokers/ids", "/controller_epoch", "/config", "/admin", "/isr_change_notification"])
async def test_what_is_removed_whole_is_there_again(tmp_path: Path, path: str) -> None:
    async with running_cluster(tmp_path, *NODES) as cluster:
        await begun(cluster)
        await produced(cluster, "a")
        before = epoch_of(cluster)
        remove(cluster.zookeeper, path)
        await cluster.start(await another_controls(cluster))
        await all_in_sync(cluster)
        await produced(cluster, "b")
        assert epoch_of(cluster) > before
        async with cluster.clients() as clients:
            await create(clients[1], "new")
            assert await read_all(clients[await cluster.led("t")]) == ["a", "b"]


@pytest.mark.parametrize("path", ["/brokers", "/brokers/topics", "/brokers/topics/t"])
async def test_topics_that_a_hand_removed_keep_their_records_and_go_on_when_they_are_put_back(
    tmp_path: Path, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """By hand, or because ZooKeeper was put back to a time before they were made."""
    async with running_cluster(tmp_path, *NODES) as cluster:
        await begun(cluster)
        await produced(cluster, "a")
        zookeeper = cluster.zookeeper
        whole = {each: zookeeper.read(each).data for each in zookeeper.paths() if each.startswith("/brokers/topics/t")}
        remove(zookeeper, path)
        await until(lambda: len(list(tmp_path.glob("*/t-0.*-stray"))) == len(NODES))
        assert "its deletion was not ordered" in caplog.text
        await cluster.start(await another_controls(cluster))
        site = Site("east", ",".join(server.address for server in cluster.servers.values()))
        async with Cluster(site) as seen:
            found = [each for each in (await verify_cluster(seen)).findings if each.kind is ClusterFindingKind.STRAY]
        assert [(each.topic, each.partition, each.broker) for each in found] == [("t", 0, node) for node in NODES]
        for node, stray in zip(NODES, found, strict=True):
            (folder,) = tmp_path.glob(f"{node}/*-stray")
            assert stray.detail.endswith(f"rm -r {folder}")
        for each, data in whole.items():
            write(zookeeper, each, data)
        await all_in_sync(cluster)
        await produced(cluster, "b")
        async with cluster.clients() as clients:
            assert await read_all(clients[await cluster.led("t")]) == ["a", "b"]
        assert not list(tmp_path.glob("*/*-stray"))


async def test_what_was_deleted_goes_from_a_broker_that_was_away_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where another topic has its name by then, and another broker is the controller. Nobody is told that it was
    not deleted.
    """
    async with running_cluster(tmp_path, *NODES) as cluster:
        await begun(cluster)
        await produced(cluster, "a")
        await until(lambda: cluster.controller is not None)
        away = next(node for node in NODES if node != cluster.controller)
        await cluster.kill(away)
        controller = cluster.broker(next(iter(cluster.servers))).controller
        await controller.delete_topic("t", TIMEOUT_MS)
        old = (tmp_path / str(away) / "t-0" / "partition.metadata").read_text()
        made = await controller.create_topic(NewTopic("t", 1, 2), TIMEOUT_MS)
        await produced(cluster, "b")
        remembered = [path for path in cluster.zookeeper.paths() if path.startswith("/farshore/deleted_topics/")]
        assert len(remembered) == 1
        await cluster.start(await another_controls(cluster), away)
        await until(lambda: cluster.zookeeper.find(remembered[0]) is None)
        left = list((tmp_path / str(away)).rglob("partition.metadata"))
        assert old not in [path.read_text() for path in left if path.parent.name.startswith("t-0")]
        assert "its deletion was not ordered" not in caplog.text
        assert await cluster.led("t") in made.partitions[0].replicas
        async with cluster.clients() as clients:
            assert await read_all(clients[await cluster.led("t")]) == ["b"]


def epoch_of(cluster: RunningCluster) -> int:
    return max(cluster.broker(node).replicas.controller_epoch for node in cluster.servers)


async def all_in_sync(cluster: RunningCluster) -> None:
    await until(lambda: (state := cluster.told("t")) is not None and set(state.isr) == set(NODES))


async def test_what_tools_of_old_write_is_done_at_once_and_garbage_there_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka's tools before 2.4 spoke to ZooKeeper alone."""
    moves, elections = "/admin/reassign_partitions", "/admin/preferred_replica_election"
    async with running_cluster(tmp_path, *NODES, auto_leader_rebalance_enable=False) as cluster:
        await begun(cluster)
        zookeeper = cluster.zookeeper
        for path in (moves, elections):
            write(zookeeper, path, b"{")
            await until(lambda path=path: f"znode {path} cannot be read" in caplog.text)
        await produced(cluster, "a")

        unknown = '{"topic":"none","partition":0,"replicas":[1]},{"topic":"bad","partition":0,"replicas":[9]}'
        known = '{"topic":"t","partition":0,"replicas":[3,1]}'
        write(zookeeper, moves, f'{{"version":1,"partitions":[{unknown},{known}]}}'.encode())
        await until(lambda: (state := cluster.told("t")) is not None and state.replicas == (3, 1))
        await until(lambda: zookeeper.find(moves) is None)

        state = cluster.told("t")
        assert state is not None
        await cluster.kill(3)
        assert await cluster.led("t", among=[1]) == 1
        await cluster.start(3)
        await until(lambda: (state := cluster.told("t")) is not None and set(state.isr) == {1, 3})
        write(zookeeper, elections, b'{"version":1,"partitions":[{"topic":"t","partition":0}]}')
        assert await cluster.led("t", among=[3]) == 3
        await until(lambda: zookeeper.find(elections) is None)

        write(zookeeper, "/brokers/topics/old", b'{"version":1,"partitions":{"0":[2,1],"1":[1,3]}}')
        for index in range(2):
            await cluster.led("old", index)
        write(zookeeper, "/brokers/topics/old", grown(zookeeper.read("/brokers/topics/old").data, "2", [3, 2]))
        await cluster.led("old", 2)
        await produced(cluster, "b")
        async with cluster.clients() as clients:
            assert await read_all(clients[await cluster.led("t")]) == ["a", "b"]


async def test_what_tools_of_old_wrote_while_nobody_was_the_controller_is_done_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """But where the controller comes before the broker that it goes to, as on a busy machine: that is tried again."""
    moves = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2]}]}'
    async with running_cluster(tmp_path, *NODES) as cluster:
        await begun(cluster)
        await produced(cluster, "a")

        def is_moved() -> bool:
            return (state := cluster.told("t")) is not None and state.replicas == (2,)

        for _ in range(5):
            await cluster.kill_all()
            caplog.clear()
            write(cluster.zookeeper, "/admin/reassign_partitions", moves)
            await cluster.start(*NODES)
            await until(lambda: is_moved() or "comes to nothing: Replicas [2]" in caplog.text)
            if is_moved():
                break
        assert is_moved()
        async with cluster.clients() as clients:
            assert await read_all(clients[await cluster.led("t")]) == ["a"]


def grown(data: bytes, index: str, replicas: list[int]) -> bytes:
    document = json.loads(data)
    document["partitions"][index] = replicas
    return json.dumps(document).encode()


def remove(zookeeper: FakeZooKeeper, path: str) -> None:
    """With all that is under it."""
    under = [each for each in zookeeper.paths() if each == path or each.startswith(f"{path}/")]
    zookeeper.write(zookeeper.connect(), [Delete(each) for each in reversed(under)])


async def test_a_topics_copy_under_another_name_takes_nothing_from_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_cluster(tmp_path, *NODES) as cluster:
        await begun(cluster)
        await produced(cluster, "a")
        zookeeper = cluster.zookeeper
        write(zookeeper, "/brokers/topics/copy", zookeeper.read("/brokers/topics/t").data)
        await until(lambda: "topic copy is offline until the next start: its topic id is that of" in caplog.text)
        write(zookeeper, "/admin/delete_topics/copy", b"")
        await cluster.start(await another_controls(cluster))
        await until(lambda: zookeeper.find("/brokers/topics/copy") is None)
        await all_in_sync(cluster)
        await produced(cluster, "b")
        async with cluster.clients() as clients:
            assert await read_all(clients[await cluster.led("t")]) == ["a", "b"]


async def told_of_bad(address: str) -> list[ErrorCode]:
    """What the broker there answers about the topic: among all, by its name, where it may be made, and by the request
    that Kafka's newer tools use.
    """
    async with connect(address) as client:
        answers: list[MetadataResponseTopic | DescribeTopicPartitionsResponseTopic] = []
        for named in (None, [MetadataRequestTopic(name="bad")]):
            request = MetadataRequest(named, allow_auto_topic_creation=True)
            answers += (await client.ask(request, 9, MetadataResponse)).topics
        described = DescribeTopicPartitionsRequest([TopicRequest("bad")])
        answers += (await client.ask(described, 0, DescribeTopicPartitionsResponse)).topics
    return [ErrorCode.of(each.error_code) for each in answers if each.name == "bad"]


async def test_who_asks_a_broker_that_was_started_since_for_a_topic_that_cannot_be_read_is_told_to_wait(
    tmp_path: Path,
) -> None:
    """It said that there is none: a switchover drained the topic as one that is gone, and a producer made it anew."""
    path, data = HALF_RIGHT["replicas that are names"]
    async with running_cluster(tmp_path, *NODES) as cluster:
        await begun(cluster)
        whole = cluster.zookeeper.read(path).data
        write(cluster.zookeeper, path, data)
        killed = await another_controls(cluster)
        await cluster.start(killed)
        await until(lambda: cluster.told("t") is not None)
        address = cluster.servers[killed].address
        assert await told_of_bad(address) == [ErrorCode.LEADER_NOT_AVAILABLE] * 3
        async with Cluster(Site("east", address)) as seen:
            found = [each for each in (await verify_cluster(seen)).findings if each.topic == "bad"]
        assert ClusterFindingKind.TOPIC_UNREADABLE in {each.kind for each in found}
        write(cluster.zookeeper, path, whole)
        await until(lambda: cluster.told("bad") is not None)
        assert await told_of_bad(address) == [ErrorCode.NONE] * 3
