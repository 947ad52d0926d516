"""Topics that are deleted where a person's hand is in ZooKeeper too: nobody ends of it, and no record goes by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.cluster.test_strange_hands import another_controls, begun, produced, remove, write
from tests.broker.cluster.test_three_replicas import NODES, create
from tests.broker.running import TIMEOUT_MS
from tests.broker.running_cluster import RunningCluster, running_cluster, until


def remembered(cluster: RunningCluster) -> list[str]:
    return [path for path in cluster.zookeeper.paths() if path.startswith("/farshore/deleted_topics/")]


async def deleted_and_put_back(cluster: RunningCluster) -> int:
    """By a hand, while one broker had not heard of the deletion: that one."""
    await begun(cluster)
    await produced(cluster, "a")
    await until(lambda: cluster.controller is not None)
    zookeeper = cluster.zookeeper
    whole = {path: zookeeper.read(path).data for path in zookeeper.paths() if path.startswith("/brokers/topics/t")}
    away = next(node for node in NODES if node != cluster.controller)
    await cluster.kill(away)
    await cluster.broker(next(iter(cluster.servers))).controller.delete_topic("t", TIMEOUT_MS)
    assert len(remembered(cluster)) == 1
    for path, data in whole.items():
        write(zookeeper, path, data)
    await until(lambda: cluster.told("t") is not None)
    return away


async def goes_on(cluster: RunningCluster, topic: str) -> None:
    """There is a controller, and it makes topics."""
    async with cluster.clients() as clients:
        await create(clients[next(iter(clients))], topic)
    await cluster.led(topic)


async def test_what_was_put_back_is_not_removed_because_it_is_absent_later(tmp_path: Path) -> None:
    """The last copy of its records would go: the others removed theirs when they were ordered to."""
    async with running_cluster(tmp_path, *NODES) as cluster:
        away = await deleted_and_put_back(cluster)
        await until(lambda: not remembered(cluster))
        await cluster.start(away)
        await until(lambda: (here := cluster.broker(away).partition("t", 0)) is not None and here.offline is None)
        remove(cluster.zookeeper, "/brokers/topics/t")
        await until(lambda: len(list((tmp_path / str(away)).glob("t-0.*-stray"))) == 1)
        # What the broker is ordered to remove it was ordered by now.
        await goes_on(cluster, "later")
        assert len(list((tmp_path / str(away)).glob("t-0.*-stray"))) == 1


async def test_what_was_put_back_is_deleted_again(tmp_path: Path) -> None:
    """Also before the controller heard that it is there: the store alone knows that it is remembered."""
    async with running_cluster(tmp_path, *NODES) as cluster:
        away = await deleted_and_put_back(cluster)
        await cluster.broker(next(iter(cluster.servers))).controller.delete_topic("t", TIMEOUT_MS)
        await cluster.start(away)
        await until(lambda: not remembered(cluster))
        await cluster.start(await another_controls(cluster))
        await goes_on(cluster, "later")
        assert cluster.zookeeper.find("/brokers/topics/t") is None


async def test_a_topic_that_cannot_be_deleted_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As where an access control list of its znodes allows it to another alone."""
    state = "/brokers/topics/bad/partitions/0/state"
    async with running_cluster(tmp_path, *NODES) as cluster:
        await begun(cluster)
        await until(lambda: cluster.controller is not None)
        cluster.zookeeper.protected.add(state)
        write(cluster.zookeeper, "/admin/delete_topics/bad", b"")
        await until(lambda: "topic bad is offline until the next start: it is to be deleted" in caplog.text)
        await goes_on(cluster, "later")
        await cluster.start(await another_controls(cluster))
        await goes_on(cluster, "latest")
        await produced(cluster, "a")
        cluster.zookeeper.protected.discard(state)
        await another_controls(cluster)
        await until(lambda: cluster.zookeeper.find("/brokers/topics/bad") is None)


@pytest.mark.parametrize("path", ["/farshore", "/farshore/changes"])
async def test_a_topic_is_deleted_where_a_hand_removed_what_farshore_alone_keeps(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    async with running_cluster(tmp_path, *NODES) as cluster:
        await begun(cluster)
        await until(lambda: cluster.controller is not None)
        remove(cluster.zookeeper, path)
        write(cluster.zookeeper, "/admin/delete_topics/bad", b"")
        await until(lambda: cluster.zookeeper.find("/brokers/topics/bad") is None)
        await goes_on(cluster, "later")
        assert "is over" not in caplog.text
