"""The metadata store on a real ZooKeeper, held by the contract of all stores."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest

from broker.base.clock import SystemClock
from broker.cluster.metadata_store import MetadataStore
from broker.cluster.zookeeper.kazoo_session import KazooZooKeeper
from broker.cluster.zookeeper.store import ZooKeeperMetadataStore
from broker.wire.vocabulary import TopicPartition
from tests.broker.cluster.contract import MetadataStoreContract, Open, elected, topic
from tests.broker.cluster.hands_contract import HandsContract
from tests.interop.servers import ZooKeeperServer

SESSION_MS = 6000
CONNECT_MS = 20_000


Connect = Callable[[], Awaitable[KazooZooKeeper]]


@pytest.fixture
def connect(zookeeper: ZooKeeperServer) -> Connect:
    """Into a chroot of its own."""
    servers = f"{zookeeper.address}/test-{uuid.uuid4()}"
    return lambda: KazooZooKeeper.connect(servers, SESSION_MS, SystemClock(), CONNECT_MS)


@pytest.fixture
async def open(connect: Connect) -> AsyncIterator[Open]:
    stores: list[MetadataStore] = []

    async def open() -> MetadataStore:
        for store in stores:
            await store.close()
        stores[:] = [await ZooKeeperMetadataStore.open(connect, SystemClock())]
        return stores[0]

    yield open
    for store in stores:
        await store.close()


class TestZooKeeper(MetadataStoreContract):
    pass


class TestHands(HandsContract):
    @pytest.fixture
    async def store(self, connect: Connect) -> AsyncIterator[ZooKeeperMetadataStore]:
        store = await ZooKeeperMetadataStore.open(connect, SystemClock())
        yield store
        await store.close()

    @pytest.fixture
    async def hand(self, connect: Connect) -> AsyncIterator[KazooZooKeeper]:
        hand = await connect()
        yield hand
        await hand.close()


async def test_the_states_of_a_thousand_topics_are_read_and_written_in_few_transactions(open: Open) -> None:
    store = await open()
    controller = await elected(store)
    await asyncio.gather(*(store.create_topic(controller, topic(f"t{n}", 1)) for n in range(1000)))
    async with asyncio.timeout(60):
        read = await store.topics()
        states = {TopicPartition(name, 0): replace(t.partitions[0], leader_epoch=1) for name, t in read.items()}
        written = await store.write_partition_states(controller, states)
    assert len(written.states) == 1000
    assert not written.refused
