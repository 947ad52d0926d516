"""Metrics over HTTP: one page to each who comes, and who he is is asked before all else.

It is served in the event loop, and made in a thread. What one costs who shows nothing is bounded by `limits.py`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import NamedTuple

from broker.base.clock import SystemClock
from broker.base.door import Arrival, Door
from broker.base.server_tls import ServerContext
from broker.base.strangers import Strangers
from broker.base.time_limits import timeout
from broker.http import limits
from broker.http.errors import ListenFailed
from broker.http.requests import (
    METRICS_PATH,
    TOO_LONG,
    UNAUTHORIZED,
    UNREADABLE,
    NoRequest,
    Refusal,
    answer_head,
    is_token,
    parse_request,
    refusal_of,
)
from broker.http.settings import FaceSettings
from broker.http.token import Token

log = logging.getLogger(__name__)


class Page(NamedTuple):
    content_type: str
    body: bytes


Render = Callable[[str, Sequence[str]], Page]
"""What is shown to who accepts these forms (the header `Accept`) of these names, or of all. Called in a thread."""


@asynccontextmanager
async def http_face(settings: FaceSettings, render: Render) -> AsyncIterator[str]:
    """Shows it while the context is open; gives the URL. Raises FaceOpen, ListenFailed, AccessInvalid,
    SecretUnreadable.
    """
    settings.check()
    if settings.shows_token:
        log.warning("the token of the metrics at %s passes unencrypted: give a certificate_file", settings.listen)
    context = None if settings.tls is None else ServerContext.of(settings.tls, time.monotonic)
    token = None
    if settings.token is not None:
        token = Token(settings.token, SystemClock())
        await token.begin()
    face = _Face(render, token, context, has_to_show=settings.asks_who_comes)
    try:
        door = await Door.opened(settings.listen, face.came)
    except OSError as error:
        raise ListenFailed(
            f"cannot listen on {settings.listen}: {error.strerror or error}",
            "another process has the port, or the address is not this machine's: choose one with --listen HOST:PORT, "
            "or as listen in farshore.toml",
        ) from error
    try:
        yield f"{settings.scheme}://{settings.listen._replace(port=door.port)}{METRICS_PATH}"
    finally:
        door.close()
        await face.close()


class _Face:
    def __init__(self, render: Render, token: Token | None, tls: ServerContext | None, *, has_to_show: bool) -> None:
        self._render, self._token, self._tls, self._has_to_show = render, token, tls, has_to_show
        self._strangers = Strangers(limits.CONNECTIONS_MAX)
        self._known = 0
        self._visits: dict[Arrival, asyncio.Task[None]] = {}

    async def close(self) -> None:
        tasks = [*self._visits.values()]
        for visit in self._visits:
            visit.abort("it is shown no more")
        await asyncio.gather(*tasks, return_exceptions=True)

    def came(self, came: socket.socket, host: str) -> None:
        visit = Arrival(came, host)
        leaving = self._strangers.add(visit)
        if leaving is not None:
            leaving.abort(f"{limits.CONNECTIONS_MAX} others are there, and this one for longest")
        self._visits[visit] = asyncio.create_task(self._serve(visit))

    async def _serve(self, visit: Arrival) -> None:
        reader = asyncio.StreamReader(limit=limits.HEAD_BYTES_MAX)
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            transport = await visit.enter(protocol, self._tls, limits.REQUEST_MS)
            if transport is not None:
                await self._serve_one(visit, reader, _writer(transport, protocol, reader))
        except (TimeoutError, EOFError, OSError):
            pass  # who asks no further, or does not take what he asked for, is left
        finally:
            del self._visits[visit]
            self._strangers.discard(visit)
            self._known -= not visit.is_stranger

    async def _serve_one(self, visit: Arrival, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Raises TimeoutError, EOFError, OSError."""
        try:
            answer = await self._answer(visit, reader)
            async with timeout(limits.ANSWER_MS / 1000):
                writer.write(answer)
                writer.close()
                await writer.wait_closed()
        finally:
            with suppress(RuntimeError):  # uvloop's word for one that is closed
                writer.transport.abort()

    def _show(self, visit: Arrival) -> None:
        """It is known who he is, where that is asked: he goes for nobody. Raises ConnectionAbortedError, where too many
        of them do not take what they asked for.
        """
        if not self._has_to_show:
            return
        if self._known >= limits.CONNECTIONS_MAX:
            raise ConnectionAbortedError("too many ask at once")
        self._strangers.discard(visit)
        visit.is_stranger = False
        self._known += 1

    async def _answer(self, visit: Arrival, reader: asyncio.StreamReader) -> bytes:
        """Raises TimeoutError, EOFError, OSError."""
        try:
            async with timeout(limits.REQUEST_MS / 1000):
                request = parse_request(await reader.readuntil(b"\r\n\r\n"))
        except asyncio.LimitOverrunError:
            return _refused(TOO_LONG)
        except NoRequest:
            return _refused(UNREADABLE)
        if self._token is not None and not is_token(request, await self._token.current()):
            await asyncio.sleep(limits.REFUSED_MS / 1000)
            return _refused(UNAUTHORIZED)
        self._show(visit)
        if (refusal := refusal_of(request)) is not None:
            return _refused(refusal)
        page = await asyncio.to_thread(self._render, request.headers.get("accept", ""), request.names)
        head = answer_head(HTTPStatus.OK, page.content_type, len(page.body))
        return head if request.method == "HEAD" else head + page.body


def _writer(
    transport: asyncio.Transport, protocol: asyncio.StreamReaderProtocol, reader: asyncio.StreamReader
) -> asyncio.StreamWriter:
    return asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop())


def _refused(refusal: Refusal) -> bytes:
    body = f"{refusal.text}\n".encode()
    return answer_head(refusal.status, "text/plain; charset=utf-8", len(body), *refusal.headers) + body
