"""Markers on their way to other brokers: in order, repeated by whoever ordered them, and never so late that they would
end the next transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from typing import cast
from uuid import UUID

import pytest

from broker.client.errors import ConnectionLost
from broker.cluster.metadata import BrokerRegistration, LiveBroker, PartitionState, TopicState
from broker.cluster.view import ClusterView
from broker.coordination.host import CoordinatorHost
from broker.coordination.internal_log import NotCoordinator, Producer
from broker.transactions.channels import Channel, ReceivedChannels
from broker.transactions.cluster_markers import ClusterMarkers
from broker.transactions.markers import LocalMarkers, Marker
from broker.wire.errors import ErrorCode
from broker.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from broker.wire.vocabulary import TopicPartition
from tests.broker.on_zookeeper import SteppingClock
from tests.broker.running_cluster import until

OWN, FAR, OTHER = 1, 2, 3
OWN_EPOCH, FAR_EPOCH = 40, 50
HERE, THERE, ELSEWHERE, LEADERLESS = (TopicPartition("t", index) for index in range(4))
LEADERS = (OWN, FAR, OTHER, -1)


def marker(producer_id: int = 7, *, commit: bool = True) -> Marker:
    return Marker(Producer(producer_id, 0), commit, 3)


class Broker:
    """Another one. `answer` is what becomes of a request; what it has carried out is `taken`, each request apart."""

    def __init__(self) -> None:
        self.taken: list[list[tuple[int, bool]]] = []
        self.answer: Callable[[], Awaitable[None]] = _at_once
        self.code = ErrorCode.NONE
        self.client_ids: list[str] = []
        self.reachable = True

    async def connect(self, client_id: str) -> Broker:
        await asyncio.sleep(0)
        if not self.reachable:
            raise ConnectionLost("nobody listens")
        self.client_ids.append(client_id)
        return self

    async def request(
        self, message: WriteTxnMarkersRequest, version: int, *, timeout_ms: int
    ) -> WriteTxnMarkersResponse:
        self.taken.append([(one.producer_id, one.transaction_result) for one in message.markers])
        await self.answer()
        return WriteTxnMarkersResponse(
            [
                WritableTxnMarkerResult(
                    one.producer_id,
                    [
                        WritableTxnMarkerTopicResult(
                            topic.name,
                            [WritableTxnMarkerPartitionResult(index, self.code) for index in topic.partition_indexes],
                        )
                        for topic in one.topics
                    ],
                )
                for one in message.markers
            ]
        )

    def abort(self) -> None:
        pass


async def _at_once() -> None:
    await asyncio.sleep(0)


async def _lost() -> None:
    raise ConnectionLost("the connection broke")


class Local:
    """The partitions that are led here."""

    def __init__(self) -> None:
        self.taken: list[tuple[int, frozenset[TopicPartition]]] = []
        self.code = ErrorCode.NONE

    async def write(self, order: Marker, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, ErrorCode]:
        if partitions:
            self.taken.append((order.producer.producer_id, frozenset(partitions)))
        return dict.fromkeys(partitions, self.code)


class World:
    def __init__(self) -> None:
        self.view = ClusterView()
        self.view.brokers = {node: LiveBroker(BrokerRegistration(node, ()), FAR_EPOCH) for node in (OWN, FAR, OTHER)}
        self.lead(*LEADERS)
        self.far, self.other, self.local = Broker(), Broker(), Local()
        self.gone: set[str] = set()
        self.markers = ClusterMarkers(
            cast(CoordinatorHost, self),
            cast(LocalMarkers, self.local),
            self.view,
            lambda: (OWN, OWN_EPOCH),
            lambda node, client_id: {FAR: self.far, OTHER: self.other}[node].connect(client_id),
            SteppingClock(),
        )

    def lead(self, *leaders: int) -> None:
        states = tuple(PartitionState(leader, 0, (1, 2, 3), (1, 2, 3)) for leader in leaders)
        self.view.topics["t"] = TopicState("t", UUID(int=1), states)

    async def gone_topics(self, names: Collection[str]) -> set[str]:
        return set(names) & self.gone

    async def write(self, *wheres: TopicPartition, producer_id: int = 7) -> Mapping[TopicPartition, ErrorCode]:
        async with asyncio.timeout(60):
            return await self.markers.write(marker(producer_id), wheres)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    async with running(made):
        yield made


@asynccontextmanager
async def running(world: World) -> AsyncIterator[None]:
    task = asyncio.create_task(world.markers.run())
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_each_leader_is_told_of_its_partitions(world: World) -> None:
    found = await world.write(HERE, THERE, ELSEWHERE, LEADERLESS)
    assert found == {HERE: 0, THERE: 0, ELSEWHERE: 0, LEADERLESS: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert world.local.taken == [(7, frozenset({HERE}))]
    assert (world.far.taken, world.other.taken) == ([[(7, True)]], [[(7, True)]])


async def test_only_a_topic_that_the_cluster_lacks_needs_no_marker(world: World) -> None:
    """Whoever has not heard of it yet, here or there."""
    young, gone = TopicPartition("young", 0), TopicPartition("gone", 0)
    world.gone = {"gone"}
    assert await world.write(young, gone) == {
        young: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        gone: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    world.far.code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await world.write(THERE) == {THERE: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    world.gone = {"t"}
    assert await world.write(THERE) == {THERE: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_what_is_ordered_meanwhile_goes_together_and_in_order(world: World) -> None:
    go_on = asyncio.Event()

    async def wait() -> None:
        await go_on.wait()

    world.far.answer = wait
    writes = [asyncio.create_task(world.write(THERE, producer_id=producer)) for producer in range(4)]
    await until(lambda: len(world.far.taken) == 1)
    for _ in range(5):
        await asyncio.sleep(0)
    go_on.set()
    for write in writes:
        assert await write == {THERE: 0}
    assert [producer for request in world.far.taken for producer, _ in request] == [0, 1, 2, 3]
    assert len(world.far.taken) <= 2


async def test_what_nobody_waits_for_any_more_is_not_sent(world: World) -> None:
    world.far.reachable = False
    write = asyncio.create_task(world.write(THERE))
    await asyncio.sleep(0)
    write.cancel()
    await asyncio.wait([write])
    world.far.reachable = True
    assert await world.write(THERE, producer_id=8) == {THERE: 0}
    assert world.far.taken == [[(8, True)]]


async def test_an_order_that_may_be_on_its_way_holds_back_its_producer_until_it_has_landed(world: World) -> None:
    """Another leader must not end a transaction of which the old one might still get a marker."""
    world.far.answer = _lost
    assert await world.write(THERE) == {THERE: ErrorCode.NETWORK_EXCEPTION}
    world.far.reachable = False
    world.lead(OWN, OTHER, OTHER, -1)
    moved = asyncio.create_task(world.write(THERE))
    for _ in range(100):
        await asyncio.sleep(0)
    assert world.other.taken == []
    assert await world.write(THERE, producer_id=8) == {THERE: 0}, "others go on"
    world.far.answer, world.far.reachable = _at_once, True
    assert await moved == {THERE: 0}
    assert world.far.taken == [[(7, True)], []], "a new connection fences what the old one left"
    first, second = (Channel.of(client_id) for client_id in world.far.client_ids)
    assert first is not None
    assert second is not None
    assert first < second
    assert {(one.sender, one.sender_epoch, one.receiver_epoch) for one in (first, second)} == {(1, 40, 50)}


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "restarted"])
async def test_what_was_sent_to_a_broker_that_is_gone_has_landed(world: World, gone: bool) -> None:
    async def lost_with_the_broker() -> None:
        rest = {node: broker for node, broker in world.view.brokers.items() if node != FAR}
        later = {FAR: LiveBroker(BrokerRegistration(FAR, ()), FAR_EPOCH + 1)}
        world.view.brokers = rest if gone else rest | later
        world.far.reachable = False
        raise ConnectionLost("the broker died")

    world.far.answer = lost_with_the_broker
    assert await world.write(THERE) == {THERE: ErrorCode.NETWORK_EXCEPTION}
    world.lead(OWN, OTHER, OTHER, -1)
    assert await world.write(THERE) == {THERE: 0}


async def test_markers_of_an_earlier_connection_or_life_are_refused() -> None:
    received = ReceivedChannels()
    first, second = Channel(OWN, OWN_EPOCH, 9, FAR_EPOCH), Channel(OWN, OWN_EPOCH, 10, FAR_EPOCH)
    restarted = Channel(OWN, OWN_EPOCH + 1, 1, FAR_EPOCH)
    assert Channel.of(first.client_id) == first
    assert [Channel.of(text) for text in (None, "kafka-transactions", "markers.1.2", "markers.a.b.c.d")] == [None] * 4
    received.check(first, FAR_EPOCH)
    received.check(first, FAR_EPOCH)
    received.check(second, FAR_EPOCH)
    received.check(Channel(OTHER, 1, 1, FAR_EPOCH), FAR_EPOCH)
    received.check(restarted, FAR_EPOCH)
    for late in (first, second):
        with pytest.raises(NotCoordinator):
            received.check(late, FAR_EPOCH)
    with pytest.raises(NotCoordinator):
        received.check(restarted, FAR_EPOCH + 1)
