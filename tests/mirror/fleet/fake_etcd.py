"""etcd in memory: revisions, leases that end, watches, compaction; it can be down, and clients can be cut off from it.

`test_store.py` holds it against a real one.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from broker.base.clock import Clock
from mirror.fleet.errors import HistoryCompacted, StoreRefused, StoreUnreachable
from mirror.fleet.store import ABSENT, Change, Changes, Commit, Item, Lease, Put, Snapshot

RENEWALS_PER_LEASE = 5
LEASE_MARGIN = 0.1
LOSES_ANSWERS = 0.03

Told = Changes | StoreUnreachable


@dataclass
class _ServerLease:
    seconds: int
    ends_at: float


@dataclass
class FakeEtcd:
    """The server. Time is the event loop's."""

    clock: Clock
    revision: int = 1
    items: dict[str, Item] = field(default_factory=dict)
    is_down: bool = False
    lease_min_s: int = 0
    """What the server grants at the least."""

    def __post_init__(self) -> None:
        self._leased: dict[str, int] = {}
        self._leases: dict[int, _ServerLease] = {}
        self._ids = itertools.count(1)
        self._history: list[Changes] = []
        self._compacted = 0
        self.stores: list[FakeStore] = []
        self.listeners: list[Callable[[Changes], None]] = []
        """Hear every change when it is carried out."""

    def commit(self, commit: Commit) -> int | None:
        items = self.items
        if any((items[key].created if key in items else ABSENT) != made for key, made in commit.created.items()):
            return None
        if any(key not in items or items[key].value != value for key, value in commit.values.items()):
            return None
        if any(put and put.lease_id and put.lease_id not in self._leases for put in commit.puts.values()):
            raise StoreUnreachable("requested lease not found")
        self._carry_out(dict(commit.puts))
        return self.revision

    def _carry_out(self, puts: dict[str, Put | None]) -> None:
        puts = {key: put for key, put in puts.items() if put is not None or key in self.items}
        if not puts:
            return
        self.revision += 1
        changes = []
        for key, put in puts.items():
            if put is None:
                del self.items[key]
                self._leased.pop(key, None)
            else:
                made = self.items[key].created if key in self.items else self.revision
                self.items[key] = Item(put.value, made)
                self._leased.pop(key, None)
                if put.lease_id:
                    self._leased[key] = put.lease_id
            changes.append(Change(key, self.items.get(key)))
        self._history.append(Changes(self.revision, tuple(changes)))
        for listener in self.listeners:
            listener(self._history[-1])
        for store in self.stores:
            store.hear(self._history[-1])

    def grant(self, seconds: int) -> int:
        lease_id = next(self._ids)
        self._leases[lease_id] = _ServerLease(seconds, 0.0)
        self._extend(lease_id)
        return lease_id

    def renew(self, lease_id: int) -> bool:
        if lease_id not in self._leases:
            return False
        self._extend(lease_id)
        return True

    def holds_lease(self, lease_id: int) -> bool:
        return lease_id in self._leases

    def _extend(self, lease_id: int) -> None:
        lease = self._leases[lease_id]
        lease.ends_at = self.clock.boottime() + lease.seconds
        asyncio.get_running_loop().call_later(lease.seconds, self._look_at, lease_id)

    def _look_at(self, lease_id: int) -> None:
        lease = self._leases.get(lease_id)
        if lease is not None and not self.is_down and self.clock.boottime() >= lease.ends_at - 1e-9:
            self.end_lease(lease_id)

    def end_lease(self, lease_id: int) -> None:
        self._leases.pop(lease_id, None)
        self._carry_out({key: None for key, owner in self._leased.items() if owner == lease_id})

    def compact(self) -> None:
        """Forget everything before the newest revision, and end no watch."""
        self._compacted = self.revision
        self._history = [changes for changes in self._history if changes.revision >= self.revision]

    def restore(self, saved: FakeEtcd) -> None:
        """As from a snapshot that was taken when this was `saved`: also the leases of then, with their whole time."""
        self.go_down()
        self.revision, self.items = saved.revision, dict(saved.items)
        self._leased, self._leases = dict(saved._leased), dict(saved._leases)
        self._history, self._compacted = [], saved.revision
        self.come_back()

    def saved(self) -> FakeEtcd:
        """A snapshot for `restore`."""
        copy = FakeEtcd(self.clock, self.revision, dict(self.items))
        copy._leased, copy._leases = dict(self._leased), dict(self._leases)
        return copy

    def since(self, after: int) -> list[Changes]:
        if after + 1 < self._compacted:
            raise HistoryCompacted(f"forgotten before {self._compacted}")
        return [changes for changes in self._history if changes.revision > after]

    def go_down(self) -> None:
        self.is_down = True
        for store in self.stores:
            store.end_watches()

    def come_back(self) -> None:
        """As a new leader does: every lease has its whole time again."""
        self.is_down = False
        for lease_id in list(self._leases):
            self._extend(lease_id)


class FakeStore:
    """One client. `chance`: of answers that take time and writes of which the answer is lost."""

    def __init__(self, etcd: FakeEtcd, chance: random.Random | None = None) -> None:
        self._etcd = etcd
        self._chance = chance
        self._watches: list[tuple[str, asyncio.Queue[Told]]] = []
        self.loses_answers = LOSES_ANSWERS
        self.is_cut = False
        self.is_refused = False
        """By etcd, which took this user's rights away."""
        self.is_asleep = False
        """The whole process sleeps, with the thread that renews its lease."""
        self.is_free = asyncio.Event()
        """Unset: the process's event loop stands still. What it is told meanwhile it hears at once, behind that."""
        self.is_free.set()
        etcd.stores.append(self)

    async def read(self, prefix: str) -> Snapshot:
        await self._reach()
        items = {key: item for key, item in self._etcd.items.items() if key.startswith(prefix)}
        return Snapshot(self._etcd.revision, items)

    async def commit(self, commit: Commit) -> int | None:
        await self._reach()
        done = self._etcd.commit(commit)
        if self._chance is not None and self._chance.random() < self.loses_answers:
            raise StoreUnreachable("the answer was lost")
        await self._reach()
        return done

    async def watch(self, prefix: str, after: int) -> AsyncGenerator[Changes, None]:
        await self._reach()
        told: asyncio.Queue[Told] = asyncio.Queue()
        for changes in self._etcd.since(after):
            told.put_nowait(changes)
        self._watches.append((prefix, told))
        try:
            while True:
                heard = await told.get()
                is_late = not self.is_free.is_set() or not told.empty()
                await self.is_free.wait()
                if isinstance(heard, StoreUnreachable):
                    raise heard
                wanted = tuple(change for change in heard.changes if change.key.startswith(prefix))
                if self._chance is not None and not is_late:
                    await self._etcd.clock.sleep(self._chance.uniform(0, 0.02))
                if wanted:
                    yield Changes(heard.revision, wanted)
        finally:
            self._watches = [watch for watch in self._watches if watch[1] is not told]

    @asynccontextmanager
    async def lease(self, lease_seconds: int) -> AsyncIterator[Lease]:
        asked_at, lease_seconds = self._etcd.clock.boottime(), max(lease_seconds, self._etcd.lease_min_s)
        await self._reach()
        alive_until = asked_at + lease_seconds * (1 - LEASE_MARGIN)
        lease = FakeLease(self._etcd.grant(lease_seconds), alive_until, lease_seconds)
        keeper = asyncio.ensure_future(self._keep(lease, lease_seconds))
        try:
            yield lease
        finally:
            keeper.cancel()
            if not (self.is_cut or self.is_asleep or self._etcd.is_down):
                self._etcd.end_lease(lease.lease_id)

    async def _keep(self, lease: FakeLease, seconds: int) -> None:
        clock = self._etcd.clock
        while True:
            await clock.sleep(seconds / RENEWALS_PER_LEASE)
            if self.is_cut or self.is_refused or self.is_asleep or self._etcd.is_down:
                continue
            if not self._etcd.renew(lease.lease_id):
                lease.is_over = True
                return
            lease.alive_until = clock.boottime() + seconds * (1 - LEASE_MARGIN)

    async def _reach(self) -> None:
        if self._chance is not None:
            await self._etcd.clock.sleep(self._chance.uniform(0, 0.01))
        await self.is_free.wait()
        if self.is_cut or self._etcd.is_down:
            raise StoreUnreachable("nobody answers")
        if self.is_refused:
            raise StoreRefused("permission denied")

    def hear(self, changes: Changes) -> None:
        if not self.is_cut:
            for _, told in self._watches:
                told.put_nowait(changes)

    def end_watches(self) -> None:
        for _, told in self._watches:
            told.put_nowait(StoreUnreachable("nobody answers"))

    def cut(self) -> None:
        self.is_cut = True
        self.end_watches()


@dataclass
class FakeLease:
    lease_id: int
    alive_until: float
    granted_s: int
    is_over: bool = False
