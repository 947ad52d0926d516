"""A way to another broker that is kept: one connection for requests that are carried out in the order given."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from broker.client.connection import Connection
from broker.wire.schema import Message

Open = Callable[[], Awaitable[Connection]]
"""Opens a connection. Raises ClientError."""


class Lane:
    """One connection, opened when it is needed."""

    def __init__(self, connect: Open, timeout_ms: int) -> None:
        self._connect = connect
        self._timeout_ms = timeout_ms
        self._connection: Connection | None = None
        self._opening = asyncio.Lock()
        self._closed = False

    async def ask(self, request: Message, version: int | None = None) -> Any:
        """Raises ClientError, WireError."""
        async with self._opening:
            if self._connection is None or not self._connection.is_open:
                self._connection = await self._connect()
                if self._closed:
                    self._connection.abort()
            answer = await self._connection.send(request, version, timeout_ms=self._timeout_ms)
        return await answer

    def close(self) -> None:
        self._closed = True
        if self._connection is not None:
            self._connection.abort()
