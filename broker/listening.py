"""Where a broker listens, and what each who comes there meets first."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from broker.access.failed_logins import FailedLogins
from broker.access.listeners import Entrance
from broker.access.logins import Logins
from broker.access.principals import PrincipalRules
from broker.base.address import Address
from broker.base.door import Bind, Bound
from broker.base.server_tls import ServerContext
from broker.cluster.metadata import INTER_BROKER_LISTENER
from broker.config import BrokerConfig
from broker.errors import BrokerError
from broker.wire.errors import ErrorCode


class CannotListen(BrokerError):
    error_code = ErrorCode.BROKER_NOT_AVAILABLE
    hint = "stop what uses the port, or give another address: --listen HOST:PORT"


@dataclass(frozen=True, slots=True)
class Way:
    """In by one listener. `tls` None: hands are not shaken."""

    entrance: Entrance
    tls: ServerContext | None = None


Came = Callable[[socket.socket, str, Way], None]


class Listeners:
    """What is bound lets nobody in before it is served: what clients ask for may not be open yet."""

    def __init__(self, bind: Bind) -> None:
        self._bind = bind
        self.came: Came | None = None
        """There before anything is served."""
        self._clients: list[tuple[Bound, Address]] = []
        self._brokers: list[tuple[Bound, Address]] = []

    async def bind_all(
        self, config: BrokerConfig, logins: Logins | None, failed: FailedLogins
    ) -> tuple[list[Address], Address | None]:
        """-> where it listens for clients, and for other brokers, if there may be any. Raises CannotListen,
        AccessInvalid.
        """
        tls = config.server_tls()
        context = None if tls is None else ServerContext.of(tls, time.monotonic, failed.note_tls)
        rules = PrincipalRules(config.ssl_principal_mapping_rules)
        clients = []
        for each in config.client_listeners():
            entrance = Entrance(
                each.name,
                certificates=rules if each.protocol.has_tls else None,
                logins=logins if each.protocol.has_login else None,
            )
            way = Way(entrance, context if each.protocol.has_tls else None)
            clients.append(await self._add(self._clients, each.address, way))
        if config.zookeeper is None:
            return clients, None
        between = config.inter_broker_tls()
        entrance = Entrance(INTER_BROKER_LISTENER, inter_broker=True, certificates=None if between is None else rules)
        way = Way(entrance, None if between is None else ServerContext.of(between, time.monotonic, failed.note_tls))
        return clients, await self._add(self._brokers, config.inter_broker_address, way)

    async def _add(self, group: list[tuple[Bound, Address]], wanted: Address, way: Way) -> Address:
        """-> where it listens. Raises CannotListen."""
        try:
            door = await self._bind(wanted, partial(self._told, way))
        except OSError as error:
            raise _cannot_listen(wanted, error) from error
        group.append((door, wanted))
        return Address(wanted.host, door.port)

    def _told(self, way: Way, came: socket.socket, host: str) -> None:
        assert self.came is not None
        self.came(came, host, way)

    def serve_clients(self) -> None:
        """Raises CannotListen."""
        _open(self._clients)

    def serve_brokers(self) -> None:
        """Raises CannotListen."""
        _open(self._brokers)

    def close(self) -> None:
        for door, _ in (*self._clients, *self._brokers):
            door.close()


def _open(group: list[tuple[Bound, Address]]) -> None:
    for door, wanted in group:
        try:
            door.open()
        except OSError as error:
            raise _cannot_listen(wanted, error) from error


def _cannot_listen(address: Address, error: OSError) -> CannotListen:
    return CannotListen(f"cannot listen on {address}: {error.strerror or error}")
