"""Clients that go beyond their quotas are answered, told how long they are to rest, and not read from meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from broker.wire.errors import ErrorCode
from broker.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
    QuotaAlteration,
)
from broker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from broker.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
)
from broker.wire.messages.fetch import FetchResponse
from broker.wire.messages.metadata import MetadataRequest, MetadataResponse
from broker.wire.messages.produce import ProduceResponse
from tests.broker.running import running_server
from tests.broker.running_cluster import running_cluster, until
from tests.broker.wire_client import WireClient, batch_of, connect, fetch_request, produce_request

LIMIT: Final = 10_000
REST_MS_MIN, REST_MS_MAX = 300, 1000
LARGE = batch_of("x" * (LIMIT * 10 + 4000))
"""So much that Kafka has its client rest for about 400 ms."""
HALF = batch_of("x" * (LIMIT * 6))


async def limit(client: WireClient, who: dict[str, str | None], **values: float) -> None:
    ops = [OpData(key, value) for key, value in values.items()]
    entity = [EntityData(kind, name) for kind, name in who.items()]
    request = AlterClientQuotasRequest([QuotaAlteration(entity, ops)])
    answer = await client.ask(request, 1, AlterClientQuotasResponse)
    assert [entry.error_code for entry in answer.entries] == [0], answer


async def takes_ms(client: WireClient) -> float:
    """Until the next request of the connection is answered."""
    began = asyncio.get_running_loop().time()
    await client.ask(ApiVersionsRequest("test", "1"), 3, ApiVersionsResponse)
    return (asyncio.get_running_loop().time() - began) * 1000


async def test_who_writes_too_much_is_answered_and_rests(tmp_path: Path) -> None:
    async with (
        running_server(tmp_path) as server,
        connect(server.address) as owner,
        connect(server.address) as client,
    ):
        await owner.create_topic("t")
        await limit(owner, {"client-id": "test"}, producer_byte_rate=LIMIT)
        for acks in (1, -1):
            answer = await client.ask(produce_request("t", LARGE, acks=acks), 9, ProduceResponse)
            assert answer.responses[0].partition_responses[0].error_code == 0
            assert answer.throttle_time_ms >= REST_MS_MIN
            if acks == 1:
                assert answer.throttle_time_ms <= REST_MS_MAX
                held_back, other = (asyncio.ensure_future(takes_ms(each)) for each in (client, owner))
                await asyncio.wait({held_back, other}, return_when=asyncio.FIRST_COMPLETED)
                assert other.done(), "only who wrote rests"
                assert await held_back >= REST_MS_MIN / 2
                await other
                await limit(owner, {"client-id": "test"}, producer_byte_rate=LIMIT * 1.9)
        await limit(owner, {"client-id": "test"}, producer_byte_rate=LIMIT * 1000)
        assert (await client.ask(produce_request("t", HALF), 9, ProduceResponse)).throttle_time_ms == 0


async def test_requests_behind_it_wait_also_where_there_is_no_answer(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as client:
        await client.create_topic("t")
        await limit(client, {"user": "ANONYMOUS"}, producer_byte_rate=LIMIT)
        await client.send(produce_request("t", LARGE, acks=0), 9)
        assert await takes_ms(client) >= REST_MS_MIN / 2


async def test_who_reads_too_much_is_told_to_rest_and_gets_it_then(tmp_path: Path) -> None:
    async with (
        running_server(tmp_path) as server,
        connect(server.address) as owner,
        connect(server.address) as client,
    ):
        await owner.create_topic("t")
        for _ in range(3):
            assert (await owner.produce("t", HALF)).error_code == 0
        await limit(owner, {"user": None}, consumer_byte_rate=LIMIT)
        first = await client.ask(fetch_request("t", 0, session_epoch=0), 12, FetchResponse)
        assert first.throttle_time_ms == 0
        assert first.session_id
        size_bytes = len(first.responses[0].partitions[0].records or b"")
        assert size_bytes <= LIMIT * 10
        going_on = fetch_request("t", 1, session_id=first.session_id, session_epoch=1)
        second = await client.ask(going_on, 12, FetchResponse)
        assert (second.responses, second.session_id, second.error_code) == ([], first.session_id, 0)
        assert REST_MS_MIN <= second.throttle_time_ms <= 5000
        await limit(owner, {"user": None}, consumer_byte_rate=LIMIT * 2)
        assert await takes_ms(client) >= second.throttle_time_ms / 2
        again = fetch_request("t", 1, session_id=first.session_id, session_epoch=2)
        third = await client.ask(again, 12, FetchResponse)
        assert third.throttle_time_ms == 0
        assert third.responses[0].partitions[0].records


async def test_who_has_too_much_done_rests_a_second_at_most(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as client:
        await limit(client, {"user": "ANONYMOUS", "client-id": "test"}, request_percentage=1e-6)
        answer = await client.ask(MetadataRequest([]), 12, MetadataResponse)
        assert answer.throttle_time_ms == 1000
        assert await takes_ms(client) >= 500


async def test_connections_beyond_the_rate_of_an_address_are_closed(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as owner:
        await limit(owner, {"ip": "127.0.0.1"}, connection_creation_rate=0.2 * 10)
        for _ in range(20):
            async with connect(server.address) as client:
                assert await takes_ms(client) >= 0
        async with connect(server.address) as client:
            assert await client.is_closed()
        assert await takes_ms(owner) >= 0


async def test_quotas_outlive_the_broker_and_hold_at_all_brokers(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, 1, 2) as cluster:
        async with connect(cluster.servers[1].address) as owner:
            await limit(owner, {"user": "ANONYMOUS", "client-id": None}, producer_byte_rate=LIMIT)
        await until(lambda: cluster.servers[2].broker.quotas.is_any)
        async with connect(cluster.servers[2].address) as client:
            asked = DescribeClientQuotasRequest([ComponentData("client-id", 1, None)])
            (entry,) = (await client.ask(asked, 1, DescribeClientQuotasResponse)).entries or []
            assert [(value.key, value.value) for value in entry.values] == [("producer_byte_rate", LIMIT)]
    async with running_server(tmp_path / "alone") as server, connect(server.address) as client:
        await limit(client, {"ip": "10.0.0.1"}, connection_creation_rate=3)
    async with running_server(tmp_path / "alone") as server, connect(server.address) as client:
        (entry,) = (await client.ask(DescribeClientQuotasRequest(), 1, DescribeClientQuotasResponse)).entries or []
        assert [(each.entity_type, each.entity_name) for each in entry.entity] == [("ip", "10.0.0.1")]
        wrong = AlterClientQuotasRequest([QuotaAlteration([EntityData("ip", "10.0.0.1")], [OpData("bytes", 1.0)])])
        answer = await client.ask(wrong, 1, AlterClientQuotasResponse)
        assert answer.entries[0].error_code == ErrorCode.INVALID_REQUEST
