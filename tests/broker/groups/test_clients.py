"""Consumer groups with an unmodified client, over the wire."""

import asyncio
from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.broker.conftest import running_broker

DEADLINE_SECONDS = 60


async def create_topic(address: str, partitions: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    try:
        await admin.create_topics([NewTopic("flights", partitions, 1)])
    finally:
        await admin.close()


async def produce(address: str, values: range, partitions: int) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=address)
    await producer.start()
    try:
        for value in values:
            await producer.send_and_wait("flights", b"%d" % value, partition=value % partitions)
    finally:
        await producer.stop()


def consumer(address: str) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        "flights",
        bootstrap_servers=address,
        group_id="readers",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=200,
        session_timeout_ms=30_000,
    )


async def read(client: AIOKafkaConsumer, count: int) -> list[int]:
    return [int((await client.getone()).value) for _ in range(count)]


async def wait_for_partitions(client: AIOKafkaConsumer, count: int) -> None:
    """Polls, as the assignment belongs to the client; the caller has a deadline."""
    while len(client.assignment()) != count:
        await asyncio.sleep(0.05)


async def test_two_consumers_share_rebalance_commit_and_go_on_after_a_restart(tmp_path: Path) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        async with running_broker(tmp_path) as address:
            await create_topic(address, 2)
            await produce(address, range(20), 2)
            async with consumer(address) as first:
                assert sorted(await read(first, 20)) == list(range(20))
                await first.commit()
                async with consumer(address) as second:
                    await wait_for_partitions(second, 1)
                    await wait_for_partitions(first, 1)
                    assert first.assignment().isdisjoint(second.assignment())
                    await produce(address, range(20, 30), 2)
                    got = await read(first, 5) + await read(second, 5)
                    assert sorted(got) == list(range(20, 30)), "nothing twice, nothing missing"
                    await first.commit()
                    await second.commit()
                await wait_for_partitions(first, 2)
                await produce(address, range(30, 40), 2)
                assert sorted(await read(first, 10)) == list(range(30, 40))
                await first.commit({TopicPartition("flights", 0): (18, "note ✈")})
        async with running_broker(tmp_path) as address, consumer(address) as again:
            assert await again.committed(TopicPartition("flights", 0)) == 18
            left = [31, 33, 35, 36, 37, 38, 39]
            assert sorted(await read(again, len(left))) == left, "0 from the note on, 1 from the last commit on"


async def test_a_consumer_that_dies_hands_over_to_the_other(tmp_path: Path) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS), running_broker(tmp_path) as address:
        await create_topic(address, 2)
        await produce(address, range(4), 2)
        async with consumer(address) as first:
            assert sorted(await read(first, 4)) == list(range(4))
            await first.commit()
            async with consumer(address) as second:
                await wait_for_partitions(second, 1)
            await wait_for_partitions(first, 2)
            await produce(address, range(4, 8), 2)
            assert sorted(await read(first, 4)) == list(range(4, 8))
