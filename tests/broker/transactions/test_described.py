"""What ListTransactions and DescribeTransactions say of a transactional id through its life."""

from __future__ import annotations

from pathlib import Path

from broker.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from broker.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from broker.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from broker.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from broker.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tests.broker.running import running_broker
from tests.broker.wire_client import WireClient, connect


async def init(client: WireClient, name: str) -> int:
    answer = await client.ask(InitProducerIdRequest(name, 60_000), 4, InitProducerIdResponse)
    assert answer.error_code == 0
    return answer.producer_id


async def described(client: WireClient, *names: str) -> list[TransactionState]:
    answer = await client.ask(DescribeTransactionsRequest(list(names)), 0, DescribeTransactionsResponse)
    return answer.transaction_states


async def listed(client: WireClient, *states: str, producers: tuple[int, ...] = (), longer_ms: int = -1) -> set[str]:
    request = ListTransactionsRequest(list(states), list(producers), longer_ms)
    answer = await client.ask(request, 1, ListTransactionsResponse)
    return {f"{found.transactional_id} {found.transaction_state}" for found in answer.transaction_states}


async def test_a_transaction_through_its_life(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t", 2)
        await client.create_topic("u")
        x, y = await init(client, "x"), await init(client, "y")
        assert await listed(client) == {"x Empty", "y Empty"}
        topics = [AddPartitionsToTxnTopic("t", [1, 0]), AddPartitionsToTxnTopic("u", [0])]
        await client.ask(AddPartitionsToTxnRequest("x", x, 0, topics), 3, AddPartitionsToTxnResponse)
        assert await listed(client, "Ongoing") == {"x Ongoing"}
        assert await listed(client, producers=(y,)) == {"y Empty"}
        assert await listed(client, "Ongoing", longer_ms=3_600_000) == set()
        (one,) = await described(client, "x")
        assert (one.transaction_state, one.producer_id, one.producer_epoch) == ("Ongoing", x, 0)
        assert (one.transaction_timeout_ms, one.transaction_start_time_ms > 0) == (60_000, True)
        assert [(topic.topic, topic.partitions) for topic in one.topics] == [("t", [0, 1]), ("u", [0])]
        await client.ask(EndTxnRequest("x", x, 0, True), 3, EndTxnResponse)
        (one,) = await described(client, "x")
        assert (one.transaction_state, one.topics) == ("CompleteCommit", [])
        assert await listed(client, "CompleteCommit", "Empty") == {"x CompleteCommit", "y Empty"}


async def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        assert [one.error_code for one in await described(client, "nobody", "", "nobody")] == [105, 42]
        request = ListTransactionsRequest(["Dead", "ongoing", "Ongoing"])
        answer = await client.ask(request, 0, ListTransactionsResponse)
        assert answer.unknown_state_filters == ["ongoing"]


async def test_half_a_pair_names_no_producer(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        producer = await init(client, "x")
        for name in ("x", None):
            for pair in ((producer, -1), (-1, 0)):
                answer = await client.ask(InitProducerIdRequest(name, 60_000, *pair), 4, InitProducerIdResponse)
                assert (answer.error_code, answer.producer_id) == (42, -1)
        answer = await client.ask(InitProducerIdRequest("x", 60_000, producer, 0), 4, InitProducerIdResponse)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, producer, 1)
