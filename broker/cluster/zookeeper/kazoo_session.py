"""A ZooKeeper session on kazoo, which nobody knows but this and `kazoo_client.py`.

kazoo works in threads of its own. They reach the event loop by `call_soon_threadsafe` alone, and the loop waits for
none of them: requests are put into kazoo's queue, and ending a client, which joins its threads, is done in a thread.
By itself kazoo would follow an expired session with a new one, and carry out there what was meant for the old one. Here
a session ends with its expiry: a lock that is held only for the moment of queueing keeps every request on its side.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Final

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import EventType, KazooState

from broker.base.clock import Clock
from broker.base.time_limits import timeout
from broker.client.errors import ClientError
from broker.cluster.zookeeper.access import UNLOCKED, ZooKeeperAccess
from broker.cluster.zookeeper.deadline import SessionDeadline
from broker.cluster.zookeeper.errors import (
    BadVersion,
    ConnectionLost,
    NodeExists,
    NoNode,
    NotAllowed,
    NotEmpty,
    SessionExpired,
    ZooKeeperError,
    ZooKeeperUnreachable,
)
from broker.cluster.zookeeper.kazoo_client import OPEN, Connection, kazoo_client, stat_of
from broker.cluster.zookeeper.layout import CLUSTER_ID
from broker.cluster.zookeeper.session import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    Operation,
    SetData,
    Stat,
    Watch,
    WatchEvent,
    WatchKind,
    catch_up,
)
from broker.cluster.zookeeper.watches import Watches

log = logging.getLogger(__name__)

HEARTBEATS_PER_SESSION: Final = 6
REQUESTS_AT_ONCE: Final = 32
"""That wait for their answers. For each kazoo writes a byte into a pipe, which its thread does not read while it looks
for a server; some systems' pipes hold no more than 70, and who finds it full waits: that would be the event loop.
"""

_WATCH_KINDS: Final = {
    EventType.CREATED: WatchKind.CREATED,
    EventType.DELETED: WatchKind.DELETED,
    EventType.CHANGED: WatchKind.CHANGED,
    EventType.CHILD: WatchKind.CHILDREN,
    EventType.NONE: WatchKind.LOST,
}
_ERRORS: Final[tuple[tuple[type[Exception], type[ZooKeeperError]], ...]] = (
    (kazoo_errors.NoNodeError, NoNode),
    (kazoo_errors.NodeExistsError, NodeExists),
    (kazoo_errors.BadVersionError, BadVersion),
    (kazoo_errors.NotEmptyError, NotEmpty),
    (kazoo_errors.NoAuthError, NotAllowed),
    (kazoo_errors.SessionExpiredError, SessionExpired),
    (kazoo_errors.ConnectionLoss, ConnectionLost),
    (kazoo_errors.ConnectionClosedError, ConnectionLost),
    (kazoo_errors.OperationTimeoutError, ConnectionLost),
    (kazoo_errors.SessionMovedError, ConnectionLost),
    (KazooTimeoutError, ConnectionLost),
)
# What the others of a refused transaction answer.
_NOT_CARRIED_OUT: Final = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)


class KazooZooKeeper:
    """Use `connect`."""

    def __init__(self, client: KazooClient, connection: Connection, servers: tuple[str, str], clock: Clock) -> None:
        """`servers`: the hosts, and the chroot."""
        self._client = client
        self._connection = connection
        self._hosts, self._chroot = servers
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._waiting: set[asyncio.Future[Any]] = set()
        self._watches = Watches()
        self._room = asyncio.Semaphore(REQUESTS_AT_ONCE)
        self._connected = asyncio.Event()
        self._over = asyncio.Event()
        self._deadline = SessionDeadline(0.0, 0)
        self.session_id = 0
        # Shared with kazoo's connection thread: held for the moment of queueing a request, and of noting the end.
        self._queueing = threading.Lock()
        self._ended = False
        self._is_away = False

    @classmethod
    async def connect(
        cls,
        servers: str,
        session_timeout_ms: int,
        clock: Clock,
        connect_timeout_ms: int,
        access: ZooKeeperAccess = UNLOCKED,
    ) -> KazooZooKeeper:
        """A new session. `servers` is "host:port,host:port/chroot"; the chroot is made if need be.

        Raises ZooKeeperUnreachable, NotAllowed.
        """
        hosts, slash, chroot = servers.partition("/")
        try:
            client, connection = await kazoo_client(hosts, session_timeout_ms, access)
        except ClientError as error:  # a password or a file that may be there again at the next try
            raise ZooKeeperUnreachable(f"no session with ZooKeeper at {hosts}: {error}", hint=error.hint) from error
        self = cls(client, connection, (hosts, (slash + chroot).rstrip("/")), clock)
        client.add_listener(self._state_in_thread)
        asked_at = clock.boottime()
        async with contextlib.AsyncExitStack() as failed:
            failed.push_async_callback(self.close)  # kazoo's threads must not outlive the attempt, whatever ends it
            try:
                await asyncio.to_thread(client.start_async)
                async with timeout(connect_timeout_ms / 1000):
                    await self.wait_connected()
                    self.session_id = client.client_id[0] if client.client_id else 0
                    self._deadline = SessionDeadline(asked_at, connection.granted_ms)
                    await self._make_chroot()
                    if access.username is not None:
                        await self._tell_if_open()
            except (TimeoutError, ConnectionLost, SessionExpired) as error:
                why = f": {failure}" if (failure := getattr(client.handler, "failure", "")) else ""
                raise ZooKeeperUnreachable(
                    f"no session with ZooKeeper at {hosts} within {connect_timeout_ms / 1000:g} s{why}"
                ) from error
            failed.pop_all()
        return self

    @property
    def session_timeout_ms(self) -> int:
        return self._connection.granted_ms

    @property
    def alive_until(self) -> float:
        return self._deadline.alive_until

    @property
    def expired(self) -> bool:
        return self._over.is_set()

    async def run(self) -> None:
        while not self.expired:
            sent_at = self._clock.boottime()
            try:
                # A write that changes nothing: it is answered once a quorum has it. A leader that was deposed, and does
                # not know it yet, would answer a sync; it has no quorum, and its successor counts our session anew from
                # its own election, which came after this.
                await catch_up(self)
                self._deadline.heard(sent_at, self._clock.boottime())
            except ZooKeeperError:
                pass  # without an answer the deadline stays where it is
            try:
                async with timeout(self.session_timeout_ms / 1000 / HEARTBEATS_PER_SESSION):
                    await self._over.wait()
            except TimeoutError:
                continue

    async def wait_connected(self) -> None:
        await self._connected.wait()
        if self.expired:
            raise SessionExpired("the ZooKeeper session is over")

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        data, stat = await self._read(self._client.get_async, path, watch)
        return data or b"", stat_of(stat)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        stat = await self._read(self._client.exists_async, path, watch)
        return None if stat is None else stat_of(stat)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return sorted(await self._read(self._client.get_children_async, path, watch, children=True))

    def unwatch(self, watches: Collection[Watch]) -> None:
        self._watches.remove(watches)

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> tuple[str, Stat]:
        made, stat = await self._ask(
            self._client.create_async, path, data, ephemeral=ephemeral, sequence=sequence, include_data=True
        )
        return self._unchrooted(made), stat_of(stat)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        return stat_of(await self._ask(self._client.set_async, path, data, version))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._ask(self._client.delete_async, path, version)

    async def multi(self, operations: Sequence[Operation]) -> list[Any]:
        transaction = self._client.transaction()
        for operation in operations:
            path = self._chrooted(operation.path)
            match operation:
                case Create():
                    transaction.create(path, operation.data, ephemeral=operation.ephemeral, sequence=operation.sequence)
                case SetData():
                    transaction.set_data(path, operation.data, operation.version)
                case Delete():
                    transaction.delete(path, operation.version)
                case Check():
                    transaction.check(path, operation.version)
        answers = await self._queued(transaction.commit_async, f"a multi of {len(operations)}")
        for index, answer in enumerate(answers):
            if isinstance(answer, Exception) and not isinstance(answer, _NOT_CARRIED_OUT):
                raise _translated(answer, operations[index].path, index)
        return [self._multi_answer(operation, answer) for operation, answer in zip(operations, answers, strict=True)]

    async def close(self) -> None:
        with self._queueing:
            self._ended = True
        await asyncio.to_thread(self._stop)
        self._end()

    def _stop(self) -> None:
        try:
            self._client.stop()
            self._client.close()
        except kazoo_errors.WriterNotClosedException:
            # A server that does not answer holds the connection's thread a little longer; it ends by itself.
            log.warning("a ZooKeeper connection is slow to close")

    async def _make_chroot(self) -> None:
        path = ""
        for name in self._chroot.split("/")[1:]:
            path += f"/{name}"
            try:
                await self._queued(partial(self._client.create_async, path), path)
            except NodeExists:
                continue
            except NotAllowed:  # asks for the right to make it before it looks whether it is there
                if await self._queued(partial(self._client.exists_async, path), path) is None:
                    raise

    async def _tell_if_open(self) -> None:
        with contextlib.suppress(NoNode, NotAllowed):  # a cluster that is new, and one that is locked
            found, _ = await self._ask(self._client.get_acls_async, CLUSTER_ID)
            if any(each.id.scheme == "world" for each in found):
                log.warning(OPEN, self._hosts, CLUSTER_ID)

    async def _ask(self, method: Callable[..., Any], path: str, *arguments: Any, **options: Any) -> Any:
        return await self._queued(partial(method, self._chrooted(path), *arguments, **options), path)

    async def _queued(self, ask: Callable[[], Any], what: str) -> Any:
        """Puts a request into kazoo's queue and waits for its answer. Raises ZooKeeperError."""
        async with self._room:
            return await self._answer(ask, what)

    async def _answer(self, ask: Callable[[], Any], what: str) -> Any:
        with self._queueing:
            if self._ended:
                # Kazoo's thread has noted it, and its word waits for a turn of the loop. Who asks again for as long as
                # the session is not expired would never give it one.
                self._end()
                raise SessionExpired(f"{what}: the ZooKeeper session is over")
            if not self._connected.is_set():
                raise ConnectionLost(f"{what}: there is no connection to ZooKeeper")
            asked = ask()
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.add(future)
        try:
            asked.rawlink(partial(self._answered_in_thread, future))
            return await future
        except (kazoo_errors.KazooException, KazooTimeoutError) as error:
            raise _translated(error, what) from error
        finally:
            self._waiting.discard(future)

    def _answered_in_thread(self, future: asyncio.Future[Any], asked: Any) -> None:
        self._in_loop(_settle, future, asked)

    def _state_in_thread(self, state: str) -> None:
        if state == KazooState.LOST:
            with self._queueing:
                self._ended = True
            self._in_loop(self._end)
        elif state == KazooState.CONNECTED:
            # Before all else: another server may lag behind what was done by the last one.
            self._client.sync_async("/")
            self._in_loop(self._reconnected)
        else:
            self._in_loop(self._disconnected)

    def _in_loop(self, call: Callable[..., object], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more

    def _reconnected(self) -> None:
        if self._is_away:
            log.warning("ZooKeeper at %s answers again", self._hosts)
        self._is_away = False
        self._connected.set()

    def _disconnected(self) -> None:
        """Also what kazoo still has in its queue, and would send with the next connection, has an unknown outcome."""
        if not self._is_away and not self._ended:
            told = "the connection to ZooKeeper at %s broke; once the session is over, this broker leads nothing"
            log.warning(told, self._hosts)
        self._is_away = True
        self._connected.clear()
        for future in self._waiting:
            if not future.done():
                future.set_exception(kazoo_errors.ConnectionLoss())

    def _end(self) -> None:
        self._deadline.ended()
        self._over.set()
        # Whoever waits for a connection need wait no longer.
        self._connected.set()
        for future in self._waiting:
            if not future.done():
                future.set_exception(kazoo_errors.SessionExpiredError())

    async def _read(self, method: Callable[..., Any], path: str, watch: Watch | None, *, children: bool = False) -> Any:
        if watch is None:
            return await self._ask(method, path)
        self._watches.add(path, watch, children=children)
        with contextlib.ExitStack() as unanswered:  # who asked in vain does not count on it
            unanswered.callback(self._watches.take_back, path, watch, children=children)
            answer = await self._ask(method, path, watch=self._seen_in_thread)
            unanswered.pop_all()
        return answer

    def _seen_in_thread(self, event: Any) -> None:
        path = self._unchrooted(event.path) if event.path else ""
        self._in_loop(self._watches.tell, WatchEvent(_WATCH_KINDS[event.type], path))

    def _chrooted(self, path: str) -> str:
        return (self._chroot + path).rstrip("/") or "/"

    def _unchrooted(self, path: str) -> str:
        return path.removeprefix(self._chroot) or "/"

    def _multi_answer(self, operation: Operation, answer: Any) -> Any:
        match operation:
            case Create():
                return self._unchrooted(answer)
            case SetData():
                return stat_of(answer)
            case _:
                return None


def _settle(future: asyncio.Future[Any], asked: Any) -> None:
    if future.done():
        return
    if asked.exception is None:
        future.set_result(asked.value)
    else:
        future.set_exception(asked.exception)


def _translated(error: Exception, what: str, operation: int | None = None) -> ZooKeeperError:
    for theirs, ours in _ERRORS:
        if isinstance(error, theirs):
            return ours(f"{what}: {_TEXTS.get(ours, theirs.__doc__)}", operation=operation)
    return ZooKeeperError(f"{what}: ZooKeeper answered {type(error).__name__} {error}", operation=operation)


_TEXTS: Final[dict[type[ZooKeeperError], str]] = {
    NoNode: "there is no such znode",
    NodeExists: "the znode exists",
    BadVersion: "the znode was changed meanwhile",
    NotEmpty: "the znode has children",
    NotAllowed: "ZooKeeper lets only others do that",
    ConnectionLost: "the connection to ZooKeeper broke before the answer came",
    SessionExpired: "the ZooKeeper session is over",
}
