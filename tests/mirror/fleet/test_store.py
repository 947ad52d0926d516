"""What every store of a fleet must do: etcd in memory, which the simulation stands on, and a real one."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from broker.base.clock import SystemClock
from mirror.fleet.errors import HistoryCompacted, StoreRefused, StoreUnreachable
from mirror.fleet.etcd.store import open_etcd
from mirror.fleet.settings import FleetSettings
from mirror.fleet.store import ABSENT, COMMIT_KEYS_MAX, Changes, Commit, FleetStore, Put, in_commits
from tests.mirror.fleet.etcd_server import EtcdServer
from tests.mirror.fleet.fake_etcd import FakeEtcd, FakeStore

PREFIX = "/test/"
LEASE_S = 3
WAIT_S = 120.0


class InMemory:
    def __init__(self) -> None:
        self.etcd = FakeEtcd(SystemClock())
        self.end_lease, self.compact = self.etcd.end_lease, self.etcd.compact
        self.stop, self.start = self.etcd.go_down, self.etcd.come_back

    @asynccontextmanager
    async def open(self) -> AsyncIterator[FleetStore]:
        yield FakeStore(self.etcd)


class Real:
    def __init__(self, server: EtcdServer) -> None:
        self._server = server
        self.stop, self.start = server.stop, server.start
        self.end_lease, self.compact = server.revoke, server.compact

    @asynccontextmanager
    async def open(self) -> AsyncIterator[FleetStore]:
        async with open_etcd(self._server.access(), SystemClock()) as store:
            yield store


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    # Its leases may be as short as a second.
    server = EtcdServer(tmp_path_factory.mktemp("etcd"), election_ms=300)
    server.start()
    yield server
    server.close()


@pytest.fixture(params=["memory", "etcd"])
def place(request: pytest.FixtureRequest) -> Iterator[InMemory | Real]:
    if request.param == "memory":
        yield InMemory()
        return
    server: EtcdServer = request.getfixturevalue("server")
    yield Real(server)
    server.start()
    server.empty(PREFIX)


async def next_of(changes: AsyncIterator[Changes]) -> Changes:
    async with asyncio.timeout(WAIT_S):
        return await anext(changes)


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not await condition():
        assert time.monotonic() < deadline_s, f"waited for {what}"
        await asyncio.sleep(0.02)


async def test_a_commit_is_carried_out_whole_or_not_at_all(place: InMemory | Real) -> None:
    async with place.open() as store:
        start = await store.read(PREFIX)
        assert start.items == {}
        first = await store.commit(Commit({PREFIX + "a": ABSENT}, {PREFIX + "a": Put("1"), PREFIX + "b": Put("2")}))
        assert first is not None
        assert first > start.revision
        refused = Commit({PREFIX + "a": first, PREFIX + "b": ABSENT}, {PREFIX + "a": Put("3"), PREFIX + "c": Put("4")})
        assert await store.commit(refused) is None
        again = await store.commit(Commit({PREFIX + "a": first}, {PREFIX + "a": Put("5"), PREFIX + "b": None}))
        assert again == first + 1
        read = await store.read(PREFIX)
        assert read.revision == again
        assert {key: (item.value, item.created) for key, item in read.items.items()} == {PREFIX + "a": ("5", first)}
        outside = await store.commit(Commit({}, {"/tesu": Put("not below")}))
        assert outside is not None
        assert (await store.read(PREFIX)).items.keys() == {PREFIX + "a"}
        await store.commit(Commit({}, {"/tesu": None}))


async def test_a_commit_can_ask_for_values(place: InMemory | Real) -> None:
    async with place.open() as store:
        await store.commit(Commit({}, {PREFIX + "plan": Put("me")}))
        put = {PREFIX + "held": Put("x")}
        assert await store.commit(Commit({}, put, {PREFIX + "plan": "you"})) is None
        assert await store.commit(Commit({}, put, {PREFIX + "none": "me"})) is None
        assert await store.commit(Commit({}, put, {PREFIX + "plan": "me"})) is not None


async def test_a_key_that_is_made_again_is_another(place: InMemory | Real) -> None:
    async with place.open() as store:
        first = await store.commit(Commit({}, {PREFIX + "a": Put("1")}))
        await store.commit(Commit({}, {PREFIX + "a": None}))
        assert first is not None
        assert await store.commit(Commit({PREFIX + "a": first}, {PREFIX + "b": Put("late")})) is None
        second = await store.commit(Commit({PREFIX + "a": ABSENT}, {PREFIX + "a": Put("2")}))
        assert second is not None
        assert (await store.read(PREFIX)).items[PREFIX + "a"].created == second > first


async def test_many_keys_are_read_and_written(place: InMemory | Real) -> None:
    count = 5_003
    async with place.open() as store:
        commits = in_commits({}, {f"{PREFIX}{n:05}": Put(str(n)) for n in range(count)})
        assert max(len(commit.puts) for commit in commits) == COMMIT_KEYS_MAX
        for commit in commits:
            assert await store.commit(commit) is not None
        read = await store.read(PREFIX)
        assert {key: item.value for key, item in read.items.items()} == {
            f"{PREFIX}{n:05}": str(n) for n in range(count)
        }


async def test_a_watch_tells_every_change_behind_a_revision(place: InMemory | Real) -> None:
    async with place.open() as store:
        seen = (await store.read(PREFIX)).revision
        made = await store.commit(Commit({}, {PREFIX + "a": Put("1"), PREFIX + "b": Put("2")}))
        async with aclosing(store.watch(PREFIX, seen)) as changes:
            told = await next_of(changes)
            assert told.revision == made
            assert {change.key: change.item and change.item.value for change in told.changes} == {
                PREFIX + "a": "1",
                PREFIX + "b": "2",
            }
            await store.commit(Commit({}, {"/other": Put("not ours")}))
            gone = await store.commit(Commit({}, {PREFIX + "a": None}))
            told = await next_of(changes)
            assert told.revision == gone
            assert [(change.key, change.item) for change in told.changes] == [(PREFIX + "a", None)]
        await store.commit(Commit({}, {"/other": None}))


async def test_a_watch_that_asks_for_what_is_forgotten_says_so(place: InMemory | Real) -> None:
    async with place.open() as store:
        seen = (await store.read(PREFIX)).revision
        for n in range(3):
            await store.commit(Commit({}, {PREFIX + "a": Put(str(n))}))
        place.compact()
        async with aclosing(store.watch(PREFIX, seen)) as changes:
            with pytest.raises(HistoryCompacted):
                await next_of(changes)
        async with aclosing(store.watch(PREFIX, (await store.read(PREFIX)).revision)) as changes:
            await store.commit(Commit({}, {PREFIX + "a": Put("new")}))
            assert (await next_of(changes)).changes[0].item is not None


async def test_what_is_put_under_a_lease_goes_when_its_owner_leaves(place: InMemory | Real) -> None:
    async with place.open() as store:
        async with store.lease(LEASE_S) as lease:
            await store.commit(Commit({}, {PREFIX + "mine": Put("1", lease.lease_id), PREFIX + "free": Put("2")}))
            assert not lease.is_over
        assert (await store.read(PREFIX)).items.keys() == {PREFIX + "free"}


async def test_a_lease_that_the_store_ended_is_over(place: InMemory | Real) -> None:
    async with place.open() as store, store.lease(LEASE_S) as lease:
        await store.commit(Commit({}, {PREFIX + "mine": Put("1", lease.lease_id)}))
        place.end_lease(lease.lease_id)

        async def is_over() -> bool:
            return lease.is_over

        await until(is_over, "the lease's end to be noticed")
        assert (await store.read(PREFIX)).items == {}
        with pytest.raises(StoreUnreachable):
            await store.commit(Commit({}, {PREFIX + "late": Put("1", lease.lease_id)}))


async def test_a_store_that_is_away_is_unreachable_and_keeps_leases(place: InMemory | Real) -> None:
    async with place.open() as store, store.lease(LEASE_S) as lease:
        await store.commit(Commit({}, {PREFIX + "mine": Put("1", lease.lease_id)}))
        async with aclosing(store.watch(PREFIX, (await store.read(PREFIX)).revision)) as changes:
            await store.commit(Commit({}, {PREFIX + "a": Put("x")}))
            await next_of(changes)
            place.stop()
            with pytest.raises(StoreUnreachable):
                await next_of(changes)
        with pytest.raises(StoreUnreachable):
            await store.read(PREFIX)
        with pytest.raises(StoreUnreachable):
            await store.commit(Commit({}, {PREFIX + "b": Put("y")}))
        until_s = lease.alive_until
        await asyncio.sleep(1.2 * LEASE_S)
        assert lease.alive_until == until_s < SystemClock().boottime(), "nobody renewed it"
        place.start()

        async def is_alive() -> bool:
            return lease.alive_until > SystemClock().boottime()

        await until(is_alive, "the lease to be renewed")
        assert not lease.is_over
        assert PREFIX + "mine" in (await store.read(PREFIX)).items


async def test_a_busy_event_loop_does_not_lose_a_lease(server: EtcdServer) -> None:
    """Only of the real one: its lease is renewed by a thread."""
    async with open_etcd(server.access(), SystemClock()) as store, store.lease(LEASE_S) as lease:
        await store.commit(Commit({}, {PREFIX + "busy": Put("1", lease.lease_id)}))
        time.sleep(1.2 * LEASE_S)  # noqa: ASYNC251 the loop is to stand still
        assert lease.alive_until > SystemClock().boottime()
        assert not lease.is_over
        assert PREFIX + "busy" in (await store.read(PREFIX)).items


async def test_a_worker_that_stands_still_is_not_kept_in_the_fleet(server: EtcdServer) -> None:
    access = server.access(FleetSettings(still_seconds=0.5))
    async with open_etcd(access, SystemClock()) as store, store.lease(LEASE_S) as lease:
        await store.commit(Commit({}, {PREFIX + "still": Put("1", lease.lease_id)}))
        time.sleep(0.5 + 2 * LEASE_S)  # noqa: ASYNC251 the loop is to stand still

        async def is_over() -> bool:
            return lease.is_over

        await until(is_over, "the lease's end to be noticed")
        assert PREFIX + "still" not in (await store.read(PREFIX)).items


async def test_what_many_workers_say_of_many_links_is_read(server: EtcdServer) -> None:
    """More than the 4 MiB that grpc takes in an answer where it is not told otherwise."""
    async with open_etcd(server.access(), SystemClock()) as store:
        start = (await store.read(PREFIX)).revision
        values = {f"{PREFIX}worker-{number}": str(number) * 1_000_000 for number in range(6)}
        for key, value in values.items():
            await store.commit(Commit({}, {key: Put(value)}))
        found = (await store.read(PREFIX)).items
        assert {key: found[key].value for key in values} == values
        async with aclosing(store.watch(PREFIX, start)) as changes:
            seen = 0
            while seen < len(values):
                seen += len((await next_of(changes)).changes)
    server.empty(PREFIX)


async def test_a_file_that_cannot_be_read_is_named(server: EtcdServer, tmp_path: Path) -> None:
    missing = tmp_path / "ca.pem"
    async with open_etcd(replace(server.access(), tls_ca_file=str(missing)), SystemClock()) as store:
        with pytest.raises(StoreRefused, match=re.escape(str(missing))):
            await store.read(PREFIX)
        with pytest.raises(StoreRefused, match=re.escape(str(missing))):
            async with aclosing(store.watch(PREFIX, 0)) as changes:
                await next_of(changes)
