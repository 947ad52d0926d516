"""A listening socket that lets in few at a time, and an arrival: who was let in, until a protocol has the connection.

asyncio's own servers take in one turn all who wait, so that others wait for as long as that takes; and they shake hands
of TLS before anybody is told of the connection, so that nobody can end one that says nothing.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Protocol, Self, TypeAlias

from broker.base.address import Address
from broker.base.server_tls import COMING

log = logging.getLogger(__name__)

AT_ONCE_MAX: Final = 4
"""Let in before others have their turn."""
QUEUED_MAX: Final = 1024
"""Connections that the kernel keeps until they are let in; who finds no place tries again after a second."""
REST_S: Final = 1.0
"""So long nobody is let in where the system has no more files or memory for it."""
_HUNG_UP: Final = (BlockingIOError, InterruptedError, ConnectionAbortedError)

_NOT_HERE: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)

Place: TypeAlias = tuple[int, int, int, Any]
"""What `socket.socket` takes, and the address to bind."""
Came = Callable[[socket.socket, str], None]
"""Told of each who is let in: a socket that does not block, and is theirs from now on, and the peer's host."""


class Bound(Protocol):
    """What lets nobody in until it is opened."""

    @property
    def port(self) -> int: ...

    def open(self) -> None:
        """Raises OSError, where another program listens there."""

    def close(self) -> None:
        """May be called again."""


Bind = Callable[[Address, Came], Awaitable[Bound]]
"""Raises OSError."""


class Door:
    """On all addresses of a host. Bound, it lets nobody in; `open` does."""

    def __init__(self, sockets: list[socket.socket], came: Came) -> None:
        self._sockets, self._came = sockets, came
        self._loop = asyncio.get_running_loop()
        self._closed = False

    @classmethod
    async def bound(cls, wanted: Address, came: Came) -> Self:
        """Raises OSError."""
        found = await asyncio.get_running_loop().getaddrinfo(*wanted, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return cls(bound_sockets((family, kind, protocol, at) for family, kind, protocol, _, at in found), came)

    @classmethod
    async def opened(cls, wanted: Address, came: Came) -> Self:
        """Raises OSError."""
        door = await cls.bound(wanted, came)
        try:
            door.open()
        except OSError:
            door.close()
            raise
        return door

    @property
    def port(self) -> int:
        return int(self._sockets[0].getsockname()[1])

    def open(self) -> None:
        """Raises OSError, where another program listens there."""
        for each in self._sockets:
            each.listen(QUEUED_MAX)
            self._loop.add_reader(each, self._let_in, each)

    def close(self) -> None:
        """May be called again."""
        self._closed = True
        for each in self._sockets:
            if each.fileno() >= 0:
                self._loop.remove_reader(each)
                each.close()

    def _let_in(self, listener: socket.socket) -> None:
        for _ in range(AT_ONCE_MAX):
            try:
                came, peer = listener.accept()
            except _HUNG_UP:
                return
            except OSError as error:
                log.warning("nobody is let in for %g s: %s", REST_S, error.strerror or error)
                self._loop.remove_reader(listener)
                self._loop.call_later(REST_S, self._go_on, listener)
                return
            came.setblocking(False)
            self._came(came, peer[0])

    def _go_on(self, listener: socket.socket) -> None:
        if not self._closed:
            self._loop.add_reader(listener, self._let_in, listener)


def bound_sockets(places: Iterable[Place]) -> list[socket.socket]:
    """At each of these that this machine has: a name like localhost may stand for an address of IPv6 where there is
    none. Raises OSError.
    """
    sockets: list[socket.socket] = []
    lacking: OSError | None = None
    try:
        for family, kind, protocol, where in dict.fromkeys(places):
            try:
                sockets.append(_bound(socket.socket(family, kind, protocol), where))
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                lacking = error
                log.warning("nobody is let in at %s: %s", where, error.strerror)
        if lacking is not None and not sockets:
            raise lacking
    except OSError:
        for each in sockets:
            each.close()
        raise
    return sockets


def _bound(new: socket.socket, where: Any) -> socket.socket:
    try:
        new.setblocking(False)
        new.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if new.family == socket.AF_INET6:
            # The IPv4 addresses of the same port are another socket's.
            new.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        new.bind(where)
    except OSError:
        new.close()
        raise
    return new


class Arrival:
    """One who was let in, until he is ended or it is known who he is."""

    def __init__(self, came: socket.socket, host: str) -> None:
        self.host, self.closed, self.is_stranger = host, False, True
        self._socket = came
        self._task: asyncio.Task[Any] | None = None

    async def enter(
        self, protocol: asyncio.BaseProtocol, tls: ssl.SSLContext | None, handshake_ms: int
    ) -> asyncio.Transport | None:
        """-> the transport that the protocol has by now; None: hands were not shaken, as the context knows. `abort`
        cancels the task that is in here, also later.
        """
        if self.closed:
            return None
        safely: dict[str, Any] = {} if tls is None else {"ssl": tls, "ssl_handshake_timeout": handshake_ms / 1000}
        self._task = asyncio.current_task()
        COMING.set(self._socket)
        loop = asyncio.get_running_loop()
        try:
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, self._socket, **safely)
        except OSError:
            return None
        return transport

    def abort(self, reason: str) -> None:
        """May be called again."""
        if self.closed:
            return
        log.info("closing the connection of %s: %s", self.host, reason)
        self.closed = True
        if self._task is None:
            self._socket.close()
        else:
            self._task.cancel()
