"""A member whose store tells it less than the truth."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from mirror.coordinator.current import Current
from mirror.coordinator.model import Share, Unit
from mirror.coordinator.serving import serve_shares
from mirror.fleet.errors import HistoryCompacted, StoreRefused
from mirror.fleet.keys import FleetKeys, HolderRecord
from mirror.fleet.member import FleetCoordinator
from mirror.fleet.settings import FleetSettings
from mirror.fleet.store import Change, Changes, Commit, Put, Snapshot
from tests.mirror.fleet.fake_etcd import FakeEtcd, FakeStore
from tests.mirror.fleet.workers import offer_of, untold
from tests.mirror.simulation.loop import SimulatedClock, SimulatedLoop

SETTINGS = FleetSettings()
KEYS = FleetKeys(SETTINGS.prefix)
RED = Unit("red")


class Forgetful(FakeStore):
    """Its first watch asks for what is forgotten."""

    watched = 0

    async def watch(self, prefix: str, after: int) -> AsyncGenerator[Changes, None]:
        self.watched += 1
        if self.watched == 1:
            raise HistoryCompacted("forgotten")
        async for changes in super().watch(prefix, after):
            yield changes


class Late(FakeStore):
    """Its process's event loop stands still for half a second behind each commit that puts what it holds."""

    async def commit(self, commit: Commit) -> int | None:
        done = await super().commit(commit)
        if done is not None and any(key.startswith(KEYS.held(Unit(""))) and put for key, put in commit.puts.items()):
            self.is_free.clear()
            await self._etcd.clock.sleep(0.5)
            self.is_free.set()
        return done


class Blind(FakeStore):
    """It does not see who holds what."""

    async def read(self, prefix: str) -> Snapshot:
        snapshot = await super().read(prefix)
        seen = {key: item for key, item in snapshot.items.items() if key != KEYS.held(RED)}
        return Snapshot(snapshot.revision, seen)


async def share_after(store: FakeStore, clock: SimulatedClock, seconds: float) -> Share:
    """What a worker that is alone on this store runs so much later."""
    coordinator = FleetCoordinator(store, "one", Current(offer_of(["red"])), clock, untold, SETTINGS)
    last: Share = frozenset()
    async with coordinator.member() as member:
        try:
            async with asyncio.timeout(seconds):
                async for share in member.shares():
                    last = share
        except TimeoutError:
            return last
    raise AssertionError("shares end never")


def test_a_watch_that_asks_for_what_is_forgotten_reads_everything_anew() -> None:
    loop = SimulatedLoop()
    clock = SimulatedClock(loop)

    async def main() -> None:
        store = Forgetful(FakeEtcd(clock))
        assert await share_after(store, clock, 10) == {RED}
        assert store.watched == 2

    loop.run(main())


def test_what_another_holds_is_not_taken_whatever_the_view_says() -> None:
    loop = SimulatedLoop()
    clock = SimulatedClock(loop)

    async def main() -> None:
        etcd = FakeEtcd(clock)
        held = HolderRecord(worker="ghost", joined=1).model_dump_json()
        etcd.commit(Commit({}, {KEYS.held(RED): Put(held)}))
        assert await share_after(Blind(etcd), clock, 10) == frozenset()
        assert etcd.items[KEYS.held(RED)].value == held
        assert etcd.items[KEYS.plan(RED)].value == "one"

    loop.run(main())


def test_a_key_that_nobody_can_read_concerns_nothing_else() -> None:
    loop = SimulatedLoop()
    clock = SimulatedClock(loop)

    async def main() -> None:
        etcd = FakeEtcd(clock)
        strange = {
            KEYS.worker("odd"): "{",
            KEYS.worker("bare"): "{}",
            KEYS.held(Unit("blue")): "x",
            KEYS.prefix + "?": "",
        }
        etcd.commit(Commit({}, {key: Put(value) for key, value in strange.items()}))
        assert await share_after(FakeStore(etcd), clock, 10) == {RED}

    loop.run(main())


def test_units_that_leave_together_are_let_go_together() -> None:
    loop = SimulatedLoop()
    clock = SimulatedClock(loop)
    links = [f"link-{number:02}" for number in range(40)]

    async def main() -> None:
        etcd = FakeEtcd(clock)
        revisions: dict[int, int] = {}

        def heard(changes: Changes) -> None:
            ended = sum(
                change.item is None and change.key.startswith(KEYS.held(Unit(""))) for change in changes.changes
            )
            if ended:
                revisions[changes.revision] = ended

        etcd.listeners.append(heard)
        async with asyncio.TaskGroup() as tasks:
            serving = [tasks.create_task(serve(FakeStore(etcd), name)) for name in ("one", "two")]
            await clock.sleep(60)
            (let_go,) = revisions.values()
            assert let_go > 10
            held = [item.value for key, item in etcd.items.items() if key.startswith(KEYS.held(Unit("")))]
            assert (len(held), sum('"two"' in holder for holder in held)) == (40, let_go)
            for each in serving:
                each.cancel()

    async def serve(store: FakeStore, name: str) -> None:
        if name == "two":
            await clock.sleep(30)
        coordinator = FleetCoordinator(store, name, Current(offer_of(links)), clock, untold, SETTINGS)
        async with coordinator.member() as member:
            await serve_shares(member, run)

    async def run(_unit: Unit) -> None:
        await asyncio.Event().wait()

    loop.run(main())


def test_what_is_planned_away_before_its_taker_saw_that_it_has_it_is_let_go() -> None:
    loop = SimulatedLoop()
    clock = SimulatedClock(loop)
    runs: set[tuple[str, Unit]] = set()

    async def main() -> None:
        etcd = FakeEtcd(clock)
        taken = asyncio.Event()

        def heard(changes: Changes) -> None:
            if any(change.item is not None and '"late"' in change.item.value for change in held_in(changes)):
                taken.set()

        etcd.listeners.append(heard)
        etcd.commit(Commit({}, {KEYS.drained("first"): Put("")}))
        async with asyncio.TaskGroup() as tasks:
            serving = [tasks.create_task(serve(FakeStore(etcd), "first"))]
            await clock.sleep(1)
            serving.append(tasks.create_task(serve(Late(etcd), "late")))
            await taken.wait()
            etcd.commit(Commit({}, {KEYS.drained("late"): Put(""), KEYS.drained("first"): None}))
            await clock.sleep(3)
            assert runs == {("first", RED), ("first", Unit("blue"))}
            assert all('"first"' in etcd.items[KEYS.held(unit)].value for _, unit in runs)
            for each in serving:
                each.cancel()

    async def serve(store: FakeStore, name: str) -> None:
        async def run(unit: Unit) -> None:
            runs.add((name, unit))
            try:
                await asyncio.Event().wait()
            finally:
                runs.remove((name, unit))

        coordinator = FleetCoordinator(store, name, Current(offer_of(["red", "blue"])), clock, untold, SETTINGS)
        async with coordinator.member() as member:
            await serve_shares(member, run)

    loop.run(main())


def held_in(changes: Changes) -> list[Change]:
    return [change for change in changes.changes if change.key.startswith(KEYS.held(Unit("")))]


def test_who_is_in_the_fleet_lives_through_a_time_without_rights() -> None:
    loop = SimulatedLoop()
    clock = SimulatedClock(loop)

    async def main() -> None:
        store = FakeStore(etcd := FakeEtcd(clock))
        working = asyncio.create_task(share_after(store, clock, 60))
        await clock.sleep(10)
        store.is_refused = True
        await clock.sleep(2 * SETTINGS.lease_seconds + 1)
        assert KEYS.worker("one") not in etcd.items, "nobody renewed its lease"
        store.is_refused = False
        await clock.sleep(10)
        assert KEYS.held(RED) in etcd.items
        assert await working == {RED}

    loop.run(main())


def test_who_is_refused_before_he_is_in_the_fleet_hears_it() -> None:
    loop = SimulatedLoop()
    clock = SimulatedClock(loop)

    async def main() -> None:
        store = FakeStore(FakeEtcd(clock))
        store.is_refused = True
        with pytest.raises(StoreRefused):
            await share_after(store, clock, 10)

    loop.run(main())


def test_a_name_is_free_when_the_lease_that_etcd_granted_is_over() -> None:
    loop = SimulatedLoop()
    clock = SimulatedClock(loop)

    async def main() -> None:
        etcd = FakeEtcd(clock, lease_min_s=20)
        etcd.commit(Commit({}, {KEYS.worker("one"): Put(offer_of(["red"]).model_dump_json(), etcd.grant(20))}))
        assert await share_after(FakeStore(etcd), clock, 30) == {RED}

    loop.run(main())
