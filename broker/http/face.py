"""Metrics over HTTP: one page to each who comes, and who he is is asked before all else.

It is served in the event loop, and made in a thread. What one costs who shows nothing is bounded by `limits.py`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Any, NamedTuple

from broker.base.clock import SystemClock
from broker.base.server_tls import ServerContext
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
    safely: dict[str, Any] = {}
    if settings.tls is not None:
        context = ServerContext.of(settings.tls, time.monotonic, limits.HANDSHAKES)
        safely = {"ssl": context, "ssl_handshake_timeout": limits.REQUEST_MS / 1000}
    token = None
    if settings.token is not None:
        token = Token(settings.token, SystemClock())
        await token.begin()
    face = _Face(render, token)
    try:
        server = await asyncio.start_server(face.serve, *settings.listen, limit=limits.HEAD_BYTES_MAX, **safely)
    except OSError as error:
        raise ListenFailed(
            f"cannot listen on {settings.listen}: {error.strerror or error}",
            "another process has the port, or the address is not this machine's: choose one with --listen HOST:PORT, "
            "or as listen in farshore.toml",
        ) from error
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"{settings.scheme}://{settings.listen._replace(port=port)}{METRICS_PATH}"
    finally:
        server.close()
        await face.close()
        await server.wait_closed()


class _Face:
    def __init__(self, render: Render, token: Token | None) -> None:
        self._render, self._token = render, token
        self._serving: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._serving) >= limits.CONNECTIONS_MAX:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            answer = await self._answer(reader)
            async with asyncio.timeout(limits.ANSWER_MS / 1000):
                writer.write(answer)
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, EOFError, OSError):
            pass  # who asks no further, or does not take what he asked for, is left
        finally:
            self._serving.discard(task)
            with suppress(RuntimeError):  # uvloop's word for one that is closed
                writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        """Raises TimeoutError, EOFError, OSError."""
        try:
            async with asyncio.timeout(limits.REQUEST_MS / 1000):
                request = parse_request(await reader.readuntil(b"\r\n\r\n"))
        except asyncio.LimitOverrunError:
            return _refused(TOO_LONG)
        except NoRequest:
            return _refused(UNREADABLE)
        if self._token is not None and not is_token(request, await self._token.current()):
            await asyncio.sleep(limits.REFUSED_MS / 1000)
            return _refused(UNAUTHORIZED)
        if (refusal := refusal_of(request)) is not None:
            return _refused(refusal)
        page = await asyncio.to_thread(self._render, request.headers.get("accept", ""), request.names)
        head = answer_head(HTTPStatus.OK, page.content_type, len(page.body))
        return head if request.method == "HEAD" else head + page.body


def _refused(refusal: Refusal) -> bytes:
    body = f"{refusal.text}\n".encode()
    return answer_head(refusal.status, "text/plain; charset=utf-8", len(body), *refusal.headers) + body
