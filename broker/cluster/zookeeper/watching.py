"""Watches as a stream of changes. A watch of ZooKeeper tells once; it is set again before its change is told, so that
who reads after being told misses nothing. Where watches were lost with a connection or a session, everything may have
changed, and that is what is told.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Final

from broker.cluster.metadata import Change, ChangeKind
from broker.cluster.metadata_store import MetadataUnreadable
from broker.cluster.zookeeper import acls, layout
from broker.cluster.zookeeper.errors import ConnectionLost, NoNode, SessionExpired
from broker.cluster.zookeeper.session import Watch, WatchEvent, ZooKeeper
from broker.cluster.zookeeper.topics import read_each

Session = Callable[[], Awaitable[ZooKeeper]]
"""The session, once there is one that is not over."""
Mend = Callable[[ZooKeeper], Awaitable[None]]
"""Puts back the znodes that a cluster always has. Raises SessionExpired."""

_QUEUES: Final = {
    ChangeKind.ISR: layout.ISR_CHANGES,
    ChangeKind.LOG_DIR_FAILURES: layout.LOG_DIR_EVENTS,
    ChangeKind.TOPIC_DELETIONS: layout.TOPIC_DELETIONS,
}
_ONE_ZNODE: Final = {
    ChangeKind.CONTROLLER: layout.CONTROLLER,
    ChangeKind.REASSIGNMENTS: layout.REASSIGNMENTS,
    ChangeKind.PREFERRED_ELECTIONS: layout.PREFERRED_ELECTIONS,
}
log = logging.getLogger(__name__)


async def _read(zk: ZooKeeper, path: str) -> bytes | None:
    try:
        return (await zk.get(path))[0]
    except NoNode:
        return None


@dataclass(slots=True)
class _Notes:
    """Where notifications of one kind of changes are made, and which of them were read."""

    folder: str
    decode: Callable[[bytes, str], str]
    """What a change of which they tell is called. Raises MetadataUnreadable."""
    last: str = ""
    made: int = 0


class Changes(AsyncIterator[Change]):
    """`begin` first, `end` last. Meant for one reader."""

    def __init__(self, session: Session, mend: Mend, kinds: Collection[ChangeKind]) -> None:
        self._session = session
        self._mend = mend
        self._kinds = frozenset(kinds)
        self._ready: deque[Change] = deque()
        # Watches that have told, by what they watch, and changes that are told from outside.
        self._fired: asyncio.Queue[Change] = asyncio.Queue()
        self._newest: dict[Change, Watch] = {}
        self._watched_topics: set[str] = set()
        self._watched_brokers: set[str] = set()
        self._notes = {
            ChangeKind.CONFIGS: [_Notes(layout.CONFIG_CHANGES, layout.decode_config_change)],
            ChangeKind.ACLS: [_Notes(folder, acls.decode_change) for folder in acls.CHANGES.values()],
        }

    async def begin(self) -> None:
        for kind in sorted(self._kinds, key=lambda kind: kind.value):
            await self._arm(Change(kind))
        self._ready.clear()

    def tell(self, change: Change) -> None:
        if change.kind in self._kinds:
            self._fired.put_nowait(change)

    def end(self, zk: ZooKeeper) -> None:
        """Of the session that is open now; with one that is over its watches went."""
        zk.unwatch(frozenset(self._newest.values()))

    async def __anext__(self) -> Change:
        while not self._ready:
            await self._arm(await self._fired.get())
        return self._ready.popleft()

    async def _arm(self, key: Change) -> None:
        """Sets the watch of `key` again, and makes ready what is to be told."""
        while True:
            zk = await self._session()
            try:
                await zk.wait_connected()
                return await self._arm_on(zk, key)
            except (ConnectionLost, SessionExpired):
                continue
            except NoNode:
                with contextlib.suppress(SessionExpired):
                    await self._mend(zk)

    async def _arm_on(self, zk: ZooKeeper, key: Change) -> None:
        match key:
            case Change(ChangeKind.BROKERS, ""):
                self._watched_brokers = await self._arm_children(zk, key, layout.BROKER_IDS, self._watched_brokers)
            case Change(ChangeKind.BROKERS, name):
                await self._arm_data(zk, key, f"{layout.BROKER_IDS}/{name}", self._watched_brokers)
            case Change(ChangeKind.ASSIGNMENT, ""):
                self._watched_topics = await self._arm_children(zk, key, layout.TOPICS, self._watched_topics)
            case Change(ChangeKind.ASSIGNMENT, topic):
                await self._arm_data(zk, key, layout.topic(topic), self._watched_topics)
            case Change(ChangeKind.TOPICS):
                await zk.children(layout.TOPICS, self._watch(key))
                self._ready.append(key)
            case Change(kind, folder) if kind in self._notes:
                for notes in self._notes[kind]:
                    if folder in ("", notes.folder):
                        await self._arm_notes(zk, Change(kind, notes.folder), notes)
            case Change(kind) if kind in _QUEUES:
                await self._arm_queue(zk, key, _QUEUES[kind])
            case Change(kind) if kind in _ONE_ZNODE:
                await zk.exists(_ONE_ZNODE[kind], self._watch(key))
                self._ready.append(key)
            case _:
                self._ready.append(key)

    async def _arm_children(self, zk: ZooKeeper, key: Change, path: str, watched: set[str]) -> set[str]:
        """Also the data of each child that was not watched yet -> all that are there."""
        names = set(await zk.children(path, self._watch(key)))
        await read_each(
            sorted(names - watched), lambda name: self._arm_data(zk, Change(key.kind, name), f"{path}/{name}", watched)
        )
        if key.kind is ChangeKind.BROKERS:
            self._ready.append(key)
        return watched & names

    async def _arm_data(self, zk: ZooKeeper, key: Change, path: str, watched: set[str]) -> None:
        """One that is gone is not watched: its name shows up among the children when it comes again."""
        watched.discard(key.name)
        with contextlib.suppress(NoNode):
            await zk.get(path, self._watch(key))
            watched.add(key.name)
        self._ready.append(key if key.kind is ChangeKind.ASSIGNMENT else Change(key.kind))

    async def _arm_queue(self, zk: ZooKeeper, key: Change, path: str) -> None:
        if await zk.children(path, self._watch(key)):
            self._ready.append(key)

    async def _arm_notes(self, zk: ZooKeeper, key: Change, notes: _Notes) -> None:
        """The names of notifications rise; those that are new tell what changed."""
        names = await zk.children(notes.folder, self._watch(key))
        stat = await zk.exists(notes.folder)
        if stat is not None and stat.czxid != notes.made:
            # Their numbers begin anew; what was told meanwhile is not known.
            notes.last, notes.made = "", stat.czxid
            self._ready.append(Change(key.kind))
        new = [name for name in names if name > notes.last]
        for name, data in zip(new, await read_each(new, lambda name: _read(zk, f"{notes.folder}/{name}")), strict=True):
            path = f"{notes.folder}/{name}"
            try:
                # One that was swept away before it was read: whose it was is not known.
                self._ready.append(Change(key.kind, "" if data is None else notes.decode(data, path)))
            except MetadataUnreadable as error:
                log.error("%s; all %s are read again", error, key.kind.value)  # noqa: TRY400 - foreseen: the text says all
                self._ready.append(Change(key.kind))
            notes.last = name

    def _watch(self, key: Change) -> Watch:
        """Of several watches of one key only the newest tells: where a broken connection has one set again that was
        there, both would go on being set again for ever.
        """

        def seen(_event: WatchEvent) -> None:
            if self._newest.get(key) is seen:
                del self._newest[key]
                self._fired.put_nowait(key)

        self._newest[key] = seen
        return seen
