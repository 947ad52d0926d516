"""Clients that ask for much and read nothing share one budget; those that read are served."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from pathlib import Path

from broker.limits import KIB, MIB, UNSENT_ANSWERS_BYTES_MAX
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
