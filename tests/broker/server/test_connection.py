"""Connections: what is no request closes its own connection only; order, limits, backpressure. On both event loops."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from broker.limits import CONNECTION_REQUESTS_QUEUED_MAX, CONNECTIONS_WAITING_MAX
from broker.wire.frames import RequestHeader, encode_request
from broker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from broker.wire.messages.fetch import FetchResponse
from broker.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.broker.running import running_broker, running_server
from tests.broker.wire_client import WireClient, batch_of, connect, fetch_request, produce_request, values_in

MIB = 1024 * 1024


async def works(client: WireClient) -> bool:
    response = await client.ask(ApiVersionsRequest("test", "1"), 3, ApiVersionsResponse)
    return response.error_code == 0


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        struct.pack(">i", -1) + b"x" * 20,
        struct.pack(">i", 0),
        struct.pack(">i", 9) + b"x" * 9,
        struct.pack(">i", 101 * MIB) + b"x" * 100,
        struct.pack(">ihhih", 10, 18, 3, 1, 30_000),
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, -5, 0, 1, -1),
        struct.pack(">ihhih", 10, 0, 99, 1, -1),
        struct.pack(">ihhih", 10, 0, 2, 1, -1),
        struct.pack(">ihhihi", 14, 3, 5, 1, -1, 2_000_000_000),
        struct.pack(">i", 64) + b"\xff" * 64,
    ],
    ids=[
        "http",
        "negative size",
        "empty",
        "too small",
        "over 100 MiB",
        "client id beyond the frame",
        "unknown api",
        "negative api",
        "unknown version",
        "produce v2",
        "array larger than the frame",
        "all ones",
    ],
)
async def test_garbage_closes_its_own_connection_only(tmp_path: Path, garbage: bytes) -> None:
    async with running_broker(tmp_path) as address, connect(address) as good, connect(address) as bad:
        assert await works(good)
        await bad.send_bytes(garbage)
        assert await bad.is_closed()
        assert await works(good)


async def test_a_connection_that_comes_when_the_broker_stops_is_closed(tmp_path: Path) -> None:
    """One that was accepted just before the listener was closed would hold up the stop for good."""
    async with running_server(tmp_path) as server, connect(server.address) as before:
        assert await works(before)
        server.abort_connections()
        async with connect(server.address) as late:
            assert await before.is_closed()
            assert await late.is_closed()


async def test_a_frame_that_ends_early_does_no_harm(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as good:
        async with connect(server.address) as bad:
            await bad.send_bytes(struct.pack(">i", 50 * MIB) + b"x" * 1000)
            assert await works(good)
        async with asyncio.timeout(60):
            while len(server.connections) > 1:
                await works(good)
        assert server.memory.used_bytes == 0


async def test_an_unknown_version_of_api_versions_is_answered_in_v0(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        header = RequestHeader(18, 4, 77, "future")
        frame = bytearray(b"".join(encode_request(header, ApiVersionsRequest("x", "1"))))
        struct.pack_into(">h", frame, 6, 99)
        await client.send_bytes(bytes(frame))
        correlation_id, response = await client.receive(18, 0)
        assert isinstance(response, ApiVersionsResponse)
        assert (correlation_id, response.error_code) == (77, 35)
        assert 18 in {api.api_key for api in response.api_keys}
        assert await works(client)


async def test_pipelined_requests_are_answered_in_order(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        count = CONNECTION_REQUESTS_QUEUED_MAX * 10
        await client.create_topic("t")
        sent = []
        for number in range(count):
            request = ApiVersionsRequest("test", "1") if number % 2 else produce_request("t", batch_of(f"{number}"))
            sent.append((await client.send(request, 3), request.API_KEY))
        for correlation_id, key in sent:
            assert (await client.receive(key, 3))[0] == correlation_id


async def test_frames_may_come_byte_by_byte_or_many_at_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        frame = b"".join(encode_request(RequestHeader(18, 0, 5, None), ApiVersionsRequest()))
        for position in range(len(frame)):
            await client.send_bytes(frame[position : position + 1])
            await asyncio.sleep(0)
        assert (await client.receive(18, 0))[0] == 5
        await client.send_bytes(frame * 2000)
        for _ in range(2000):
            assert (await client.receive(18, 0))[0] == 5


async def test_a_waiting_fetch_holds_back_its_own_connection_only(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as waiting, connect(address) as other:
        await other.create_topic("t")
        fetch = await waiting.send(fetch_request("t", 0, max_wait_ms=60_000), 12)
        behind = await waiting.send(ApiVersionsRequest("test", "1"), 3)
        assert await works(other)
        await other.produce("t", batch_of("wakes"))
        correlation_id, response = await waiting.receive(1, 12)
        assert correlation_id == fetch
        assert isinstance(response, FetchResponse)
        assert values_in(response.responses[0].partitions[0]) == ["wakes"]
        assert (await waiting.receive(18, 3))[0] == behind


@pytest.mark.parametrize("size_bytes", [8_000, 8_192, 8_193, 262_144, 262_200, 700_000, 5 * MIB])
async def test_batches_of_all_sizes_come_through_whole(tmp_path: Path, size_bytes: int) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as client:
        await client.create_topic("t", max_message_bytes=str(16 * MIB))
        value = "x" * size_bytes
        assert (await client.produce("t", batch_of(value))).error_code == 0
        assert (await client.produce("t", batch_of("after"))).base_offset == 1
        assert values_in(await client.fetch("t", 0, partition_max_bytes=16 * MIB)) == [value, "after"]
        assert server.memory.used_bytes < 1000


async def test_announced_bytes_are_not_allocated_and_all_frames_share_one_budget(tmp_path: Path) -> None:
    limits: dict[str, Any] = {"queued_max_request_bytes": 4 * MIB, "socket_request_max_bytes": 3 * MIB}
    async with running_server(tmp_path, **limits) as server, connect(server.address) as good:
        await good.create_topic("t", max_message_bytes=str(8 * MIB))
        clients = []
        for _ in range(20):
            host, port = server.address.rsplit(":", 1)
            client = WireClient(*await asyncio.open_connection(host, int(port)))
            clients.append(client)
            await client.send_bytes(struct.pack(">i", 3 * MIB) + b"\0" * 10)
        # Twenty frames were announced, and what they get at once is more than the budget: small requests still pass.
        assert await works(good)
        assert server.memory.used_bytes <= 4 * MIB + 3 * MIB
        for client in clients:
            client.writer.close()
        assert (await good.produce("t", batch_of("y" * (2 * MIB)))).error_code == 0


async def test_frames_larger_than_the_budget_together_all_arrive(tmp_path: Path) -> None:
    limits: dict[str, Any] = {"queued_max_request_bytes": 3 * MIB, "socket_request_max_bytes": 3 * MIB}
    async with running_server(tmp_path, **limits) as server, connect(server.address) as first:
        await first.create_topic("t", max_message_bytes=str(8 * MIB))

        async def produce(number: int) -> int:
            async with connect(server.address) as client:
                return (await client.produce("t", batch_of(str(number) * (2 * MIB)))).error_code

        async with asyncio.TaskGroup() as tasks:
            produced = [tasks.create_task(produce(number)) for number in range(6)]
        assert [task.result() for task in produced] == [0] * 6
        assert (await first.produce("t", batch_of("last"))).base_offset == 6
        assert server.memory.used_bytes < 1000


async def test_a_client_that_does_not_read_is_not_served_on(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as slow, connect(server.address) as good:
        await good.create_topic("t")
        for number in range(8):
            await good.produce("t", batch_of(f"{number}" * 900_000))
        request = fetch_request("t", 0, partition_max_bytes=8 * MIB)
        slow.reader._transport.pause_reading()  # type: ignore[attr-defined]  # the client's side of the socket fills up
        for _ in range(CONNECTION_REQUESTS_QUEUED_MAX * 3):
            await slow.send(request, 11)
        assert await works(good)
        connection = next(c for c in server.connections if not c._writable.is_set())
        assert connection._transport is not None
        # One answer is on its way; the others are not made before it is taken.
        assert connection._transport.get_write_buffer_size() < 9 * MIB
        slow.reader._transport.resume_reading()  # type: ignore[attr-defined]  # and is emptied
        for _ in range(CONNECTION_REQUESTS_QUEUED_MAX * 3):
            _, response = await slow.receive(1, 11)
            assert isinstance(response, FetchResponse)
            assert len(values_in(response.responses[0].partitions[0])) == 8


async def test_more_connections_than_allowed_wait_in_turn_and_more_than_may_wait_are_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """KIP-402; the kernel's queue does not tell who of them went meanwhile, and neither does ours."""
    async with running_server(tmp_path, max_connections=2) as server, AsyncExitStack() as stack:

        async def client() -> WireClient:
            return await stack.enter_async_context(connect(server.address))

        first, second = await client(), await client()
        assert await works(first)
        assert await works(second)
        waiting = [await client() for _ in range(CONNECTIONS_WAITING_MAX)]
        for one in waiting:
            await one.send(ApiVersionsRequest("test", "1"), 3)
        assert await (await client()).is_closed()
        assert await works(first)
        assert (len(server.connections), server.memory.used_bytes) == (2, 0), "nothing is read of who waits"
        waiting[0].writer.close()
        second.writer.close()
        assert isinstance((await waiting[1].receive(18, 3))[1], ApiVersionsResponse)
        assert await works(waiting[1])
        assert len(server.connections) == 2
        waiting[1].writer.close()
        assert isinstance((await waiting[2].receive(18, 3))[1], ApiVersionsResponse)
    warned = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert warned == ["clients wait until others go: there are 2 connections (max.connections)"], "once for all"


def hang_up(address: str) -> None:
    """Come, and be gone before anybody is accepted."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port))) as gone:
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def test_an_address_has_no_more_connections_than_allowed(tmp_path: Path) -> None:
    async with running_broker(tmp_path, max_connections_per_ip=2) as address:
        async with connect(address) as first, connect(address) as second:
            assert await works(first)
            assert await works(second)
            async with connect(address) as third:
                assert await third.is_closed()
            assert await works(first)
        for _ in range(2):
            hang_up(address)
        async with asyncio.timeout(60):
            while True:
                async with connect(address) as again:
                    with suppress(ConnectionError, asyncio.IncompleteReadError):
                        assert await works(again)
                        break


async def test_a_limit_that_is_lowered_closes_who_was_quiet_for_longest(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect(server.address)) for _ in range(4)]
        for one in (2, 0, 1, 3):
            assert await works(clients[one])
        configs = server.broker.broker_configs
        await configs.alter(default=True, change=lambda _: {"max.connections": "2"})
        assert await clients[2].is_closed()
        assert await clients[0].is_closed()
        assert await works(clients[1])
        waiting = await stack.enter_async_context(connect(server.address))
        await waiting.send(ApiVersionsRequest("test", "1"), 3)
        assert await works(clients[3])
        await configs.alter(default=False, change=lambda _: {"max.connections": "3"})
        assert isinstance((await waiting.receive(18, 3))[1], ApiVersionsResponse)
        await configs.alter(default=True, change=lambda _: {"max.connections.per.ip": "3"})
        assert await (await stack.enter_async_context(connect(server.address))).is_closed()
        assert await works(waiting)


async def test_an_idle_connection_is_closed_and_a_waiting_one_is_not(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path, connections_max_idle_ms=300) as address,
        connect(address) as idle,
        connect(address) as waiting,
    ):
        await waiting.create_topic("t")
        await waiting.send(fetch_request("t", 0, max_wait_ms=3_000), 12)
        assert await works(idle)
        assert await idle.is_closed()
        _, response = await waiting.receive(1, 12)
        assert isinstance(response, FetchResponse)


async def test_a_client_that_leaves_takes_its_waiting_fetch_along(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as good:
        await good.create_topic("t")
        async with connect(server.address) as leaving:
            await leaving.send(fetch_request("t", 0, max_wait_ms=2_000_000_000), 12)
            partition = server.broker.require_partition("t", 0)
            async with asyncio.timeout(60):
                while not partition.waiters:
                    await works(good)
        async with asyncio.timeout(60):
            while partition.waiters:
                await works(good)


async def test_an_unexpected_error_closes_the_connection_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as good, connect(server.address) as bad:
        assert await works(good)
        server.broker.view.topics["broken"] = None  # type: ignore[assignment]  # a state that no code is made for
        await bad.send(MetadataRequest(None), 9)
        assert await bad.is_closed()
        assert "internal error" not in caplog.text or caplog.records
        assert any(record.exc_info for record in caplog.records)
        del server.broker.view.topics["broken"]
        assert (await good.ask(MetadataRequest(None), 9, MetadataResponse)).topics == []
