"""`FleetStore` on etcd. Its calls block: they run in threads of this store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeVar

from broker.base.clock import Clock
from mirror.fleet.errors import StoreRefused, StoreUnreachable
from mirror.fleet.etcd.requests import commit_once, grant_lease, read_prefix, revoke_lease
from mirror.fleet.etcd.servers import Servers
from mirror.fleet.etcd.threads import LeaseThread, Told, WatchThread
from mirror.fleet.settings import FleetAccess
from mirror.fleet.store import Changes, Commit, Lease, Snapshot

T = TypeVar("T")

THREADS: Final = 8


class EtcdStore:
    """Use `open_etcd`."""

    def __init__(self, access: FleetAccess, clock: Clock) -> None:
        self._servers = Servers(access)
        self._clock = clock
        self._settings = access.settings
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="etcd")
        self._watches: set[WatchThread] = set()

    async def close(self) -> None:
        for watch in self._watches:
            watch.stop()
        await asyncio.to_thread(self._servers.close)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def read(self, prefix: str) -> Snapshot:
        return await self._in_thread(lambda: self._servers.any_of(lambda client: read_prefix(client, prefix)))

    async def commit(self, commit: Commit) -> int | None:
        # Not tried at another server: what was carried out once would be refused there.
        return await self._in_thread(lambda: self._servers.first(lambda client: commit_once(client, commit)))

    async def watch(self, prefix: str, after: int) -> AsyncGenerator[Changes, None]:
        told: asyncio.Queue[Told] = asyncio.Queue()
        watch = WatchThread(self._servers, prefix, after, asyncio.get_running_loop(), told)
        self._watches.add(watch)
        watch.start()
        try:
            while True:
                heard = await told.get()
                if isinstance(heard, Exception):
                    raise heard
                yield heard
        finally:
            watch.stop()
            self._watches.discard(watch)

    @asynccontextmanager
    async def lease(self, lease_seconds: int) -> AsyncIterator[Lease]:
        asked_at = self._clock.boottime()
        lease_id, granted_s = await self._in_thread(
            lambda: self._servers.any_of(lambda client: grant_lease(client, lease_seconds))
        )
        keeper = LeaseThread(self._servers, self._clock, self._settings, lease_id, granted_s, asked_at)
        keeper.start()
        try:
            yield keeper
        finally:
            is_over = keeper.is_over  # of itself: the thread that is stopped says so, too
            keeper.stop()
            if not is_over:
                # What cannot be ended here ends by itself.
                with suppress(StoreUnreachable, StoreRefused):
                    await self._in_thread(lambda: self._servers.first(lambda client: revoke_lease(client, lease_id)))

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


@asynccontextmanager
async def open_etcd(access: FleetAccess, clock: Clock) -> AsyncIterator[EtcdStore]:
    """The store, for as long as the context is open. Nothing is asked yet."""
    store = EtcdStore(access, clock)
    try:
        yield store
    finally:
        await asyncio.shield(store.close())
