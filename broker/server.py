"""The listening side of a broker: accepts connections, watches over them, stops them in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from broker import descriptors
from broker.base.clock import Clock, SystemClock
from broker.broker import Broker
from broker.cluster.zookeeper.kazoo_session import KazooZooKeeper
from broker.cluster.zookeeper.session import OpenSession
from broker.config import BrokerConfig
from broker.connection import Connection
from broker.errors import BrokerError
from broker.limits import CONNECTION_CHECK_MS
from broker.memory import RequestMemory
from broker.wire.errors import ErrorCode

log = logging.getLogger(__name__)


class CannotListen(BrokerError):
    error_code = ErrorCode.BROKER_NOT_AVAILABLE
    hint = "stop what uses the port, or give another address: --listen HOST:PORT"


class Server:
    """What the connections share. Made by `serving`."""

    def __init__(self, broker: Broker, tasks: asyncio.TaskGroup) -> None:
        self.broker = broker
        self.memory = RequestMemory(broker.config.queued_max_request_bytes)
        self.connections: dict[Connection, asyncio.Task[None] | None] = {}
        self._tasks = tasks

    @property
    def address(self) -> str:
        """The advertised "host:port"."""
        host, port = self.broker.advertised
        return f"{host}:{port}"

    def opened(self, connection: Connection) -> None:
        if len(self.connections) >= self.broker.config.max_connections or descriptors.nearly_all_used(connection.fd):
            self.connections[connection] = None
            connection.abort("too many connections")
        else:
            self.connections[connection] = self._tasks.create_task(connection.serve())

    def lost(self, connection: Connection, held_bytes: int) -> None:
        """What its last request waits for (records, a rebalance) nobody is waiting for any more."""
        self.memory.abandon(connection, held_bytes)
        task = self.connections.pop(connection, None)
        if task is not None:
            task.cancel()

    async def watch_connections(self) -> None:
        """Close connections that are idle or stand still; ends only by being cancelled."""
        while True:
            await asyncio.sleep(CONNECTION_CHECK_MS / 1000)
            now = self.broker.clock.monotonic()
            for connection in list(self.connections):
                connection.check(now)

    def abort_connections(self) -> None:
        for connection in list(self.connections):
            connection.abort("the broker stops")


@asynccontextmanager
async def serving(
    config: BrokerConfig, clock: Clock | None = None, open_session: OpenSession = KazooZooKeeper.connect
) -> AsyncIterator[Server]:
    """A broker that serves for as long as the context is open; leaving it stops in order and closes the logs.

    Raises what `Broker.open`, `bound` and `ready` raise, and CannotListen.
    """
    broker = await Broker.open(config, clock or SystemClock(), open_session)
    try:
        async with asyncio.TaskGroup() as tasks:
            server = Server(broker, tasks)
            listener = await _bound(server, config)
            background = [tasks.create_task(broker.run()), tasks.create_task(server.watch_connections())]
            try:
                await broker.ready()
                await _serve(listener, config)
                yield server
            finally:
                listener.close()
                server.abort_connections()
                for task in background:
                    task.cancel()
                await listener.wait_closed()
    except BaseExceptionGroup as group:
        # Task groups wrap also what was raised in our own body; a single error goes on as itself.
        raise _alone(group) from None
    finally:
        await broker.close()


def _alone(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


async def _bound(server: Server, config: BrokerConfig) -> asyncio.Server:
    """Nobody is let in before `_serve`: what clients ask for may not be open yet."""
    loop = asyncio.get_running_loop()
    try:
        listener = await loop.create_server(
            lambda: Connection(server), config.listen_host, config.listen_port, start_serving=False
        )
    except OSError as error:
        raise _cannot_listen(config, error) from error
    try:
        await server.broker.bound(config.listen_host, listener.sockets[0].getsockname()[1])
    except BaseException:  # whatever stops the start, the port is free again and the error goes on
        listener.close()
        raise
    return listener


async def _serve(listener: asyncio.Server, config: BrokerConfig) -> None:
    try:
        await listener.start_serving()
    except OSError as error:
        raise _cannot_listen(config, error) from error


def _cannot_listen(config: BrokerConfig, error: OSError) -> CannotListen:
    return CannotListen(f"cannot listen on {config.listen_host}:{config.listen_port}: {error.strerror or error}")
