"""Three real brokers with their sockets and files, over the fake ZooKeeper."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.cluster.zookeeper import layout
from broker.controller.requests import NewTopic
from broker.topics.errors import InvalidReplicationFactor, TopicExists, UnknownTopic
from broker.wire.errors import ErrorCode
from broker.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from broker.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from broker.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from broker.wire.messages.metadata import MetadataRequest, MetadataResponse
from broker.wire.vocabulary import TopicPartition
from tests.broker.cluster.fake_zookeeper import FakeSession, Loss
from tests.broker.running import TIMEOUT_MS
from tests.broker.running_cluster import RunningCluster, running_cluster, until
from tests.broker.wire_client import WireClient, batch_of

NODES = (1, 2, 3)


async def create(client: WireClient, name: str, partitions: int = 1, replicas: int = 3) -> int:
    request = CreateTopicsRequest([CreatableTopic(name, partitions, replicas)])
    return (await client.ask(request, 7, CreateTopicsResponse)).topics[0].error_code


def others(cluster: RunningCluster) -> list[int]:
    """The brokers that run and are not the controller."""
    return [node for node in cluster.servers if node != cluster.controller]


async def test_every_broker_tells_the_same(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, *NODES) as cluster, cluster.clients() as clients:
        await until(lambda: cluster.controller is not None)
        assert await create(clients[others(cluster)[0]], "t", 6) == 0
        await until(lambda: all(len(server.broker.view.brokers) == 3 for server in cluster.servers.values()))
        answers = [await client.ask(MetadataRequest(None), 12, MetadataResponse) for client in clients.values()]
        assert answers[0] == answers[1] == answers[2]
        (topic,) = answers[0].topics
        assert sorted(p.leader_id for p in topic.partitions) == [1, 1, 2, 2, 3, 3]
        assert all(sorted(p.isr_nodes) == [1, 2, 3] for p in topic.partitions)
        assert answers[0].controller_id == cluster.controller
        ports = {node: server.broker.advertised[1] for node, server in cluster.servers.items()}
        assert {broker.node_id: broker.port for broker in answers[0].brokers} == ports
        for node in NODES:
            assert {path.name for path in (tmp_path / str(node)).glob("t-*")} == {f"t-{index}" for index in range(6)}


async def test_whoever_is_asked_the_controller_decides(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, *NODES) as cluster, cluster.clients() as clients:
        await until(lambda: cluster.controller is not None)
        client = clients[others(cluster)[0]]
        assert await create(client, "t", 2) == 0
        assert await create(client, "t", 2) == ErrorCode.TOPIC_ALREADY_EXISTS
        assert await create(client, "wide", 1, 4) == ErrorCode.INVALID_REPLICATION_FACTOR
        grow = CreatePartitionsRequest([CreatePartitionsTopic("t", 5, None)], TIMEOUT_MS)
        assert (await client.ask(grow, 3, CreatePartitionsResponse)).results[0].error_code == 0
        assert all(len(server.broker.view.topics["t"].partitions) == 5 for server in cluster.servers.values())
        answer = (await client.ask(grow, 3, CreatePartitionsResponse)).results[0]
        assert answer.error_code == ErrorCode.INVALID_PARTITIONS
        assert answer.error_message is not None
        assert "currently has 5" in answer.error_message
        alone = CreatePartitionsTopic("t", 6, [CreatePartitionsAssignment([1])])
        grow = CreatePartitionsRequest([alone], TIMEOUT_MS)
        answer = (await client.ask(grow, 3, CreatePartitionsResponse)).results[0]
        assert answer.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions of a topic have as many replicas"
        assert answer.error_message is not None
        assert "partition 0 of t has 3 replicas, the new ones would have 1" in answer.error_message
        delete = DeleteTopicsRequest([DeleteTopicState("t")], timeout_ms=TIMEOUT_MS)
        assert (await client.ask(delete, 6, DeleteTopicsResponse)).responses[0].error_code == 0
        assert not any(server.broker.view.topics or server.broker.topics for server in cluster.servers.values())


async def test_what_another_broker_decided_is_raised_and_returned_as_if_it_were_here(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, *NODES) as cluster:
        await until(lambda: cluster.controller is not None)
        broker = cluster.broker(others(cluster)[0])
        new = NewTopic("t", 3, 2, {"retention.ms": "1000"})
        checked = await broker.controller.create_topic(new, TIMEOUT_MS, validate_only=True)
        assert (len(checked.partitions), len(checked.partitions[0].replicas)) == (3, 2)
        assert checked.configs == {"retention.ms": "1000"}
        assert "t" not in broker.view.topics
        made = await broker.controller.create_topic(new, TIMEOUT_MS)
        assert made == broker.view.topics["t"]
        assert {
            p.log.config.retention_ms
            for server in cluster.servers.values()
            for p in server.broker.replicas.partitions()
        } == {1000}
        with pytest.raises(TopicExists, match="'t' already exists"):
            await broker.controller.create_topic(new, TIMEOUT_MS)
        with pytest.raises(UnknownTopic):
            await broker.controller.delete_topic("none", TIMEOUT_MS)
        assigned = NewTopic("assigned", assignment={0: [3, 1], 1: [2, 3]})
        made = await broker.controller.create_topic(assigned, TIMEOUT_MS)
        assert [state.replicas for state in made.partitions] == [(3, 1), (2, 3)]
        with pytest.raises(InvalidReplicationFactor):
            await cluster.broker(cluster.controller or 0).controller.create_topic(NewTopic("x", 1, 4), TIMEOUT_MS)


async def test_when_a_leader_dies_another_leads_and_it_follows_when_it_is_back(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, *NODES) as cluster:
        async with cluster.clients() as clients:
            assert await create(clients[1], "t") == 0
        leader = await cluster.led("t")
        before = cluster.told("t")
        await cluster.kill(leader)
        successor = await cluster.led("t")
        after = cluster.told("t")
        assert before is not None
        assert after is not None
        assert successor != leader
        assert (after.leader_epoch, set(after.isr)) == (before.leader_epoch + 1, set(NODES) - {leader})
        async with cluster.clients() as clients:
            assert (await clients[successor].produce("t", batch_of("a"), acks=1)).error_code == 0
        await cluster.start(leader)
        here = cluster.broker(leader).partition("t", 0)
        assert here is not None
        assert (here.leading, here.leader_epoch, here.state.leader) == (None, after.leader_epoch, successor)
        assert await cluster.led("t") == successor


async def test_when_the_controller_dies_another_one_takes_over(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, *NODES) as cluster:
        await until(lambda: cluster.controller is not None)
        first = cluster.controller
        assert first is not None
        await cluster.kill(first)
        async with cluster.clients() as clients:
            for node, client in clients.items():
                # As soon as it is asked: what was not begun yet waits for the next controller.
                assert await create(client, f"t{node}", 1, 2) == 0
        assert cluster.controller in set(NODES) - {first}
        await cluster.start(first)
        await until(lambda: cluster.controller not in (None, first))
        assert cluster.broker(first).view.topics.keys() == {f"t{node}" for node in cluster.servers if node != first}


@pytest.mark.parametrize("controls", [False, True], ids=["another", "the controller"])
async def test_a_broker_that_stops_in_order_has_others_lead_first(tmp_path: Path, controls: bool) -> None:
    async with running_cluster(tmp_path, *NODES) as cluster:
        async with cluster.clients() as clients:
            assert await create(clients[1], "t", 3) == 0
        await until(lambda: cluster.controller is not None)
        leaving = cluster.controller if controls else others(cluster)[0]
        assert leaving is not None
        present: list[bool] = []

        def noted(session: FakeSession, request: str, path: str) -> Loss | None:
            if request == "multi":
                present.append(cluster.zookeeper.find(layout.broker(leaving)) is not None)
            return None

        cluster.zookeeper.losses = noted
        await cluster.stop(leaving)
        assert present[0], "leaders were elected before it was gone"
        for index in range(3):
            path = layout.partition_state(TopicPartition("t", index))
            assert layout.decode(cluster.zookeeper.read(path).data, path)["leader"] in cluster.servers


async def test_a_deletion_that_a_broker_missed_reaches_it_when_it_is_back(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, *NODES) as cluster:
        async with cluster.clients() as clients:
            for name in ("gone", "anew", "kept"):
                assert await create(clients[1], name) == 0
        await cluster.kill(3)
        await cluster.broker(1).controller.delete_topic("gone", TIMEOUT_MS)
        await cluster.broker(2).controller.delete_topic("anew", TIMEOUT_MS)
        made = await cluster.broker(1).controller.create_topic(NewTopic("anew", 1, 2), TIMEOUT_MS)
        await cluster.start(3)
        assert cluster.broker(3).view.topics.keys() == {"anew", "kept"}
        assert cluster.broker(3).view.topics["anew"].topic_id == made.topic_id
        assert cluster.broker(3).topics.keys() == {"kept"}
