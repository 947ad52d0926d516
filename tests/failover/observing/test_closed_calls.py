"""A source whose addresses take connections and close them: a proxy with nobody behind it, or a broker that lives."""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from broker.client.security.settings import Mechanism, Sasl, Secret, Security
from broker.client.site import Site
from broker.wire.frames import RequestHeader
from broker.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from broker.wire.schema import Message
from failover.observing import contact
from failover.observing.contact import Patience, call_brokers, reach
from tests.broker.client.peer import peer
from tests.broker.running import running_broker
from tests.failover.observing.test_contact import Far, now_ms, served

SILENT_MS = 900


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contact, "REFUSED_MS", 400)
    monkeypatch.setattr(contact, "SOURCE_SILENT_MS", SILENT_MS)


@dataclass
class Shut(Far):
    """Closes each connection, until it `is_open`."""

    is_open: bool = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_open:
            await super().serve(reader, writer)
        else:
            writer.close()


async def test_who_closes_is_planned_for_early_and_waited_for_no_less_than_who_is_silent() -> None:
    """A broker that has as many connections from this machine as it may closes them: three seconds of that passed for
    its death.
    """
    async with served(Shut("127.0.0.1:1")) as address, AsyncExitStack() as stack:
        source, (answer,), calls = await reach(stack, Site("east", address), now_ms, patience=Patience(math.inf, 300))
        assert (source, answer.refused, answer.taken, answer.may_live) == (None, False, True, False)
        assert 300 <= round(answer.seconds * 1000) < SILENT_MS
        assert await calls.heard_since() == ()
        assert round(calls.so_far[0].seconds * 1000) >= SILENT_MS


async def test_who_begins_to_serve_where_connections_were_closed_is_heard(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "east") as east, AsyncExitStack() as stack:
        way = Shut(east)
        address = await stack.enter_async_context(served(way))
        _, (answer,), calls = await reach(stack, Site("east", address), now_ms, patience=Patience(math.inf, 300))
        assert (answer.taken, answer.may_live) == (True, False)
        way.is_open = True
        assert [one.address for one in await calls.heard_since()] == [address]


async def test_one_connection_that_is_reset_late_is_no_refusal() -> None:
    """It was waited for as if each had been refused since the first."""

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asyncio.get_running_loop().call_later(0.5, writer.transport.abort)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, AsyncExitStack() as stack:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        _, _, calls = await reach(stack, Site("east", address), now_ms, patience=Patience(math.inf, 300))
        await calls.heard_since()
        assert round(calls.so_far[0].seconds * 1000) >= SILENT_MS


async def test_who_breaks_off_amid_a_login_lives_until_its_host_refuses(tmp_path: Path) -> None:
    """Kafka closes without a word where a ticket is not valid yet: a healthy source passed for dead."""
    (tmp_path / "secret").write_text("secret")
    sasl = Sasl(Mechanism.PLAIN, "farshore", Secret(file=tmp_path / "secret"))

    async def breaks_off(_header: RequestHeader, message: Message) -> Message | None:
        return SaslHandshakeResponse(0, ["PLAIN"]) if isinstance(message, SaslHandshakeRequest) else None

    async with peer(breaks_off) as address:
        site = Site("east", str(address), security=Security(sasl=sasl))
        (answer,) = await call_brokers(site.bootstrap(), now_ms)
    assert (answer.answered, answer.may_live, answer.taken) == (False, True, True)


async def test_who_closed_once_and_whose_host_refuses_since_took_nothing(unused_tcp_port: int) -> None:
    """A broker that dies as it is called was told of as a proxy that takes connections still."""

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        server.close()

    server = await asyncio.start_server(serve, "127.0.0.1", unused_tcp_port)
    async with AsyncExitStack() as stack:
        site = Site("east", f"127.0.0.1:{unused_tcp_port}")
        _, _, calls = await reach(stack, site, now_ms, patience=Patience(math.inf, 300))
        assert await calls.heard_since() == ()
        assert [(one.taken, one.may_live) for one in calls.so_far] == [(False, False)]


async def test_a_host_that_refused_and_then_lets_somebody_listen_is_not_known_to_refuse(unused_tcp_port: int) -> None:
    """Nothing was said since, and that it was dead from the first call on stood in the statement of loss."""
    async with AsyncExitStack() as stack:
        site = Site("east", f"127.0.0.1:{unused_tcp_port}")
        _, (answer,), calls = await reach(stack, site, now_ms, patience=Patience(math.inf, 300))
        assert answer.refused
        with socket.create_server(("127.0.0.1", unused_tcp_port)):
            await asyncio.wait_for(_until(lambda: not calls.so_far[0].refused), 10)


async def _until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.05)
