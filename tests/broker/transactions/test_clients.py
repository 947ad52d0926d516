"""Transactions with an unmodified client, over the wire."""

import asyncio
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from tests.broker.conftest import running_broker

DEADLINE_SECONDS = 60
FLIGHTS = TopicPartition("flights", 0)


def producer(address: str) -> AIOKafkaProducer:
    return AIOKafkaProducer(bootstrap_servers=address, transactional_id="flight-copier")


async def committed_values(address: str, count: int, *, level: str = "read_committed") -> list[bytes]:
    client = AIOKafkaConsumer(
        bootstrap_servers=address, isolation_level=level, auto_offset_reset="earliest", enable_auto_commit=False
    )
    client.assign([FLIGHTS])
    async with client:
        return [(await client.getone()).value for _ in range(count)]


async def test_only_what_was_committed_is_read_committed(tmp_path: Path) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS), running_broker(tmp_path) as address:
        async with producer(address) as client:
            async with client.transaction():
                await client.send_and_wait("flights", b"kept", partition=0)
            await client.begin_transaction()
            await client.send_and_wait("flights", b"dropped", partition=0)
            await client.abort_transaction()
            async with client.transaction():
                await client.send_and_wait("flights", b"kept too", partition=0)
        assert await committed_values(address, 2) == [b"kept", b"kept too"]
        everything = await committed_values(address, 3, level="read_uncommitted")
        assert everything == [b"kept", b"dropped", b"kept too"]


async def test_offsets_are_committed_with_the_transaction(tmp_path: Path) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS), running_broker(tmp_path) as address:
        group = AIOKafkaConsumer(bootstrap_servers=address, group_id="copiers", enable_auto_commit=False)
        async with producer(address) as client, group:
            async with client.transaction():
                await client.send_and_wait("flights", b"a", partition=0)
                await client.send_offsets_to_transaction({FLIGHTS: 1}, "copiers")
            group.assign([FLIGHTS])
            assert await group.committed(FLIGHTS) == 1
            await client.begin_transaction()
            await client.send_offsets_to_transaction({FLIGHTS: 2}, "copiers")
            await client.abort_transaction()
            assert await group.committed(FLIGHTS) == 1


async def test_the_second_producer_of_an_id_fences_the_first(tmp_path: Path) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS), running_broker(tmp_path) as address:
        old = producer(address)
        await old.start()
        await old.begin_transaction()
        await old.send_and_wait("flights", b"of the old", partition=0)
        async with producer(address) as new, new.transaction():
            await new.send_and_wait("flights", b"of the new", partition=0)
        with pytest.raises(KafkaError):
            await old.commit_transaction()
        await old.stop()
        assert await committed_values(address, 1) == [b"of the new"]


async def test_a_transaction_survives_a_restart_of_the_broker(tmp_path: Path) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        async with running_broker(tmp_path) as address, producer(address) as client, client.transaction():
            await client.send_and_wait("flights", b"before", partition=0)
        async with running_broker(tmp_path) as address:
            async with producer(address) as client, client.transaction():
                await client.send_and_wait("flights", b"after", partition=0)
            assert await committed_values(address, 2) == [b"before", b"after"]
