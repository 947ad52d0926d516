"""aiokafka, unmodified: admin, produce with every codec, consume, groups, timestamps, transactions."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError as AioKafkaError
from aiokafka.errors import TopicAlreadyExistsError

from tests.interop.brokers import KEEPS_ALL, replicas_at
from tests.mirror.harness import eventually

START_MS = 1_700_000_000_000
READ_TIMEOUT_S = 180


@asynccontextmanager
async def admin_of(cluster: str) -> AsyncIterator[Any]:
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


@asynccontextmanager
async def started(client: Any) -> AsyncIterator[Any]:
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


async def is_refused(client: Any) -> None:
    """It waits for no connection over TLS that it gives up, and Python would tell of a socket that was left open."""
    before = open_sockets()
    try:
        with pytest.raises(AioKafkaError):
            await client.start()
    finally:
        await client.stop()

    async def closed() -> bool:
        return open_sockets() <= before

    await eventually(closed, "the end of the refused connection")


def open_sockets() -> int:
    names = (os.path.realpath(file) for file in Path("/proc/self/fd").iterdir())
    return sum("/socket:" in name for name in names)


async def read(consumer: Any, count: int) -> list[Any]:
    async with asyncio.timeout(READ_TIMEOUT_S):
        return [await consumer.getone() for _ in range(count)]


async def create(cluster: str, topic: str, partitions: int = 1, configs: dict[str, str] | None = None) -> None:
    async with admin_of(cluster) as admin:
        await admin.create_topics([NewTopic(topic, partitions, replicas_at(cluster), topic_configs=configs or {})])


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_what_is_produced_is_read(cluster: str, topic: str, codec: str | None) -> None:
    await create(cluster, topic, configs=KEEPS_ALL)
    rows = [
        (None if i % 7 == 0 else f"k{i}".encode(), f"value {i}".encode() * (i % 9), START_MS + i) for i in range(500)
    ]
    async with started(
        AIOKafkaProducer(bootstrap_servers=cluster, compression_type=codec, enable_idempotence=True)
    ) as producer:
        futures = [
            await producer.send(topic, value, key=key, partition=0, timestamp_ms=at, headers=[("n", str(at).encode())])
            for key, value, at in rows
        ]
        offsets = [(await future).offset for future in futures]
    assert offsets == list(range(500))
    async with started(AIOKafkaConsumer(topic, bootstrap_servers=cluster, auto_offset_reset="earliest")) as consumer:
        got = await read(consumer, len(rows))
    assert [(r.key, r.value, r.timestamp) for r in got] == rows
    assert [r.headers for r in got] == [(("n", str(at).encode()),) for _, _, at in rows]
    assert [r.offset for r in got] == list(range(500))


async def test_admin(cluster: str, topic: str) -> None:
    await create(cluster, topic, 2, {"retention.ms": "12345"})
    async with admin_of(cluster) as admin:
        answer = await admin.create_topics([NewTopic(topic, 1, 1)], validate_only=False)
        assert answer.topic_errors[0][1] == TopicAlreadyExistsError.errno
        await admin.create_partitions({topic: NewPartitions(3)})

        async def grown() -> bool:
            (described,) = await admin.describe_topics([topic])
            return len(described["partitions"]) == 3

        async def deleted() -> bool:
            return topic not in await admin.list_topics()

        await eventually(grown, "the third partition")
        assert topic in await admin.list_topics()
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        (answer,) = await admin.describe_configs([resource])
        values = {entry[0]: entry[1] for entry in answer.resources[0][4]}
        assert values["retention.ms"] == "12345"
        assert values["cleanup.policy"] == "delete"
        await admin.delete_topics([topic])
        await eventually(deleted, "the topic to be gone")  # Kafka's brokers hear of it after who asked


async def test_two_members_share_a_group_and_the_rest_goes_to_who_stays(cluster: str, topic: str) -> None:
    await create(cluster, topic, 4)
    async with started(AIOKafkaProducer(bootstrap_servers=cluster)) as producer:
        for i in range(40):
            await producer.send_and_wait(topic, str(i).encode(), partition=i % 4)

    def member() -> Any:
        return AIOKafkaConsumer(
            topic,
            bootstrap_servers=cluster,
            group_id=f"g-{topic}",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=300,
            session_timeout_ms=30_000,
        )

    async with started(member()) as first:
        seen = {r.value for r in await read(first, 40)}
        await first.commit()
        async with started(member()) as second:
            async with asyncio.timeout(READ_TIMEOUT_S):
                while len(first.assignment()) != 2 or len(second.assignment()) != 2:
                    # A rebalance shows only in polling: both ask for records that are not there.
                    await asyncio.gather(first.getmany(timeout_ms=100), second.getmany(timeout_ms=100))
            assert first.assignment().isdisjoint(second.assignment())
        async with asyncio.timeout(READ_TIMEOUT_S):
            while len(first.assignment()) != 4:
                await first.getmany(timeout_ms=100)
        committed = [await first.committed(TopicPartition(topic, p)) for p in range(4)]
    assert seen == {str(i).encode() for i in range(40)}
    assert committed == [10] * 4
    # A member that comes after all have left goes on where they ended.
    async with started(AIOKafkaProducer(bootstrap_servers=cluster)) as producer:
        await producer.send_and_wait(topic, b"later", partition=2)
    async with started(member()) as third:
        (record,) = await read(third, 1)
    assert (record.value, record.partition, record.offset) == (b"later", 2, 10)


async def test_offsets_by_time(cluster: str, topic: str) -> None:
    await create(cluster, topic, configs=KEEPS_ALL)
    async with started(AIOKafkaProducer(bootstrap_servers=cluster, linger_ms=50, acks="all")) as producer:
        futures: Iterable[Any] = [
            await producer.send(topic, b"x", partition=0, timestamp_ms=START_MS + 10 * i) for i in range(100)
        ]
        for future in futures:
            await future
    partition = TopicPartition(topic, 0)
    async with started(AIOKafkaConsumer(bootstrap_servers=cluster)) as consumer:
        found = await consumer.offsets_for_times({partition: START_MS + 315})
        beyond = await consumer.offsets_for_times({partition: START_MS + 10_000})
        ends = await consumer.end_offsets([partition])
    assert (found[partition].offset, found[partition].timestamp) == (32, START_MS + 320)
    assert beyond[partition] is None
    assert ends[partition] == 100


async def test_a_reader_of_committed_records_sees_no_aborted_ones(cluster: str, topic: str) -> None:
    await create(cluster, topic)
    async with started(AIOKafkaProducer(bootstrap_servers=cluster, transactional_id=f"t-{topic}")) as producer:
        for number, keep in enumerate((True, False, True)):
            await producer.begin_transaction()
            for i in range(5):
                await producer.send_and_wait(topic, f"{number}-{i}".encode(), partition=0)
            await (producer.commit_transaction() if keep else producer.abort_transaction())
    async with started(
        AIOKafkaConsumer(
            topic, bootstrap_servers=cluster, auto_offset_reset="earliest", isolation_level="read_committed"
        )
    ) as consumer:
        got = [record.value.decode() for record in await read(consumer, 10)]
    assert got == [f"{number}-{i}" for number in (0, 2) for i in range(5)]
