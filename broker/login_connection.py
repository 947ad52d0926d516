"""A connection at a listener that asks for a login. Until there is one, little may be asked, sent or waited for."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from typing import Final

from broker.access.failed_logins import LoginFailure
from broker.access.listeners import Entrance
from broker.access.logins import Login
from broker.access.scram import LoginRefused
from broker.connection import HEADER_BYTES_MIN, Connection, ConnectionServer
from broker.handlers.handler import Handler
from broker.handlers.table import LOGIN_HANDLERS
from broker.limits import (
    CLOSE_MS,
    CONNECTION_REQUESTS_QUEUED_MAX,
    FRAME_FIRST_BYTES,
    LOGIN_MS,
    LOGIN_REQUEST_BYTES_MAX,
    RECEIVE_HEAD_BYTES,
)
from broker.memory import RequestMemory
from broker.wire.buffers import Buffer

_API_KEY: Final = struct.Struct(">h")
_SIZE: Final = struct.Struct(">i")


class LoginConnection(Connection):
    """The plain one knows nothing of this, and costs nothing for it."""

    _login: Login

    def __init__(
        self, server: ConnectionServer, entrance: Entrance, host: str, login: Login, strangers_memory: RequestMemory
    ) -> None:
        super().__init__(server, entrance, host)
        self._login, self.memory = login, strangers_memory
        # One request at a time is held, and the next is not read before it is answered. A bare token may be empty.
        self._queued_max, self._frame_first_bytes = 1, RECEIVE_HEAD_BYTES
        self._head.bound(0, min(LOGIN_REQUEST_BYTES_MAX, self._broker.config.socket_request_max_bytes))
        self._since = self.active_at

    @property
    def is_stranger(self) -> bool:
        return self._login.principal is None

    def _served(self) -> Mapping[int, Handler]:
        return LOGIN_HANDLERS

    async def _answer(self, frame: bytearray, tasks: asyncio.TaskGroup) -> list[Buffer]:
        login, was_stranger = self._login, self.is_stranger
        if login.is_bare:
            response = await self._bare(bytes(frame))
        else:
            if len(frame) < _API_KEY.size:
                login.failed(LoginFailure.MALFORMED)
                raise LoginRefused("what is no request")
            login.check(_API_KEY.unpack_from(frame)[0])
            response = await super()._answer(frame, tasks)
        if was_stranger and login.principal is not None:
            self.identified(login.principal)
            self._move_memory()
            self._queued_max, self._frame_first_bytes = CONNECTION_REQUESTS_QUEUED_MAX, FRAME_FIRST_BYTES
            self._head.bound(HEADER_BYTES_MIN, self._broker.config.socket_request_max_bytes)
        return response

    def _move_memory(self) -> None:
        """What it holds, and waits for, is a user's from now on."""
        self.memory.abandon(self, self._held_bytes)
        self.memory = self._server.memory
        self.memory.charge(self._held_bytes)
        if self._awaited_bytes:
            self._awaited_bytes = 0
            self._ask_growth()

    async def _bare(self, token: bytes) -> list[Buffer]:
        """A refusal has no form here but the end of the connection."""
        answer = await self._login.present(token)
        if answer.error:
            raise LoginRefused(answer.text or answer.error.description)
        return [_SIZE.pack(len(answer.token)) + answer.token]

    def _write(self, response: list[Buffer]) -> None:
        super()._write(response)
        if self._login.is_refused and not self._closed and self._transport is not None:
            self._closed = True
            self._arrived.set()
            self._transport.close()
            # Who does not take the answer does not keep the connection.
            asyncio.get_running_loop().call_later(CLOSE_MS / 1000, self._transport.abort)

    def check(self, now: float) -> None:
        if self._held:
            self._since = now
        if self.is_stranger and (now - self._since) * 1000 > LOGIN_MS:
            if not self._closed:
                self._login.failed(LoginFailure.TIMEOUT)
            self.abort("no login came in time")
        else:
            super().check(now)
