"""Clients that never log in, a few hundred of each kind: one that has logged in goes on, and another one still can.

`make strangers` has ten thousand of them, and measures.
"""

from __future__ import annotations

import asyncio
import struct
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median

import pytest

from broker.limits import LOGIN_MS, LOGIN_REQUEST_BYTES_MAX, STRANGERS_BYTES_MAX
from tests.broker.running_cluster import until
from tests.broker.server.test_logins import Ahead, guarded, log_in, works
from tests.broker.wire_client import WireClient, batch_of, connect

STRANGERS_MAX = 60
COUNT = 240
KINDS = (
    b"",
    struct.pack(">ih", 100, 17),
    struct.pack(">ihhih", LOGIN_REQUEST_BYTES_MAX, 36, 2, 1, -1) + b"x" * 9000,
)
"""Who says nothing, who stops in the middle of a small request, and in the middle of a large one."""
ROUND_TRIPS = 50
SLOW_MS = 250.0
"""So late an answer may come where all else on this machine is slow, too."""


async def half_ms(user: WireClient) -> float:
    """Half of the answers came within it: the slowest one says how busy this machine is."""
    loop, took_s = asyncio.get_running_loop(), []
    for _ in range(ROUND_TRIPS):
        began_s = loop.time()
        assert (await user.produce("t", batch_of("x" * 20_000))).error_code == 0
        took_s.append(loop.time() - began_s)
    return median(took_s) * 1000


async def test_who_has_logged_in_goes_on_and_who_comes_to_log_in_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.server.STRANGERS_MAX", STRANGERS_MAX)
    clock = Ahead()
    async with guarded(tmp_path, clock) as server, connect(server.address) as user, AsyncExitStack() as strangers:
        assert (await log_in(user)).error_code == 0
        await user.create_topic("t")
        alone_ms = await half_ms(user)
        for number in range(COUNT):
            stranger = await strangers.enter_async_context(connect(server.address))
            await stranger.send_bytes(KINDS[number % len(KINDS)])
        among_ms = await half_ms(user)
        assert among_ms <= max(2 * alone_ms, SLOW_MS)
        await until(lambda: sum(not one.closed for one in server.connections) == STRANGERS_MAX + 1)
        assert server.refused == {"unauthenticated": COUNT - STRANGERS_MAX}
        assert server.strangers_memory.used_bytes <= STRANGERS_BYTES_MAX + LOGIN_REQUEST_BYTES_MAX
        assert server.memory.used_bytes == 0
        async with connect(server.address) as another:
            assert (await log_in(another)).error_code == 0
            assert await works(another)
        clock.ahead_s = LOGIN_MS / 1000 + 1
        await until(lambda: len(server.connections) == 1)
        assert await works(user)
        assert server.strangers_memory.used_bytes == 0
