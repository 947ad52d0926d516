"""Orders to another broker: what its listener answers, and what comes of a connection that breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from broker.broker import Broker
from broker.client.connection import Connection
from broker.client.errors import ConnectionLost
from broker.cluster import remote_broker
from broker.cluster.metadata import PartitionState, TopicState
from broker.cluster.order_messages import leader_and_isr_request
from broker.cluster.orders import BrokerUnreachable, LeaderAndIsr, StaleBrokerEpoch, StaleController, UpdateMetadata
from broker.cluster.remote_broker import OrderRefused, RemoteBroker
from broker.wire.errors import ErrorCode
from broker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from broker.wire.vocabulary import TopicPartition
from tests.broker.on_zookeeper import World
from tests.broker.wire_client import connect


class Line:
    """To the broker's listener, with every connection that was opened; `up` False: it cannot be dialled."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.opened: list[Connection] = []
        self.up = True
        self.numbers = count(1)

    async def open(self, client_id: str) -> Connection:
        if not self.up:
            raise ConnectionLost("the line is down")
        self.opened.append(await self.broker.peers.connect(self.broker.config.node_id, client_id))
        return self.opened[-1]


@asynccontextmanager
async def ordered_about(folder: Path) -> AsyncIterator[tuple[RemoteBroker, Line, UpdateMetadata]]:
    """A broker with topic t, its line, and an order that says what it knows already."""
    async with World().broker(folder) as server, connect(server.address) as client:
        await client.create_topic("t")
        broker = server.broker
        line = Line(broker)
        remote = RemoteBroker(1, line.open, line.numbers)
        epoch = broker.view.brokers[1].epoch
        try:
            yield remote, line, UpdateMetadata(1, 1, epoch, dict(broker.view.topics), frozenset(), broker.view.brokers)
        finally:
            remote.close()


def leading(order: UpdateMetadata, topic: str = "t", **fields: Any) -> LeaderAndIsr:
    state = PartitionState(1, 5, (1,), (1,), version=9)
    topics = {topic: TopicState(topic, order.topics["t"].topic_id, ())}
    base = LeaderAndIsr(1, 1, order.broker_epoch, topics, {TopicPartition(topic, 0): state}, {})
    return replace(base, **fields)


async def test_an_order_is_carried_out_and_what_failed_is_told(tmp_path: Path) -> None:
    async with ordered_about(tmp_path) as (remote, line, order):
        await remote.learn(order)
        assert (await remote.lead_and_follow(leading(order))).failures == {}
        partition = line.broker.partition("t", 0)
        assert partition is not None
        assert partition.leader_epoch == 5
        late = leading(order, partitions={TopicPartition("t", 0): PartitionState(1, 4, (1,), (1,), version=8)})
        carried = await remote.lead_and_follow(late)
        assert carried.failures == {TopicPartition("t", 0): ErrorCode.STALE_CONTROLLER_EPOCH}
        assert carried.logs[TopicPartition("t", 0)].leader_epoch == 5


@pytest.mark.parametrize(
    ("changed", "error"), [({"controller_epoch": 0}, StaleController), ({"broker_epoch": 0}, StaleBrokerEpoch)]
)
async def test_what_is_out_of_date_is_refused(tmp_path: Path, changed: dict[str, Any], error: type[Exception]) -> None:
    async with ordered_about(tmp_path) as (remote, _, order):
        for asked in (remote.learn(replace(order, **changed)), remote.lead_and_follow(leading(order, **changed))):
            with pytest.raises(error):
                await asked


async def test_a_refusal_says_in_the_brokers_words_why(tmp_path: Path) -> None:
    """A folder cannot be made where a file is."""
    async with ordered_about(tmp_path) as (remote, _, order):
        (tmp_path / "blocked-0").write_text("")
        where = TopicPartition("blocked", 0)
        waiting = {where: PartitionState(-1, -1, (1,), ())}
        make = leading(order, "blocked", partitions=waiting, new=frozenset([where]))
        with pytest.raises(OrderRefused, match="broker 1: cannot make the partitions of blocked") as refused:
            await remote.lead_and_follow(make)
        assert refused.value.error_code is ErrorCode.KAFKA_STORAGE_ERROR
        await remote.learn(order)


async def test_a_connection_that_breaks_is_told_and_opened_again(tmp_path: Path) -> None:
    async with ordered_about(tmp_path) as (remote, line, order):
        await remote.learn(order)
        line.opened[0].abort()
        line.up = False
        with pytest.raises(BrokerUnreachable, match="broker 1 cannot be reached"):
            await remote.learn(order)
        line.up = True
        await remote.learn(order)
        assert len(line.opened) == 2


async def test_an_order_that_is_not_answered_soon_is_given_again_and_carried_out_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Swallowed by the network, or longer under way than anybody waits: that cannot be told apart."""
    assert remote_broker.ORDER_TIMEOUT_MS < 10_000
    monkeypatch.setattr(remote_broker, "ORDER_TIMEOUT_MS", 50)
    async with ordered_about(tmp_path) as (remote, line, order):
        manager = line.broker.replicas
        async with manager._applying:  # as while thousands of logs are opened
            for asked in (1, 2):
                with pytest.raises(BrokerUnreachable, match="did not answer LeaderAndIsr in time"):
                    await remote.lead_and_follow(leading(order))
                assert len(line.opened) == asked
        assert (await remote.lead_and_follow(leading(order))).failures == {}
        partition = manager.partition("t", 0)
        assert partition is not None
        assert partition.leader_epoch == 5


async def test_orders_go_by_one_connection_and_new_partitions_by_another(tmp_path: Path) -> None:
    """Or who is to lead would wait until thousands of folders are made."""
    async with ordered_about(tmp_path) as (remote, line, order):
        await asyncio.gather(*(remote.learn(order) for _ in range(5)), remote.lead_and_follow(leading(order)))
        assert len(line.opened) == 1
        where = TopicPartition("new", 0)
        waiting = {where: PartitionState(-1, -1, (1,), ())}
        await remote.lead_and_follow(leading(order, "new", partitions=waiting, new=frozenset([where])))
        assert len(line.opened) == 2


async def test_what_an_earlier_connection_left_behind_is_not_carried_out(tmp_path: Path) -> None:
    """It came late: all that it names is not all that there is by now, and its topic is another one."""
    async with ordered_about(tmp_path) as (remote, line, order):
        where = TopicPartition("new", 0)
        waiting = {where: PartitionState(-1, -1, (1,), ())}
        make = leading(order, "new", partitions=waiting, new=frozenset([where]))
        first = replace(make, topics={"new": TopicState("new", UUID(int=7), ())})
        late = [
            (0, leading(order, topics={}, partitions={}, complete=True)),
            (1, first),
        ]
        await remote.learn(order)
        await remote.lead_and_follow(first)
        later = RemoteBroker(1, line.open, line.numbers)
        await later.learn(order)
        await later.lead_and_follow(make)
        await later.lead_and_follow(leading(order, "new"))
        for number, stale in late:
            answer = await line.opened[number].request(leader_and_isr_request(stale))
            assert answer.error_code == ErrorCode.NETWORK_EXCEPTION
        for name in ("t", "new"):
            partition = line.broker.partition(name, 0)
            assert partition is not None
            assert partition.log.directory.exists()
        # A later controller begins to count anew.
        await line.opened[0].request(leader_and_isr_request(replace(leading(order), controller_epoch=2)))
        with pytest.raises(StaleController):
            await later.lead_and_follow(leading(order))
        later.close()


async def test_one_that_was_closed_while_it_dialled_asks_nothing(tmp_path: Path) -> None:
    async with ordered_about(tmp_path) as (_, line, order):
        dialling, go_on = asyncio.Event(), asyncio.Event()

        async def slow(client_id: str) -> Connection:
            dialling.set()
            await go_on.wait()
            return await line.open(client_id)

        remote = RemoteBroker(1, slow, line.numbers)
        asked = asyncio.create_task(remote.learn(order))
        await dialling.wait()
        remote.close()
        go_on.set()
        with pytest.raises(BrokerUnreachable):
            await asked
        assert not line.opened[0].is_open


async def test_clients_order_nobody_about(tmp_path: Path) -> None:
    async with ordered_about(tmp_path) as (_, line, order):
        host, port = line.broker.advertised
        async with connect(f"{host}:{port}") as client:
            promised = await client.ask(ApiVersionsRequest("farshore-test", "1.0"), 3, ApiVersionsResponse)
            assert not {4, 5, 6, 7} & {api.api_key for api in promised.api_keys}
            await client.send(leader_and_isr_request(leading(order)), 7)
            assert await client.is_closed()
        partition = line.broker.partition("t", 0)
        assert partition is not None
        assert partition.leader_epoch == 0
