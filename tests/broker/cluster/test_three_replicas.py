"""Records of three real brokers with their sockets and files: copied, acknowledged, and there after a leader died."""

from __future__ import annotations

from pathlib import Path

from broker.replication.leading import Leading
from broker.wire.errors import ErrorCode
from broker.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from broker.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from broker.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from tests.broker.running import TIMEOUT_MS
from tests.broker.running_cluster import RunningCluster, running_cluster, until
from tests.broker.wire_client import WireClient, batch_of, values_in

NODES = (1, 2, 3)


async def create(client: WireClient, name: str, partitions: int = 1, **configs: str) -> None:
    settings = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
    request = CreateTopicsRequest([CreatableTopic(name, partitions, 3, configs=settings)])
    assert (await client.ask(request, 7, CreateTopicsResponse)).topics[0].error_code == 0


def leading(cluster: RunningCluster, node_id: int, topic: str = "t", index: int = 0) -> Leading:
    partition = cluster.broker(node_id).partition(topic, index)
    assert partition is not None
    assert partition.leading is not None
    return partition.leading


def ends(cluster: RunningCluster, topic: str = "t", index: int = 0) -> set[tuple[int, int, int]]:
    """Of the logs that are online: start, high watermark, end."""
    logs = [
        here.log
        for server in cluster.servers.values()
        if (here := server.broker.partition(topic, index)) is not None and here.offline is None
    ]
    return {(log.log_start_offset, log.high_watermark, log.log_end_offset) for log in logs}


async def read_all(client: WireClient, topic: str = "t") -> list[str]:
    return values_in(await client.fetch(topic, 0, version=11))


async def test_what_is_acknowledged_is_there_when_its_leader_died_and_who_comes_back_is_in_sync_again(
    tmp_path: Path,
) -> None:
    async with running_cluster(tmp_path, *NODES) as cluster:
        async with cluster.clients() as clients:
            await create(clients[1], "t", min_insync_replicas="2")
            leader = await cluster.led("t")
            for value in "abc":
                assert (await clients[leader].produce("t", batch_of(value))).error_code == 0
            assert leading(cluster, leader).high_watermark == 3
        await cluster.kill(leader)
        successor = await cluster.led("t")
        async with cluster.clients() as clients:
            assert (await clients[successor].produce("t", batch_of("d"))).error_code == 0
            assert await read_all(clients[successor]) == ["a", "b", "c", "d"]
        await cluster.start(leader)
        await until(lambda: (state := cluster.told("t")) is not None and set(state.isr) == set(NODES))
        await until(lambda: ends(cluster) == {(0, 4, 4)})
        await cluster.kill(successor)
        last = await cluster.led("t")
        async with cluster.clients() as clients:
            assert (await clients[last].produce("t", batch_of("e"))).error_code == 0
            assert await read_all(clients[last]) == ["a", "b", "c", "d", "e"]


async def test_each_broker_tells_the_size_of_what_it_has_whoever_leads(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, *NODES) as cluster, cluster.clients() as clients:
        await create(clients[1], "t")
        assert (await clients[await cluster.led("t")].produce("t", batch_of("x" * 1000))).error_code == 0
        for client in clients.values():
            (result,) = (await client.ask(DescribeLogDirsRequest(None), 4, DescribeLogDirsResponse)).results
            told = {(topic.name, each.partition_index): each for topic in result.topics for each in topic.partitions}
            assert told["t", 0].partition_size > 1000
            assert told["t", 0].offset_lag == 0


async def test_too_few_replicas_acknowledge_nothing(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, *NODES) as cluster:
        async with cluster.clients() as clients:
            await create(clients[1], "t", min_insync_replicas="2")
            leader = await cluster.led("t")
            assert (await clients[leader].produce("t", batch_of("a"))).error_code == 0
        for other in set(NODES) - {leader}:
            await cluster.kill(other)
        await until(lambda: (state := cluster.told("t")) is not None and state.isr == (leader,))
        async with cluster.clients() as clients:
            client = clients[leader]
            assert (await client.produce("t", batch_of("b"))).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
            assert (await client.produce("t", batch_of("c"), acks=1)).error_code == 0
            assert await read_all(client) == ["a", "c"]


async def test_many_partitions_are_copied_and_survive_each_of_their_leaders(tmp_path: Path) -> None:
    """Every broker leads a third of them and follows the others."""
    count = 12
    async with running_cluster(tmp_path, *NODES) as cluster:
        async with cluster.clients() as clients:
            await create(clients[1], "t", count, min_insync_replicas="2")
            for index in range(count):
                leader = await cluster.led("t", index)
                assert (await clients[leader].produce("t", batch_of(str(index)), partition=index)).error_code == 0
        for node in NODES:
            await cluster.kill(node)
            for index in range(count):
                leader = await cluster.led("t", index)
                log = cluster.broker(leader).require_partition("t", index).log
                # One that was not told of it yet learns from its followers how far everybody is.
                await until(lambda log=log: (log.high_watermark, log.log_end_offset) == (1, 1))
            await cluster.start(node)
            await until(
                lambda: all(
                    (state := cluster.told("t", index)) is not None and len(state.isr) == 3 for index in range(count)
                )
            )


async def test_records_are_deleted_at_every_replica_before_that_is_said(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, *NODES) as cluster, cluster.clients() as clients:
        await create(clients[1], "t")
        leader = await cluster.led("t")
        for value in "abc":
            assert (await clients[leader].produce("t", batch_of(value))).error_code == 0
        assert await delete_records(clients[leader], 2) == (2, 0)
        assert {start for start, _, _ in ends(cluster)} == {2}
        for other in set(NODES) - {leader}:
            await cluster.kill(other)
        await until(lambda: (state := cluster.told("t")) is not None and state.isr == (leader,))
        assert await delete_records(clients[leader], 3) == (3, 0), "who is out of sync is not waited for"


async def test_a_replica_in_sync_that_does_not_answer_holds_up_a_deletion_until_its_time_is_up(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, *NODES) as cluster, cluster.clients() as clients:
        await create(clients[1], "t")
        leader = await cluster.led("t")
        assert (await clients[leader].produce("t", batch_of("a"))).error_code == 0
        partition = cluster.broker(leader).require_partition("t", 0)
        slow = next(node for node in NODES if node != leader)
        topic = cluster.broker(slow).topics["t"]
        cluster.broker(slow).followers.forget(topic.topic_id, 0)
        assert await delete_records(clients[leader], 1, timeout_ms=50) == (-1, ErrorCode.REQUEST_TIMED_OUT)
        assert partition.log.log_start_offset == 1
        cluster.broker(slow).followers.follow(leader, topic.topic_id, topic.partitions[0])
        assert await delete_records(clients[leader], 1) == (1, 0)


async def delete_records(client: WireClient, offset: int, timeout_ms: int = TIMEOUT_MS) -> tuple[int, int]:
    """The low watermark, and the error."""
    topic = DeleteRecordsTopic("t", [DeleteRecordsPartition(0, offset)])
    answer = await client.ask(DeleteRecordsRequest([topic], timeout_ms), 2, DeleteRecordsResponse)
    found = answer.topics[0].partitions[0]
    return found.low_watermark, found.error_code


async def test_a_batch_whose_replicas_fell_behind_is_said_to_be_appended_and_not_acknowledged(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, *NODES, replica_lag_time_max_ms=1000) as cluster, cluster.clients() as clients:
        await create(clients[1], "t", min_insync_replicas="2")
        leader = await cluster.led("t")
        assert (await clients[leader].produce("t", batch_of("a"))).error_code == 0
        others = [cluster.broker(node) for node in NODES if node != leader]
        for other in others:
            other.followers.forget(other.topics["t"].topic_id, 0)
        answer = await clients[leader].produce("t", batch_of("b"))
        assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert leading(cluster, leader).isr == {leader}
        assert (await clients[leader].produce("t", batch_of("c"))).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        for other in others:
            other.followers.follow(leader, other.topics["t"].topic_id, other.topics["t"].partitions[0])
        await until(lambda: len(leading(cluster, leader).isr) == 3)
        assert (await clients[leader].produce("t", batch_of("d"))).error_code == 0
        assert await read_all(clients[leader]) == ["a", "b", "d"]
