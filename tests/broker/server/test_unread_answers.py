"""Clients that ask for much and read nothing share one budget; those that read are served."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from pathlib import Path

from broker.broker import Broker
from broker.handlers.handler import RequestContext
from broker.handlers.table import HANDLERS
from broker.limits import ITEMS_PER_TURN, KIB, MIB, UNSENT_ANSWERS_BYTES_MAX
from broker.wire.api import ApiKey
from broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.broker.running import running_server
from tests.broker.wire_client import WireClient, batch_of, connect, fetch_request

BATCH_BYTES = 256 * KIB
ANSWER_BYTES = 50 * MIB


async def unread(address: str) -> WireClient:
    """A client that takes as little as the kernel lets it."""
    host, _, port = address.rpartition(":")
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.setblocking(False)
    await asyncio.get_running_loop().sock_connect(raw, (host, int(port)))
    reader, writer = await asyncio.open_connection(sock=raw, limit=4096)
    return WireClient(reader, writer)


async def test_answers_that_nobody_reads_are_bounded_and_readers_go_on(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as honest, AsyncExitStack() as stack:
        await honest.create_topic("t")
        for _ in range(ANSWER_BYTES // BATCH_BYTES):
            await honest.produce("t", batch_of("x" * BATCH_BYTES))
        greedy = fetch_request("t", 0, max_bytes=2**31 - 1, partition_max_bytes=2**31 - 1)
        enough = UNSENT_ANSWERS_BYTES_MAX // ANSWER_BYTES
        for number in range(1, enough + 6):
            client = await unread(server.address)
            stack.callback(client.writer.close)
            await client.send(greedy, 12)
            async with asyncio.timeout(60):
                while server.broker.unsent_bytes < (min(number, enough) - 0.5) * ANSWER_BYTES:  # the kernel holds some
                    await asyncio.sleep(0.01)
        async with asyncio.timeout(60):
            while any(connection.busy for connection in server.connections):
                await asyncio.sleep(0.01)
        held_bytes = server.broker.unsent_bytes
        assert UNSENT_ANSWERS_BYTES_MAX - ANSWER_BYTES < held_bytes < UNSENT_ANSWERS_BYTES_MAX + MIB
        answer = await honest.fetch("t", 100, max_bytes=2**31 - 1, partition_max_bytes=2**31 - 1)
        assert answer.error_code == 0
        assert isinstance(answer.records, memoryview)
        assert 0 < len(answer.records) < ANSWER_BYTES / 4, "something, so that it gets on"
    assert server.broker.unsent_bytes == 0


CONTEXT = RequestContext(12, "test", "10.0.0.1", HANDLERS)
UNKNOWN = [FetchPartition(index) for index in range(1, 10 * ITEMS_PER_TURN)]
FETCHES, ROOM_BYTES, LOG_BATCHES = 12, 3 * MIB, 8


async def answered(broker: Broker, request: FetchRequest) -> int:
    """Bytes of records of the answer, which count as unsent in the step that ends the handling, as at a connection."""
    response = await HANDLERS[ApiKey.FETCH].handle(broker, request, CONTEXT)
    assert isinstance(response, FetchResponse)
    (topic,) = response.responses
    asked = [each.partition for each in request.topics[0].partitions]
    assert [data.partition_index for data in topic.partitions] == asked
    read = [data.records for data in topic.partitions if isinstance(data.records, list)]
    size_bytes = sum(len(buffer) for records in read for buffer in records)
    broker.unsent_bytes += size_bytes
    return size_bytes


async def test_answers_that_are_read_in_turns_share_the_budget_from_the_first_turn_on(tmp_path: Path) -> None:
    """Each took what was free when it began, and none had been written by then: 40 fetches held 824 MiB."""
    everything = FetchPartition(0, partition_max_bytes=2**31 - 1)
    partitions = [UNKNOWN[0], everything, *UNKNOWN[1:]]
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=2**31 - 1, topics=[FetchTopic("t", partitions=partitions)]
    )
    async with running_server(tmp_path) as server, connect(server.address) as client:
        broker = server.broker
        await client.create_topic("t")
        for _ in range(LOG_BATCHES):
            await client.produce("t", batch_of("x" * BATCH_BYTES))
        taken_bytes = broker.unsent_bytes = UNSENT_ANSWERS_BYTES_MAX - ROOM_BYTES
        sizes = await asyncio.gather(*(answered(broker, request) for _ in range(FETCHES)))
        assert broker.unsent_bytes == taken_bytes + sum(sizes)
        broker.unsent_bytes = 0
    assert all(sizes), "each gets on"
    assert sum(sizes) <= ROOM_BYTES + FETCHES * (BATCH_BYTES + KIB)


async def test_what_a_fetch_holds_while_it_waits_for_more_counts_as_unsent(tmp_path: Path) -> None:
    request = fetch_request("t", 0, max_bytes=2**31 - 1, partition_max_bytes=2**31 - 1)
    request.min_bytes, request.max_wait_ms = 2**31 - 1, 2**31 - 1
    async with running_server(tmp_path) as server, connect(server.address) as client:
        broker = server.broker
        await client.create_topic("t")
        await client.produce("t", batch_of("x" * BATCH_BYTES))
        waiting = asyncio.ensure_future(answered(broker, request))
        await asyncio.sleep(0)
        assert broker.unsent_bytes > BATCH_BYTES
        waiting.cancel()
        await asyncio.wait([waiting])
        assert broker.unsent_bytes == 0
