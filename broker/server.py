"""The listening side of a broker: accepts connections, watches over them, stops them in order."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from heapq import nsmallest
from math import inf
from typing import Final

from broker import descriptors
from broker.access.failed_logins import FailedLogins
from broker.access.known_users import KnownUsers
from broker.access.listeners import Entrance, Listener, SecurityProtocol
from broker.access.principals import ANONYMOUS
from broker.base.door import Arrival
from broker.base.strangers import Stranger, Strangers
from broker.broker import Broker
from broker.client.security.settings import Mechanism
from broker.cluster.metadata import INTER_BROKER_LISTENER
from broker.config import BrokerConfig
from broker.connection import Connection
from broker.connection_errors import ended_by_errors
from broker.data_dir import DataDirectory
from broker.limits import (
    CLIENTS_REFUSED_WARN_MS,
    CONNECTION_CHECK_MS,
    CONNECTIONS_WAITING_MAX,
    STRANGERS_BYTES_MAX,
    STRANGERS_MAX,
    TLS_HANDSHAKE_MS,
)
from broker.listening import Listeners, Way
from broker.login_connection import LoginConnection
from broker.memory import RequestMemory
from broker.outside import Outside
from broker.quotas.settings import QuotaKey
from broker.topics.broker_configs import MAX_CONNECTIONS, MAX_CONNECTIONS_PER_IP

log = logging.getLogger(__name__)


NO_MORE_FILES: Final = "nearly all files that the broker may have are open (ulimit -Hn)"


class Server:
    """What the connections share. Made by `serving`."""

    def __init__(self, broker: Broker, tasks: asyncio.TaskGroup, failed_logins: FailedLogins) -> None:
        self.broker = broker
        self.memory = RequestMemory(broker.config.queued_max_request_bytes)
        self.connections: dict[Connection, asyncio.Task[None] | None] = {}
        """Those that are served; None: refused, and not gone yet."""
        self._waiting: dict[Connection, None] = {}
        self.strangers_memory = RequestMemory(STRANGERS_BYTES_MAX)
        """For requests of theirs that are larger than a read: users wait for none of it, and nobody for a stranger."""
        self._strangers = Strangers(STRANGERS_MAX)
        self._broker_strangers = Strangers(STRANGERS_MAX)
        """Apart, so that clients end no handshake of a broker."""
        self._arrivals: dict[Connection, Arrival] = {}
        """Of those that are not `opened` yet."""
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

    def came(self, came: socket.socket, host: str, way: Way) -> None:
        """Who has no room is refused before anything is made of the connection."""
        entrance = way.entrance
        if not entrance.inter_broker and (refused := self._no_room(came, host)) is not None:
            limit, reason = refused
            self._warn(f"clients are refused: {reason}")
            self._count_refused(limit)
            came.close()
            return
        self._of_host[host] += 1
        arrival, connection = Arrival(came, host), self._connection(entrance, host)
        self._arrivals[connection] = arrival
        if way.tls is not None:
            self._add_stranger(arrival, self._broker_strangers if entrance.inter_broker else self._strangers)
        self._tasks.create_task(self._let_in(connection, arrival, way))

    def _no_room(self, came: socket.socket, host: str) -> tuple[str, str] | None:
        """-> what it is counted as, and why."""
        if descriptors.nearly_all_used(came.fileno()):
            return "files", NO_MORE_FILES
        if self._of_host[host] >= self._most_of_host:
            return (
                MAX_CONNECTIONS_PER_IP,
                f"{self._most_of_host} connections come from {host} ({MAX_CONNECTIONS_PER_IP})",
            )
        return None

    async def _let_in(self, connection: Connection, arrival: Arrival, way: Way) -> None:
        try:
            with ended_by_errors(arrival):
                await arrival.enter(connection, way.tls, TLS_HANDSHAKE_MS)
        finally:
            self._arrived(connection)
            if connection.fd < 0:
                self._left(arrival.host)

    def _arrived(self, connection: Connection) -> None:
        """Or it never will. May be called again."""
        arrival = self._arrivals.pop(connection, None)
        if arrival is not None:
            for strangers in (self._strangers, self._broker_strangers):
                strangers.discard(arrival)

    def _connection(self, entrance: Entrance, host: str) -> Connection:
        if entrance.logins is None:
            return Connection(self, entrance, host)
        return LoginConnection(self, entrance, host, entrance.logins.begin(host), self.strangers_memory)

    def opened(self, connection: Connection) -> None:
        # Its place among strangers is free: who shook hands and is to log in would else need two, and go for himself.
        self._arrived(connection)
        if self._stopping:
            # Let in before the listeners were closed, and told of after it: nobody would ever end it.
            self._refuse(connection, "stopping", "the broker stops")
        elif connection.inter_broker:
            # Clients that take every connection, or file, must not cut the brokers off from each other.
            self._serve(connection)
            self._close_excess()
            if descriptors.nearly_all_used(connection.fd):
                self._close_quietest(1, NO_MORE_FILES)
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

    def _add_stranger(self, one: Stranger, among: Strangers) -> None:
        """Where there are too many another one goes, so that who comes to log in can."""
        leaving = among.add(one)
        if leaving is not None:
            self._warn(f"clients are closed: {among.most} connections have not logged in yet")
            self._count_refused("unauthenticated")
            leaving.abort(f"{among.most} connections have not logged in yet, and this one waits for longest")

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
            self._add_stranger(connection, self._strangers)
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
        self._left(connection.host)
        self._waiting.pop(connection, None)
        self._strangers.discard(connection)
        task = self.connections.pop(connection, None)
        if task is not None and connection.busy:
            # Any other ends by itself, and by no error, whose trace would keep all of it in a circle.
            task.cancel()
        self._serve_waiting()

    def _left(self, host: str) -> None:
        self._of_host[host] -= 1
        if not self._of_host[host]:
            del self._of_host[host]

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
        standing: list[Stranger] = [*self.connections, *self._waiting, *self._arrivals.values()]
        for one in standing:
            one.abort("the broker stops")


@asynccontextmanager
async def serving(config: BrokerConfig, outside: Outside | None = None) -> AsyncIterator[Server]:
    """A broker that serves for as long as the context is open; leaving it stops in order and closes the logs.

    Raises ValueError as `BrokerConfig.check_start` does, DataDirectoryError, AccessInvalid, CannotListen, and what
    `Broker.open`, `bound` and `ready` raise.
    """
    config.check_start()
    outside = outside or Outside()
    with ExitStack() as unstarted:
        data = DataDirectory.open(config.data_dir, outside.disk)
        unstarted.callback(data.close)
        listeners = Listeners(outside.bind)
        unstarted.callback(listeners.close)
        # Before all that a start waits for: a port that another program has is known now.
        users = config.users(outside.clock)
        failed = FailedLogins()
        logins = config.logins(users, outside.clock, failed)
        clients, brokers = await listeners.bind_all(config, logins, failed)
        broker = await Broker.open(config, outside, data, users)
        unstarted.pop_all()
    try:
        async with asyncio.TaskGroup() as tasks:
            server = Server(broker, tasks, failed)
            listeners.came = server.came
            background = [tasks.create_task(broker.run()), tasks.create_task(server.watch_connections())]
            try:
                await broker.bound(clients, brokers)
                # The controller may be another broker, and says there what this one has.
                listeners.serve_brokers()
                await broker.ready()
                listeners.serve_clients()
                _tell_who_is_let_in(config)
                _tell_of_super_users(config, users)
                yield server
                await broker.leave()
            finally:
                listeners.close()
                server.abort_connections()
                for task in background:
                    task.cancel()
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
    listeners = [each for each in config.client_listeners() if not config.authorizer_enable]
    if config.zookeeper is not None and not config.has_inter_broker_tls:
        # What clients may do is served there, too, and without a login.
        listeners.append(Listener(INTER_BROKER_LISTENER, config.inter_broker_address))
    for listener in listeners:
        if listener.is_open_to_others and config.lets_strangers_in(listener):
            asks = "no certificate and no login" if listener.protocol.has_tls else "neither TLS nor a login"
            log.warning("%s asks for %s: whoever reaches it may read, write and delete everything", listener, asks)
    for listener in config.client_listeners():
        if listener.is_open_to_others and listener.protocol is SecurityProtocol.SASL_PLAINTEXT:
            for mechanism, what in ((Mechanism.PLAIN, "passwords"), (Mechanism.OAUTHBEARER, "tokens")):
                if mechanism in config.sasl_enabled_mechanisms:
                    said = "%s lets clients log in by %s without TLS: their %s pass unencrypted"
                    log.warning(said, listener, mechanism, what)


def _tell_of_super_users(config: BrokerConfig, users: KnownUsers) -> None:
    """That everybody on this machine is one; and somebody may have set a password for a name before it became one's."""
    for listener in config.client_listeners():
        if ANONYMOUS in config.super_users and config.lets_strangers_in(listener):
            said = "super_users has %s: whoever is on this machine may read, write and delete everything by %s"
            log.warning(said, ANONYMOUS, listener)
    known = [user for user in users.stored if f"User:{user}" in config.super_users and not users.is_in_file(user)]
    if known:
        log.warning(
            "super users that log in by a password which was set while brokers ran: %s; take away what no super user "
            "has set (kafka-configs --delete-config)",
            ", ".join(sorted(known)),
        )
