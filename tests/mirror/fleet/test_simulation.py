"""Fleets on simulated time: a seed is a world, in which workers die, sleep, are cut off from etcd, and etcd goes away.

The members are the real ones, over etcd in memory; a unit's target is a fence, which lets only the last who opened it
write. At each opening the worker must hold the unit at etcd, unless it slept between its look and the fence; what
nothing disturbs any more is run by exactly one worker, and soon.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from mirror.coordinator.current import Current
from mirror.coordinator.model import Meter, Unit, UnitNotHeld
from mirror.coordinator.serving import serve_shares
from mirror.errors import LinkFenced
from mirror.fleet.keys import FleetKeys, read_holder
from mirror.fleet.member import FleetCoordinator, FleetMember
from mirror.fleet.settings import FleetSettings
from mirror.fleet.store import Commit, Put
from tests.mirror.fleet.fake_etcd import FakeEtcd, FakeStore
from tests.mirror.fleet.workers import offer_of, untold
from tests.mirror.simulation.loop import SimulatedClock, SimulatedLoop

LEASE_S = 2
SETTINGS = FleetSettings(lease_seconds=LEASE_S, without_etcd_seconds=20)
KEYS = FleetKeys(SETTINGS.prefix)
LENGTH_S = 90.0
QUIET_S = 90.0
"""After the last fault: the longest pause of a unit that ended by an error is over by then."""
TAKEOVER_S = LEASE_S + 1.0
WRITE_EVERY_S = 0.2
MIB = 1024 * 1024
NO_FAULTS: tuple[str, ...] = ()
FAULTS = ("kill", "sleep", "cut", "etcd", "drain", "join", "compact", "lose lease", "stop")


@dataclass
class Target:
    """What fences a unit: only the last who opened it writes."""

    opened: dict[Unit, object] = field(default_factory=dict)
    writes: dict[Unit, list[tuple[float, str]]] = field(default_factory=dict)


class Worker:
    """A process: it may sleep, and then nothing of it goes on."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.store = FakeStore(world.etcd, world.chance)
        self.awake = asyncio.Event()
        self.awake.set()
        self.slept_at = -1.0
        self.task: asyncio.Task[None] | None = None
        self.cpu_s = 0.0

    def start(self) -> None:
        self.task = asyncio.ensure_future(self.run())

    async def run(self) -> None:
        clock, offer = _Sleepy(self), Current(offer_of(self.world.links))
        coordinator = FleetCoordinator(self.store, self.name, offer, clock, untold, SETTINGS, lambda: self.cpu_s)
        async with coordinator.member() as member:
            assert isinstance(member, FleetMember)

            async def run_unit(unit: Unit) -> None:
                while True:
                    try:
                        await self._run_session(member, unit)
                    except UnitNotHeld:
                        await self.pause(0.2)
                    except LinkFenced as error:
                        await member.goes_on_after(unit, error)

            await serve_shares(member, run_unit)

    async def _run_session(self, member: FleetMember, unit: Unit) -> None:
        world, permit = self.world, member.permit(unit)
        await permit.wait()
        await self.pause(world.chance.uniform(0, 0.2))  # reads states and topics
        permit.check()
        checked_at = world.now
        if world.chance.random() < 0.5:
            await self.pause(0.0)
        if self.slept_at < checked_at:
            world.check_opening(self, unit)
        session = object()
        world.target.opened[unit] = session
        await self.pause(world.chance.uniform(0, 0.2))
        while True:
            if world.target.opened[unit] is not session:
                raise LinkFenced(f"{unit} was taken over")
            world.target.writes.setdefault(unit, []).append((world.now, self.name))
            self._count(member.meter(unit), world.rates.get(unit, 0.0))
            await self.pause(WRITE_EVERY_S)

    def _count(self, meter: Meter, rate: float) -> None:
        """What one write moves of so many MiB a second, 100 of which keep a core busy."""
        moved = rate * WRITE_EVERY_S * self.world.chance.uniform(0.5, 1.5)
        meter.acknowledged_bytes += int(moved * MIB)
        meter.acknowledged_records += int(moved * 1024)
        meter.lag_offsets = int(self.world.chance.uniform(0, 1024 * rate))
        self.cpu_s += moved / 100

    async def pause(self, seconds: float) -> None:
        await self.world.clock.sleep(seconds)
        await self.awake.wait()

    def kill9(self) -> None:
        """Without a word to etcd: the lease runs out."""
        self.store.is_asleep = True
        self.store.cut()
        assert self.task is not None
        self.task.cancel()

    async def sleep_for(self, seconds: float) -> None:
        self.awake.clear()
        self.store.is_asleep = True
        await self.world.clock.sleep(seconds)
        self.slept_at = self.world.now
        self.store.is_asleep = False
        self.awake.set()


class _Sleepy(SimulatedClock):
    """The clock of a process that may be put to sleep."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker.world.loop)
        self._worker = worker

    async def sleep(self, seconds: float) -> None:
        await self._worker.pause(seconds)


class World:
    def __init__(self, seed: int, faults: tuple[str, ...], workers: int = 3, units: int = 7) -> None:
        self.loop = SimulatedLoop()
        self.clock = SimulatedClock(self.loop)
        self.chance = random.Random(seed)
        self.faults = faults
        self.links = [f"link-{n}" for n in range(units)]
        self.units = [Unit(link) for link in self.links]
        self.target = Target()
        self.rates: dict[Unit, float] = {}
        """Of units in MiB per second."""
        self.workers: list[Worker] = []
        self._first = workers
        self._number = 0

    @property
    def now(self) -> float:
        return self.loop.now

    def run(self, then: Callable[[], Awaitable[None]] | None = None) -> None:
        self.loop.run(self._main(then))

    def join(self) -> Worker:
        worker = Worker(self, f"worker-{self._number}")
        self._number += 1
        self.workers.append(worker)
        worker.start()
        return worker

    async def _main(self, then: Callable[[], Awaitable[None]] | None) -> None:
        self.etcd = FakeEtcd(self.clock)
        for _ in range(self._first):
            self.join()
        while self.faults and self.now < LENGTH_S:
            await self.clock.sleep(self.chance.uniform(0.5, 6.0))
            await self._fault(self.chance.choice(self.faults))
        if not self.workers:
            self.join()
        await self.clock.sleep(QUIET_S)
        self.check_quiet()
        if then is not None:
            await then()
        for worker in self.workers:
            if worker.task is not None and worker.task.done():
                worker.task.result()

    async def _fault(self, fault: str) -> None:
        worker = self.chance.choice(self.workers) if self.workers else self.join()
        match fault:
            case "kill":
                worker.kill9()
                self.workers.remove(worker)
            case "stop":
                assert worker.task is not None
                worker.task.cancel()
                self.workers.remove(worker)
            case "sleep":
                await worker.sleep_for(self.chance.uniform(0.1, 8.0))
            case "cut":
                worker.store.cut()
                await self.clock.sleep(self.chance.choice((0.5, 3.0, 30.0)))
                worker.store.is_cut = False
            case "etcd":
                self.etcd.go_down()
                await self.clock.sleep(self.chance.choice((0.5, 3.0, 30.0)))
                self.etcd.come_back()
            case "drain":
                key = KEYS.drained(worker.name)
                await FakeStore(self.etcd).commit(Commit({}, {key: None if key in self.etcd.items else Put("x")}))
            case "join":
                self.join()
            case "compact":
                self.etcd.compact()
            case "lose lease":
                self.etcd.end_lease(self.chance.randrange(1, 30))

    def check_opening(self, worker: Worker, unit: Unit) -> None:
        item = self.etcd.items.get(KEYS.held(unit))
        holder = read_holder(item.value) if item is not None else None
        assert holder is not None, f"{worker.name} opens {unit}, which nobody holds"
        assert holder.worker == worker.name, f"{worker.name} opens {unit}, which {holder.worker} holds"

    def check_quiet(self) -> None:
        """Each unit is written by one worker, which is not drained, if any is not; none is idle."""
        names = {worker.name for worker in self.workers}
        drained = {name for name in names if KEYS.drained(name) in self.etcd.items}
        for unit in self.units if names - drained else ():
            last = [(at, name) for at, name in self.target.writes[unit] if at > self.now - 10]
            writers = {name for _, name in last}
            assert len(writers) == 1, f"{unit} is written by {writers or 'nobody'} at the end"
            assert writers <= names - drained
            assert longest_pause(last, self.now) < 1.0


def longest_pause(writes: list[tuple[float, str]], until: float) -> float:
    times = [at for at, _ in writes] + [until]
    return max(after - before for before, after in pairwise(times))


@pytest.mark.parametrize("seed", range(16))
def test_worlds(seed: int) -> None:
    World(seed, FAULTS).run()


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_worker_is_replaced_in_time(seed: int) -> None:
    world = World(seed, NO_FAULTS)

    async def kill_one() -> None:
        await world.clock.sleep(world.chance.random())
        before = world.now
        moved = {unit: {n for at, n in world.target.writes[unit] if at > before - 5} for unit in world.units}
        gone = world.chance.choice(world.workers)
        gone.kill9()
        world.workers.remove(gone)
        await world.clock.sleep(20)
        for unit in world.units:
            writes = [(at, name) for at, name in world.target.writes[unit] if at > before - 1]
            if moved[unit] == {gone.name}:
                assert longest_pause(writes, world.now) < TAKEOVER_S
                assert writes[-1][1] != gone.name
        untouched = [unit for unit in world.units if moved[unit] != {gone.name}]
        assert untouched
        for unit in untouched:
            # Balance may move one of them later; it leaves and is opened, and no more.
            writes = [(at, name) for at, name in world.target.writes[unit] if at > before - 1]
            assert longest_pause(writes, world.now) < 1.0

    world.run(kill_one)


def test_nothing_is_written_where_nothing_happens() -> None:
    world = World(1, NO_FAULTS)

    async def look() -> None:
        revision, epochs = world.etcd.revision, dict(world.target.opened)
        await world.clock.sleep(600)
        assert world.etcd.revision == revision
        assert world.target.opened == epochs, "no unit was opened anew"

    world.run(look)


def test_what_runs_goes_on_without_etcd_until_the_limit() -> None:
    world = World(2, NO_FAULTS)

    async def look() -> None:
        epochs = dict(world.target.opened)
        world.etcd.go_down()
        await world.clock.sleep(LEASE_S + SETTINGS.without_etcd_seconds - 2)
        for unit in world.units:
            assert world.target.writes[unit][-1][0] > world.now - 1
        assert world.target.opened == epochs
        await world.clock.sleep(4)
        for unit in world.units:
            assert world.target.writes[unit][-1][0] < world.now - 1, "the limit is over"
        world.etcd.come_back()
        await world.clock.sleep(15)
        world.check_quiet()

    world.run(look)


def test_a_worker_that_is_cut_off_opens_nothing_and_leaves_to_the_others() -> None:
    world = World(3, NO_FAULTS)

    async def look() -> None:
        alone = world.workers[0]
        mine = {unit for unit in world.units if world.target.writes[unit][-1][1] == alone.name}
        assert mine
        alone.store.cut()
        await world.clock.sleep(10)
        for unit in mine:
            assert world.target.writes[unit][-1][1] != alone.name
        since = world.now
        await world.clock.sleep(60)
        writers = {name for unit in world.units for at, name in world.target.writes[unit] if at > since}
        assert alone.name not in writers
        alone.store.is_cut = False
        await world.clock.sleep(30)
        assert {world.target.writes[unit][-1][1] for unit in world.units} == {worker.name for worker in world.workers}

    world.run(look)


def last_writers(world: World) -> dict[Unit, str]:
    return {unit: writes[-1][1] for unit, writes in world.target.writes.items()}


@pytest.mark.parametrize("seed", range(2))
def test_loads_that_waver_move_nothing_and_are_hardly_written(seed: int) -> None:
    world = World(seed, NO_FAULTS, units=9)
    world.rates = {unit: 2.0 + n % 3 for n, unit in enumerate(world.units)}

    async def look() -> None:
        await world.clock.sleep(120)
        epochs, revision = dict(world.target.opened), world.etcd.revision
        await world.clock.sleep(600)
        assert world.target.opened == epochs, "no unit was opened anew"
        assert world.etcd.revision - revision <= 6, "so many writes of three workers in ten minutes"

    world.run(look)


@pytest.mark.parametrize("seed", range(2))
def test_a_load_that_shifts_is_shared_out_one_unit_after_the_other(seed: int) -> None:
    world = World(seed, NO_FAULTS, units=12)
    world.rates = dict.fromkeys(world.units, 2.0)

    async def look() -> None:
        before = last_writers(world)
        hot = world.chance.choice(world.workers).name
        world.rates = {unit: 20.0 if name == hot else 2.0 for unit, name in before.items()}
        moved_at = []
        for _ in range(300):
            await world.clock.sleep(1)
            now = last_writers(world)
            moved_at += [world.now] * sum(now[unit] != name for unit, name in before.items())
            before = now
        assert 1 <= len(moved_at) <= 4
        assert all(after - earlier > 0.9 * SETTINGS.ease_every_seconds for earlier, after in pairwise(moved_at))
        loads = {
            worker.name: sum(world.rates[u] for u, name in before.items() if name == worker.name)
            for worker in world.workers
        }
        assert max(loads.values()) <= 48.0, f"of 96 MiB a second: {loads}"
        world.check_quiet()

    world.run(look)


def test_a_worker_that_was_drained_for_a_moment_gets_its_part_again() -> None:
    world = World(1, NO_FAULTS)

    async def look() -> None:
        store, worker = FakeStore(world.etcd), world.workers[0]
        await store.commit(Commit({}, {KEYS.drained(worker.name): Put("")}))
        await world.clock.sleep(2)
        assert worker.name not in last_writers(world).values()
        await store.commit(Commit({}, {KEYS.drained(worker.name): None}))
        await world.clock.sleep(2 * SETTINGS.settle_seconds)
        assert worker.name in last_writers(world).values()

    world.run(look)
