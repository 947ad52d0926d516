"""The listening side of a broker: accepts connections, watches over them, stops them in order."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from heapq import nsmallest
from math import inf
from typing import Any, Final

from broker import descriptors
from broker.access.failed_logins import FailedLogins
from broker.access.listeners import Entrance, SecurityProtocol
from broker.access.logins import Logins
from broker.access.principals import PrincipalRules
from broker.base.address import Address
from broker.base.server_tls import HandshakeLimits, ServerContext
from broker.broker import Broker
from broker.client.security.settings import Mechanism
from broker.cluster.metadata import INTER_BROKER_LISTENER
from broker.config import BrokerConfig
from broker.connection import Connection
from broker.data_dir import DataDirectory
from broker.errors import BrokerError
from broker.limits import (
    CLIENTS_REFUSED_WARN_MS,
    CONNECTION_CHECK_MS,
    CONNECTIONS_WAITING_MAX,
    STRANGERS_MAX,
    TLS_HANDSHAKE_MS,
    TLS_HANDSHAKES_MAX,
)
from broker.login_connection import LoginConnection
from broker.memory import RequestMemory
from broker.outside import Outside
from broker.quotas.settings import QuotaKey
from broker.strangers import Strangers
from broker.topics.broker_configs import MAX_CONNECTIONS, MAX_CONNECTIONS_PER_IP
from broker.wire.errors import ErrorCode

log = logging.getLogger(__name__)


HANDSHAKES: Final = HandshakeLimits(TLS_HANDSHAKES_MAX, TLS_HANDSHAKE_MS, CLIENTS_REFUSED_WARN_MS)
NO_MORE_FILES: Final = "nearly all files that the broker may have are open (ulimit -Hn)"


class CannotListen(BrokerError):
    error_code = ErrorCode.BROKER_NOT_AVAILABLE
    hint = "stop what uses the port, or give another address: --listen HOST:PORT"


class Server:
    """What the connections share. Made by `serving`."""

    def __init__(self, broker: Broker, tasks: asyncio.TaskGroup, failed_logins: FailedLogins) -> None:
        self.broker = broker
        self.memory = RequestMemory(broker.config.queued_max_request_bytes)
        self.connections: dict[Connection, asyncio.Task[None] | None] = {}
        """Those that are served; None: refused, and not gone yet."""
        self._waiting: dict[Connection, None] = {}
        self.strangers = Strangers()
        self._of_host: Counter[str] = Counter()
        self.failed_logins = failed_logins
        self.refused: dict[str, int] = {}
        """Connections that were not served, by why."""
        self._tasks = tasks
        self._stopping = False
        self._warned_at = -inf
        self._take_limits()
        broker.broker_configs.listeners.append(self._take_limits)

    @property
    def address(self) -> str:
        """The advertised "host:port"."""
        return str(self.broker.advertised)

    def _take_limits(self) -> None:
        """Kafka's max.connections (KIP-402) and max.connections.per.ip, which are set also while the broker runs."""
        configs, config = self.broker.broker_configs, self.broker.config
        self._most = int(configs.value(MAX_CONNECTIONS) or config.max_connections)
        self._most_of_host = int(configs.value(MAX_CONNECTIONS_PER_IP) or config.max_connections_per_ip)
        self._close_excess()
        self._serve_waiting()

    def opened(self, connection: Connection) -> None:
        self._of_host[connection.host] += 1
        if self._stopping:
            # Accepted before the listeners were closed, and told of after it: nobody would ever end it.
            self._refuse(connection, "stopping", "the broker stops")
        elif connection.inter_broker:
            # Clients that take every connection, or file, must not cut the brokers off from each other.
            self._serve(connection)
            self._close_excess()
            if descriptors.nearly_all_used(connection.fd):
                self._close_quietest(1, NO_MORE_FILES)
        elif descriptors.nearly_all_used(connection.fd):
            self._warn(f"clients are refused: {NO_MORE_FILES}")
            self._refuse(connection, "files", NO_MORE_FILES)
        elif self._of_host[connection.host] > self._most_of_host:
            reason = f"{self._most_of_host} connections come from there ({MAX_CONNECTIONS_PER_IP})"
            self._refuse(connection, MAX_CONNECTIONS_PER_IP, reason)
        elif rest_ms := self.broker.quotas.rest_of_address_ms(connection.host):
            # Later than it is known: who connects again at once waits first.
            connection.hold()
            self.connections[connection] = None
            why = f"more connections come from there than {QuotaKey.CONNECTION_CREATION_RATE} lets"
            asyncio.get_running_loop().call_later(rest_ms / 1000, connection.abort, why)
        elif len(self.connections) < self._most:
            self._serve(connection)
        elif len(self._waiting) < CONNECTIONS_WAITING_MAX:
            self._warn(f"clients wait until others go: there are {self._most} connections ({MAX_CONNECTIONS})")
            connection.hold()
            self._waiting[connection] = None
        else:
            self._refuse(
                connection, MAX_CONNECTIONS, f"there are {self._most} connections ({MAX_CONNECTIONS}), and others wait"
            )

    def _add_stranger(self, connection: Connection) -> None:
        """Where there are too many another one goes, so that who comes to log in can."""
        leaving = self.strangers.add(connection)
        if isinstance(leaving, Connection):
            self._warn(f"clients are closed: {STRANGERS_MAX} connections have not logged in yet")
            self._count_refused("unauthenticated")
            leaving.abort(f"{STRANGERS_MAX} connections have not logged in yet, and this one waits for longest")

    def _count_refused(self, limit: str) -> None:
        self.refused[limit] = self.refused.get(limit, 0) + 1

    def _warn(self, what: str) -> None:
        """Not for each: who is refused comes again and again."""
        now = self.broker.clock.monotonic()
        if (now - self._warned_at) * 1000 >= CLIENTS_REFUSED_WARN_MS:
            self._warned_at = now
            log.warning("%s", what)

    def _serve(self, connection: Connection) -> None:
        if connection.is_stranger:
            self._add_stranger(connection)
        self.connections[connection] = self._tasks.create_task(connection.serve())

    def _serve_waiting(self) -> None:
        while self._waiting and len(self.connections) < self._most and not self._stopping:
            connection = next(iter(self._waiting))
            del self._waiting[connection]
            self._serve(connection)

    def _close_excess(self) -> None:
        if len(self.connections) > self._most:
            standing = sum(not connection.closed for connection in self.connections)
            self._close_quietest(standing - self._most, f"there are more than {self._most} ({MAX_CONNECTIONS})")

    def _close_quietest(self, count: int, why: str) -> None:
        clients = [each for each in self.connections if not (each.inter_broker or each.closed)]
        for one in nsmallest(count, clients, key=lambda one: one.active_at):
            one.abort(f"{why}, and this one was quiet for longest")

    def _refuse(self, connection: Connection, limit: str, reason: str) -> None:
        """`limit`: what it is counted as."""
        self._count_refused(limit)
        self.connections[connection] = None
        connection.abort(reason)

    def lost(self, connection: Connection, held_bytes: int) -> None:
        """What its last request waits for (records, a rebalance) nobody is waiting for any more."""
        connection.memory.abandon(connection, held_bytes)
        self._of_host[connection.host] -= 1
        if not self._of_host[connection.host]:
            del self._of_host[connection.host]
        self._waiting.pop(connection, None)
        self.strangers.discard(connection)
        task = self.connections.pop(connection, None)
        if task is not None and connection.busy:
            # Any other ends by itself, and by no error, whose trace would keep all of it in a circle.
            task.cancel()
        self._serve_waiting()

    async def watch_connections(self) -> None:
        """Close connections that are idle or stand still; ends only by being cancelled."""
        while True:
            await asyncio.sleep(CONNECTION_CHECK_MS / 1000)
            now = self.broker.clock.monotonic()
            for connection in [*self.connections, *self._waiting]:
                connection.check(now)

    def abort_connections(self) -> None:
        """Those that stand, and those that come."""
        self._stopping = True
        for connection in [*self.connections, *self._waiting]:
            connection.abort("the broker stops")


@asynccontextmanager
async def serving(config: BrokerConfig, outside: Outside | None = None) -> AsyncIterator[Server]:
    """A broker that serves for as long as the context is open; leaving it stops in order and closes the logs.

    Raises DataDirectoryError, AccessInvalid, CannotListen, and what `Broker.open`, `bound` and `ready` raise.
    """
    outside = outside or Outside()
    with ExitStack() as unstarted:
        data = DataDirectory.open(config.data_dir, outside.disk)
        unstarted.callback(data.close)
        listeners = _Listeners()
        unstarted.callback(listeners.close)
        # Before all that a start waits for: a port that another program has is known now.
        users = config.users()
        failed = FailedLogins()
        logins = config.logins(users, outside.clock, failed)
        clients, brokers = await listeners.bind_all(config, logins, failed)
        broker = await Broker.open(config, outside, data, users)
        unstarted.pop_all()
    try:
        async with asyncio.TaskGroup() as tasks:
            server = listeners.server = Server(broker, tasks, failed)
            background = [tasks.create_task(broker.run()), tasks.create_task(server.watch_connections())]
            try:
                await broker.bound(clients, brokers)
                # The controller may be another broker, and says there what this one has.
                await listeners.serve_brokers()
                await broker.ready()
                await listeners.serve_clients()
                _tell_who_is_let_in(config)
                yield server
                await broker.leave()
            finally:
                listeners.close()
                server.abort_connections()
                for task in background:
                    task.cancel()
                await listeners.wait_closed()
    except BaseExceptionGroup as group:
        # Task groups wrap also what was raised in our own body; a single error goes on as itself.
        raise _alone(group) from None
    finally:
        await broker.close()


def _alone(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _tell_who_is_let_in(config: BrokerConfig) -> None:
    for listener in config.client_listeners():
        if not listener.is_open_to_others:
            continue
        if listener.protocol is SecurityProtocol.PLAINTEXT and not config.authorizer_enable:
            log.warning(
                "%s asks for neither TLS nor a login: whoever reaches it may read, write and delete everything",
                listener,
            )
        elif listener.protocol is SecurityProtocol.SASL_PLAINTEXT:
            for mechanism, what in ((Mechanism.PLAIN, "passwords"), (Mechanism.OAUTHBEARER, "tokens")):
                if mechanism in config.sasl_enabled_mechanisms:
                    said = "%s lets clients log in by %s without TLS: their %s pass unencrypted"
                    log.warning(said, listener, mechanism, what)


_Bound = tuple[asyncio.Server, Address]


class _Listeners:
    """What is bound lets nobody in before it is served: what clients ask for may not be open yet."""

    def __init__(self) -> None:
        self.server: Server | None = None
        """There before anything is served."""
        self._clients: list[_Bound] = []
        self._brokers: list[_Bound] = []

    async def bind_all(
        self, config: BrokerConfig, logins: Logins | None, failed: FailedLogins
    ) -> tuple[list[Address], Address | None]:
        """-> where it listens for clients, and for other brokers, if there may be any. Raises CannotListen,
        AccessInvalid.
        """
        tls = config.server_tls()
        context = None if tls is None else ServerContext.of(tls, time.monotonic, HANDSHAKES, failed.note_tls)
        rules = PrincipalRules(config.ssl_principal_mapping_rules)
        clients = []
        for each in config.client_listeners():
            entrance = Entrance(
                each.name,
                certificates=rules if each.protocol.has_tls else None,
                logins=logins if each.protocol.has_login else None,
            )
            locked = context if each.protocol.has_tls else None
            clients.append(await self._bind(self._clients, each.address, entrance, locked))
        if config.zookeeper is None:
            return clients, None
        between = config.inter_broker_tls()
        entrance = Entrance(INTER_BROKER_LISTENER, inter_broker=True, certificates=None if between is None else rules)
        locked = None if between is None else ServerContext.of(between, time.monotonic, HANDSHAKES, failed.note_tls)
        return clients, await self._bind(self._brokers, config.inter_broker_address, entrance, locked)

    async def _bind(
        self, group: list[_Bound], wanted: Address, entrance: Entrance, tls: ServerContext | None = None
    ) -> Address:
        """-> where it listens. Raises CannotListen."""

        def connection() -> Connection:
            assert self.server is not None
            if entrance.logins is not None:
                return LoginConnection(self.server, entrance, entrance.logins.begin(), self.server.strangers.memory)
            return Connection(self.server, entrance)

        loop = asyncio.get_running_loop()
        safely: dict[str, Any] = {} if tls is None else {"ssl": tls, "ssl_handshake_timeout": TLS_HANDSHAKE_MS / 1000}
        try:
            bound = await loop.create_server(connection, *wanted, start_serving=False, **safely)
        except OSError as error:
            raise _cannot_listen(wanted, error) from error
        group.append((bound, wanted))
        return Address(wanted.host, bound.sockets[0].getsockname()[1])

    async def serve_clients(self) -> None:
        """Raises CannotListen."""
        for listener in self._clients:
            await _serve(*listener)

    async def serve_brokers(self) -> None:
        """Raises CannotListen."""
        for listener in self._brokers:
            await _serve(*listener)

    def close(self) -> None:
        for listener, _ in (*self._clients, *self._brokers):
            listener.close()

    async def wait_closed(self) -> None:
        for listener, _ in (*self._clients, *self._brokers):
            await listener.wait_closed()


async def _serve(listener: asyncio.Server, address: Address) -> None:
    try:
        await listener.start_serving()
    except OSError as error:
        raise _cannot_listen(address, error) from error


def _cannot_listen(address: Address, error: OSError) -> CannotListen:
    return CannotListen(f"cannot listen on {address}: {error.strerror or error}")
