"""ZooKeeper in memory: deterministic, with the faults that a real one has.

Time is the clock passed in and stands still unless a test moves it. `tick` is what happens by time: connected sessions
beat their hearts, others expire. Each request waits once on its way there and once on its way back, so others run in
between; `FakeZooKeeper.losses` and `FakeSession.cut` break connections at just these places.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, TypeVar

from broker.base.clock import Clock
from broker.cluster.zookeeper.deadline import SessionDeadline
from broker.cluster.zookeeper.errors import (
    BadVersion,
    ConnectionLost,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    ZooKeeperError,
)
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
)
from broker.cluster.zookeeper.watches import Watches

T = TypeVar("T")


class Loss(Enum):
    """Where the connection breaks: before the server saw the request, or before the client saw the answer."""

    BEFORE = "before"
    AFTER = "after"


@dataclass
class _Node:
    data: bytes
    stat: Stat
    children: set[str] = field(default_factory=set)
    sequence: int = 0


class FakeZooKeeper:
    """The ensemble. `losses`: asked for each request, with its session, name, path. `protected` nobody may delete."""

    def __init__(self, clock: Clock, session_timeout_ms: int = 6000) -> None:
        self.clock = clock
        self.session_timeout_ms = session_timeout_ms
        self.losses: Callable[[FakeSession, str, str], Loss | None] = lambda session, request, path: None
        self.protected: set[str] = set()
        self.running = True
        self.requests = 0
        self._nodes: dict[str, _Node] = {"/": _Node(b"", Stat(0, 0, 0, 0, 0, 0, 0))}
        self._zxid = 0
        self._sessions: dict[int, FakeSession] = {}
        self._next_session_id = 0x1000
        self._before: dict[str, _Node | None] = {}

    def connect(self) -> FakeSession:
        self._next_session_id += 1
        session = FakeSession(self, self._next_session_id)
        self._sessions[session.session_id] = session
        return session

    def tick(self) -> None:
        """Hearts beat, and sessions that were not heard of for their timeout expire."""
        if not self.running:
            return
        now = self.clock.boottime()
        for session in list(self._sessions.values()):
            if session.reachable:
                session.heard(now)
            elif now - session.heard_at >= self.session_timeout_ms / 1000:
                self.expire(session)

    def expire(self, session: FakeSession) -> None:
        """What the server does; the client learns of it when it is connected again."""
        if self._sessions.pop(session.session_id, None) is None:
            return
        for path in sorted(p for p, node in self._nodes.items() if node.stat.ephemeral_owner == session.session_id):
            self._apply_all(session, [Delete(path)])
        if session.reachable:
            session.end()

    def knows(self, session: FakeSession) -> bool:
        return session.session_id in self._sessions

    def paths(self) -> list[str]:
        return sorted(self._nodes)

    def read(self, path: str) -> _Node:
        """Raises NoNode."""
        if path not in self._nodes:
            raise NoNode(f"{path}: there is no such znode")
        return self._nodes[path]

    def find(self, path: str) -> _Node | None:
        return self._nodes.get(path)

    def copy(self) -> dict[str, _Node]:
        return {path: replace(node, children=set(node.children)) for path, node in self._nodes.items()}

    def write(self, session: FakeSession, operations: Sequence[Operation]) -> list[Any]:
        return self._apply_all(session, operations)

    def _apply_all(self, session: FakeSession, operations: Sequence[Operation]) -> list[Any]:
        """All or none."""
        self._before = {}
        events: list[WatchEvent] = []
        answers = []
        self._zxid += 1
        for index, operation in enumerate(operations):
            try:
                answers.append(self._apply(session, operation, events))
            except ZooKeeperError as refused:
                self._undo()
                refused.operation = index if len(operations) > 1 else None
                raise
        for event in events:
            for other in list(self._sessions.values()):
                other.tell(event)
        return answers

    def _changing(self, *paths: str) -> None:
        """Keeps what is there, before it is changed."""
        for path in paths:
            if path not in self._before:
                node = self._nodes.get(path)
                self._before[path] = node and replace(node, children=set(node.children))

    def _undo(self) -> None:
        for path, node in self._before.items():
            if node is None:
                self._nodes.pop(path, None)
            else:
                self._nodes[path] = node

    def _apply(self, session: FakeSession, operation: Operation, events: list[WatchEvent]) -> Any:
        path = operation.path
        if isinstance(operation, Create):
            return self._create(session, operation, events)
        node = self.read(path)
        if isinstance(operation, Check | SetData | Delete) and operation.version not in (
            ANY_VERSION,
            node.stat.version,
        ):
            raise BadVersion(f"{path}: the znode has version {node.stat.version}, not {operation.version}")
        if isinstance(operation, SetData):
            self._changing(path)
            node.data = operation.data
            node.stat = node.stat._replace(mzxid=self._zxid, version=node.stat.version + 1)
            events.append(WatchEvent(WatchKind.CHANGED, path))
            return node.stat
        if isinstance(operation, Delete):
            if node.children:
                raise NotEmpty(f"{path}: the znode has children")
            if path in self.protected:
                raise ZooKeeperError(f"{path}: ZooKeeper answered NoAuthError")
            parent, name = _split(path)
            self._changing(path, parent)
            del self._nodes[path]
            self._nodes[parent].children.discard(name)
            self._touch_children(parent)
            events += [WatchEvent(WatchKind.DELETED, path), WatchEvent(WatchKind.CHILDREN, parent)]
        return None

    def _create(self, session: FakeSession, operation: Create, events: list[WatchEvent]) -> str:
        parent, name = _split(operation.path)
        above = self.read(parent)
        if operation.sequence:
            name += f"{above.sequence:010d}"
        path = f"{parent.rstrip('/')}/{name}"
        if path in self._nodes:
            raise NodeExists(f"{path}: the znode exists")
        self._changing(path, parent)
        above.sequence += 1
        above.children.add(name)
        owner = session.session_id if operation.ephemeral else 0
        stat = Stat(self._zxid, self._zxid, self.clock.now_ms(), 0, 0, owner, 0)
        self._nodes[path] = _Node(operation.data, stat)
        self._touch_children(parent)
        events += [WatchEvent(WatchKind.CREATED, path), WatchEvent(WatchKind.CHILDREN, parent)]
        return path

    def _touch_children(self, path: str) -> None:
        node = self._nodes[path]
        node.stat = node.stat._replace(cversion=node.stat.cversion + 1, children=len(node.children))


class FakeSession:
    """Implements broker.cluster.zookeeper.session.ZooKeeper. `cut` and `mend` partition this client alone."""

    def __init__(self, server: FakeZooKeeper, session_id: int) -> None:
        self.session_id = session_id
        self.session_timeout_ms = server.session_timeout_ms
        self.heard_at = server.clock.boottime()
        self.expired = False
        self._server = server
        self._deadline = SessionDeadline(self.heard_at, self.session_timeout_ms)
        self._is_cut = False
        self._connected = asyncio.Event()
        self._connected.set()
        self._over = asyncio.Event()
        self.watches = Watches()
        self._told: deque[tuple[Watch, WatchEvent]] = deque()
        self._lagging: dict[str, _Node] | None = None

    def lag(self) -> None:
        """Its server hears of nothing that is written from now on, before a write of this session comes back to it."""
        self._lagging = self._server.copy()

    def _find(self, path: str) -> _Node | None:
        return self._server.find(path) if self._lagging is None else self._lagging.get(path)

    def _read(self, path: str) -> _Node:
        """Raises NoNode."""
        if (found := self._find(path)) is None:
            raise NoNode(f"{path}: there is no such znode")
        return found

    def _write(self, operations: Sequence[Operation]) -> list[Any]:
        self._lagging = None
        return self._server.write(self, operations)

    @property
    def reachable(self) -> bool:
        return self._server.running and not self._is_cut and not self.expired

    @property
    def alive_until(self) -> float:
        return self._deadline.alive_until

    def heard(self, now: float) -> None:
        self.heard_at = now
        self._deadline.heard(now, now)

    def cut(self) -> None:
        self._is_cut = True
        self._connected.clear()
        self.tell(WatchEvent(WatchKind.LOST, ""))

    def mend(self) -> None:
        self._is_cut = False
        if not self._server.knows(self):
            self.end()
        self._connected.set()

    def end(self) -> None:
        self.expired = True
        self._deadline.ended()
        self._over.set()
        self.tell(WatchEvent(WatchKind.LOST, ""))
        self._connected.set()

    def tell(self, event: WatchEvent) -> None:
        for watch in self.watches.take(event):
            self._tell(watch, event)

    def _tell(self, watch: Watch, event: WatchEvent) -> None:
        """Not within the write that caused it, but before anything that is asked later is answered."""
        self._told.append((watch, event))
        asyncio.get_running_loop().call_soon(self._deliver)

    def _deliver(self) -> None:
        while self._told:
            watch, event = self._told.popleft()
            watch(event)

    async def run(self) -> None:
        await self._over.wait()

    async def wait_connected(self) -> None:
        await self._connected.wait()
        if self.expired:
            raise SessionExpired("the ZooKeeper session is over")

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        def get() -> tuple[bytes, Stat]:
            node = self._read(path)
            self._add_watch(path, watch, children=False)
            return node.data, node.stat

        return await self._carried("get", path, get)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        def exists() -> Stat | None:
            self._add_watch(path, watch, children=False)
            node = self._find(path)
            return node.stat if node else None

        return await self._carried("exists", path, exists)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        def children() -> list[str]:
            node = self._read(path)
            self._add_watch(path, watch, children=True)
            return sorted(node.children)

        return await self._carried("children", path, children)

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> tuple[str, Stat]:
        def create() -> tuple[str, Stat]:
            (made,) = self._write([Create(path, data, ephemeral, sequence)])
            return made, self._read(made).stat

        return await self._carried("create", path, create)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        def change() -> Stat:
            self._write([SetData(path, data, version)])
            return self._read(path).stat

        return await self._carried("set", path, change)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._carried("delete", path, lambda: self._write([Delete(path, version)]))

    async def multi(self, operations: Sequence[Operation]) -> list[Any]:
        # A single one is answered as a multi too.
        def multi() -> list[Any]:
            try:
                return self._write(operations)
            except ZooKeeperError as refused:
                refused.operation = refused.operation or 0
                raise

        return await self._carried("multi", operations[0].path, multi)

    async def close(self) -> None:
        if self.reachable:
            self._server.expire(self)
        self.end()

    def unwatch(self, watches: Collection[Watch]) -> None:
        self.watches.remove(watches)

    def _add_watch(self, path: str, watch: Watch | None, *, children: bool) -> None:
        if watch is not None:
            self.watches.add(path, watch, children=children)

    async def _carried(self, request: str, path: str, act: Callable[[], T]) -> T:
        loss = self._server.losses(self, request, path)
        self._check_reachable(path)
        await asyncio.sleep(0)
        if loss is Loss.BEFORE:
            self._break()
        self._check_reachable(path)
        self._server.requests += 1
        self.heard_at = self._server.clock.boottime()
        try:
            answer = act()
        finally:
            if loss is Loss.AFTER:
                self._break()
        await asyncio.sleep(0)
        self._deliver()
        self._check_reachable(path)
        return answer

    def _break(self) -> None:
        """The connection breaks and is there again at once: only what was on its way, and the watches, are lost."""
        self.cut()
        self.mend()
        raise ConnectionLost("the connection to ZooKeeper broke before the answer came")

    def _check_reachable(self, path: str) -> None:
        if self.expired:
            raise SessionExpired(f"{path}: the ZooKeeper session is over")
        if not self.reachable:
            raise ConnectionLost(f"{path}: there is no connection to ZooKeeper")


def _split(path: str) -> tuple[str, str]:
    parent, _, name = path.rpartition("/")
    return parent or "/", name
