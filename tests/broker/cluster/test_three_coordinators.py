"""Groups and transactions of three real brokers: their coordinators and their partitions are led by different ones, any
of which may die.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets, committed_offsets
from broker.client.model import CommittedOffset
from broker.client.producers import ProducerIdAndEpoch, add_partitions_to_txn, end_txn, init_producer_id
from broker.client.site import Site
from broker.coordination.internal_log import TRANSACTIONS_TOPIC
from broker.wire.coordinator_keys import OFFSETS_TOPIC, partition_for
from broker.wire.errors import ErrorCode
from broker.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from broker.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from broker.wire.vocabulary import IsolationLevel, TopicPartition
from tests.broker.cluster.test_three_replicas import create
from tests.broker.running_cluster import RunningCluster, running_cluster, until
from tests.broker.wire_client import WireClient, batch_of, values_in

NODES = (1, 2, 3)
COUNT = 6
SETTINGS: dict[str, Any] = {
    "offsets_topic_num_partitions": 3,
    "offsets_topic_replication_factor": 3,
    "transaction_state_log_num_partitions": 3,
    "transaction_state_log_replication_factor": 3,
}
WHERES = [TopicPartition("t", index) for index in range(COUNT)]


@asynccontextmanager
async def client_of(cluster: RunningCluster) -> AsyncIterator[Cluster]:
    addresses = ",".join(server.address for server in cluster.servers.values())
    async with Cluster(Site("east", addresses)) as client:
        yield client


async def in_sync(cluster: RunningCluster, topic: str, count: int) -> None:
    await until(
        lambda: all((state := cluster.told(topic, index)) is not None and len(state.isr) == 3 for index in range(count))
    )


async def produced(
    cluster: RunningCluster,
    clients: dict[int, WireClient],
    name: str,
    producer: ProducerIdAndEpoch,
    where: TopicPartition,
    value: str,
    sequence: int,
) -> ErrorCode:
    """A record, in a transaction."""
    batch = batch_of(
        value,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=sequence,
        transactional=True,
    )
    leader = clients[await cluster.led(*where)]
    return ErrorCode.of((await leader.produce("t", batch, partition=where.partition, transactional_id=name)).error_code)


async def produce(cluster: RunningCluster, name: str, producer: ProducerIdAndEpoch, value: str, sequence: int) -> None:
    """A record to each partition, in a transaction."""
    async with cluster.clients() as clients:
        for where in WHERES:
            assert await produced(cluster, clients, name, producer, where, value, sequence) is ErrorCode.NONE


async def committed(cluster: RunningCluster) -> list[list[str]]:
    """What consumers that read committed records get of each partition."""
    async with cluster.clients() as clients:
        found = []
        for where in WHERES:
            leader = await cluster.led(*where)
            data = await clients[leader].fetch(
                "t", 0, version=11, partition=where.partition, isolation_level=IsolationLevel.READ_COMMITTED
            )
            aborted = {transaction.producer_id for transaction in data.aborted_transactions or []}
            found.append([] if aborted else [value for value in values_in(data) if value])
        return found


async def test_a_transaction_over_all_brokers_ends_at_all_of_them(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, *NODES, **SETTINGS) as cluster, client_of(cluster) as client:
        async with cluster.clients() as clients:
            await create(clients[1], "t", COUNT)
        producer = await init_producer_id(client, "x")
        leaders = {await cluster.led(*where) for where in WHERES}
        assert leaders == set(NODES)
        assert await add_partitions_to_txn(client, "x", producer, WHERES) == {}
        await produce(cluster, "x", producer, "a", 0)
        assert await committed(cluster) == [[]] * COUNT
        await end_txn(client, "x", producer, commit=True)

        async def all_there() -> bool:
            return await committed(cluster) == [["a"]] * COUNT

        await until(all_there)


async def test_records_of_a_partition_that_was_not_added_are_refused_wherever_it_is_led(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path, *NODES, **SETTINGS) as cluster,
        client_of(cluster) as client,
        cluster.clients() as clients,
    ):
        await create(clients[1], "t", COUNT)
        producer = await init_producer_id(client, "x")
        await add_partitions_to_txn(client, "x", producer, WHERES[:1])
        for where in WHERES:
            assert await produced(cluster, clients, "x", producer, where, "a", 0) == (
                ErrorCode.NONE if where == WHERES[0] else ErrorCode.INVALID_TXN_STATE
            )


async def test_a_transaction_survives_its_coordinator_and_a_group_its_own(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, *NODES, **SETTINGS) as cluster:
        async with client_of(cluster) as client:
            async with cluster.clients() as clients:
                await create(clients[1], "t", COUNT)
            producer = await init_producer_id(client, "x")
            await add_partitions_to_txn(client, "x", producer, WHERES)
            await produce(cluster, "x", producer, "a", 0)
            await commit_offsets(client, "group", {WHERES[0]: CommittedOffset(7)})
            await in_sync(cluster, "t", COUNT)
            for topic in (TRANSACTIONS_TOPIC, OFFSETS_TOPIC):
                await in_sync(cluster, topic, 3)
        coordinators = [
            await cluster.led(TRANSACTIONS_TOPIC, partition_for("x", 3)),
            await cluster.led(OFFSETS_TOPIC, partition_for("group", 3)),
        ]
        await cluster.kill(coordinators[0])
        async with client_of(cluster) as client:
            await end_txn(client, "x", producer, commit=True)
            assert (await init_producer_id(client, "x")).producer_epoch > producer.producer_epoch, "markers are written"
            assert await committed(cluster) == [["a"]] * COUNT
        await cluster.start(coordinators[0])
        await in_sync(cluster, OFFSETS_TOPIC, 3)
        await cluster.kill(coordinators[1])
        async with client_of(cluster) as client:
            assert (await committed_offsets(client, "group"))[WHERES[0]].offset == 7


async def test_what_coordinators_keep_is_kept_nowhere_before_there_are_brokers_for_all_its_replicas(
    tmp_path: Path,
) -> None:
    """KIP-115: a client that comes while the cluster starts would otherwise have it made with one replica, for good."""
    async with running_cluster(tmp_path, *NODES[:2], **SETTINGS) as cluster:
        async with cluster.clients() as clients:

            async def found() -> ErrorCode:
                answer = await clients[1].ask(FindCoordinatorRequest("group"), 3, FindCoordinatorResponse)
                return ErrorCode.of(answer.error_code)

            assert await found() is ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert cluster.told(OFFSETS_TOPIC) is None
            await cluster.start(NODES[2])

            async def is_found() -> bool:
                return await found() is ErrorCode.NONE

            await until(is_found)
        await in_sync(cluster, OFFSETS_TOPIC, 3)


async def test_a_transaction_is_not_said_to_have_ended_while_one_broker_alone_knows_it(tmp_path: Path) -> None:
    """With that one's disk the outcome would be lost (Kafka's transaction.state.log.min.isr)."""
    async with running_cluster(tmp_path, *NODES, **SETTINGS) as cluster:
        async with client_of(cluster) as client:
            async with cluster.clients() as clients:
                await create(clients[1], "t", COUNT)
            producer = await init_producer_id(client, "x")
            index = partition_for("x", 3)
            coordinator = await cluster.led(TRANSACTIONS_TOPIC, index)
            await add_partitions_to_txn(client, "x", producer, WHERES)
        others = set(NODES) - {coordinator}
        for node in others:
            await cluster.kill(node)
        await until(
            lambda: (state := cluster.told(TRANSACTIONS_TOPIC, index)) is not None and state.isr == (coordinator,)
        )
        request = EndTxnRequest("x", producer.producer_id, producer.producer_epoch, committed=True)
        async with cluster.clients() as clients:
            alone = await clients[coordinator].ask(request, 3, EndTxnResponse)
        # Its leadership may be a new one, which begins with what is known to two.
        assert alone.error_code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        await cluster.start(*others)
        async with client_of(cluster) as client:
            await end_txn(client, "x", producer, commit=True)
