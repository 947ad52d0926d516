"""One session with ZooKeeper. A session is a value: once it is over it stays so, and nothing that was asked of it can
be carried out in the name of a later one.

Paths are those of the cluster ("/brokers/ids"); a chroot is the implementation's. `tests/broker/cluster/
zookeeper_contract.py` holds every implementation to what is said here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

from broker.base.clock import Clock

ANY_VERSION: Final = -1


class Stat(NamedTuple):
    """Of a znode. `czxid` and `mzxid` are the numbers of the transactions that made and last changed it; they rise over
    the whole ensemble and never repeat. `version` counts changes of the data, `cversion` of the children.
    `ephemeral_owner` is the id of the session that the znode ends with, 0 of a lasting one. `ctime_ms` is the
    server's Unix time.
    """

    czxid: int
    mzxid: int
    ctime_ms: int
    version: int
    cversion: int
    ephemeral_owner: int
    children: int


class WatchKind(Enum):
    CREATED = "created"
    DELETED = "deleted"
    CHANGED = "changed"
    CHILDREN = "children"
    LOST = "lost"
    """Nobody watches any more, because the connection broke or the session ended: anything may have happened."""


class WatchEvent(NamedTuple):
    kind: WatchKind
    path: str


Watch = Callable[[WatchEvent], None]
"""Called once, in the event loop; it must not raise. The newest state is read after it, never taken from it, and who
still wants to know then watches again: it may be told a little too early.
"""


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """The znode is there and has this version."""

    path: str
    version: int


Operation = Create | SetData | Delete | Check


class ZooKeeper(Protocol):
    """Requests are carried out in the order in which they were made. Every one may raise ConnectionLost and
    SessionExpired, beside what its own text says. Where one has raised SessionExpired, `expired` is true.
    """

    @property
    def session_id(self) -> int: ...

    @property
    def session_timeout_ms(self) -> int:
        """As the server granted it, which may be another than was asked for."""
        ...

    @property
    def alive_until(self) -> float:
        """Until then, by `Clock.boottime`, the session is surely alive: whoever holds something by
        it stops acting on that at this moment, unless it was put off meanwhile. After it the session may be over, or
        may not; never moves back, but minus infinity when it is over.
        """
        ...

    @property
    def expired(self) -> bool:
        """Whether it is known to be over."""
        ...

    async def run(self) -> None:
        """Puts `alive_until` off by heartbeats; returns when the session is over."""
        ...

    async def wait_connected(self) -> None:
        """Returns when requests can be made. Raises SessionExpired."""
        ...

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """The watch sees changes and deletion. Raises NoNode, and then does not watch."""
        ...

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """The watch sees creation, changes and deletion."""
        ...

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Names, sorted. The watch sees children come and go, and the node's deletion. Raises NoNode."""
        ...

    def unwatch(self, watches: Collection[Watch]) -> None:
        """These are told no more."""
        ...

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> tuple[str, Stat]:
        """The path as it is (with the number of a sequential one). Raises NoNode (parent), NodeExists."""
        ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Raises NoNode, BadVersion."""
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Raises NoNode, BadVersion, NotEmpty."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> list[Any]:
        """All or none, as one transaction. Per operation: a creation's path, a change's Stat, None. Raises what the
        first refused one would have raised alone, with its place in `operation`.
        """
        ...

    async def close(self) -> None:
        """Ends the session: its ephemeral znodes go at once if the server can be reached, else by its timeout."""
        ...


async def catch_up(zk: ZooKeeper) -> None:
    """What is read after this was there, or not, when this was asked: the session's server may lag behind others, but
    has all that came before a write when it answers that.
    """
    await zk.multi([Check("/", ANY_VERSION)])


OpenSession = Callable[[str, int, Clock, int], Awaitable[ZooKeeper]]
"""Of the servers ("host:port,host:port/chroot"), with a session timeout and a time to connect in milliseconds. Raises
ZooKeeperUnreachable.
"""
