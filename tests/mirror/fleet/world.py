"""A fleet on simulated time: a seed is a world, in which workers die, sleep, are cut off from etcd, and etcd goes away.

The members are the real ones, over etcd in memory; a unit's target is a fence, which lets only the last who opened it
write. What is asserted all along: at each opening the worker holds the unit at etcd, unless it slept between its look
and the fence; what a session believes to be its epoch is one that etcd gave to this worker; and while a worker is
there that could, no unit is without an owner for longer than OWNERLESS_S. What nothing disturbs any more is run by
exactly one worker, and soon.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from mirror.coordinator.current import Current
from mirror.coordinator.model import Meter, Unit, UnitNotHeld
from mirror.coordinator.serving import serve_shares
from mirror.errors import LinkFenced
from mirror.fleet.keys import FleetKeys, OfferedLink, read_holder
from mirror.fleet.member import FleetCoordinator, FleetMember
from mirror.fleet.settings import FleetSettings
from mirror.fleet.store import Changes, Commit, Put
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
OWNERLESS_S = 2 * LEASE_S + 1.0
"""Behind the last fault: a worker's lease ends, and that of whom it was given to meanwhile."""
LOOK_S = 0.1
WRITE_EVERY_S = 0.2
BACKOFF_S = 1.0
"""Between two sessions of a worker that loses none of its units by that."""
SHORT_S = 5.0
"""What one lasts that fails soon: until its next heartbeat, say."""
LASTING_S = 30.0
"""What a session that began well lasts at least."""
MIB = 1024 * 1024
NO_FAULTS: tuple[str, ...] = ()
FAULTS = ("kill", "sleep", "cut", "etcd", "drain", "join", "compact", "lose lease", "stop", "leave")


@dataclass
class Target:
    """What fences a unit: only the last who opened it writes."""

    opened: dict[Unit, object] = field(default_factory=dict)
    opened_by: dict[Unit, str] = field(default_factory=dict)
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
        self.stopping = asyncio.Event()

    def start(self) -> None:
        self.task = asyncio.ensure_future(self.run())

    async def run(self) -> None:
        clock, offer = _Sleepy(self), Current(offer_of(self.world.links, units=self.world.cut))
        coordinator = FleetCoordinator(
            self.store, self.name, offer, clock, untold, SETTINGS, lambda: self.cpu_s, self.stopping
        )
        async with coordinator.member() as member:
            assert isinstance(member, FleetMember)

            async def run_unit(unit: Unit) -> None:
                while True:
                    try:
                        await self._run_session(member, unit)
                    except UnitNotHeld:
                        await self.pause(0.2)
                    except ConnectionError:
                        member.meter(unit).ended(failed=True)
                        await self.pause(BACKOFF_S)
                    except LinkFenced as error:
                        await member.goes_on_after(unit, error)

            await serve_shares(member, run_unit)

    async def _run_session(self, member: FleetMember, unit: Unit) -> None:
        world, permit = self.world, member.permit(unit)
        await permit.begin()
        await self.pause(world.chance.uniform(0, 0.2))  # connects
        if not permit.is_given:
            await self.pause(world.chance.uniform(0, 0.4))
            world.counts["prepared"] += 1
            await permit.wait(is_prepared=self.name not in world.never_ready)
        else:
            await self.pause(world.chance.uniform(0, 0.4))  # reads states and topics
        if self.name in world.out_of_reach:
            raise LinkFenced("stands for whatever ends a session before it is opened")
        permit.check()
        world.judge.opens(self.name, unit, member)
        checked_at = world.now
        if world.chance.random() < 0.5:
            await self.pause(0.0)
        if self.slept_at < checked_at:
            world.check_opening(self, unit)
        session = object()
        member.meter(unit).opened()
        opened_at = world.now
        world.target.opened[unit], world.target.opened_by[unit] = session, self.name
        await self.pause(world.chance.uniform(0, 0.2))
        while True:
            if world.target.opened[unit] is not session:
                raise LinkFenced(f"{unit} was taken over")
            if self.name in world.fails_soon:
                await self.pause(SHORT_S)
                raise ConnectionError("stands for whatever ends a session that was opened, and not the unit's run")
            if world.now - opened_at > LASTING_S:
                member.meter(unit).lasted()
            world.counts["writes"] += 1
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


class Judge:
    """Hears every change at etcd, and what each worker does by what it believes."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._given: dict[tuple[Unit, int], str] = {}
        """To whom etcd gave a unit, by the epoch."""
        self._ownerless_since: dict[Unit, float] = {}
        self.longest_ownerless_s = 0.0

    def hear(self, changes: Changes) -> None:
        for change in changes.changes:
            unit = self._units.get(change.key)
            if unit is None:
                continue
            if change.item is None:
                self._ownerless_since.setdefault(unit, self._world.now)
                continue
            holder = read_holder(change.item.value)
            assert holder is not None
            self._given[unit, change.item.created] = holder.worker
            self._ownerless_since.pop(unit, None)

    @cached_property
    def _units(self) -> dict[str, Unit]:
        return {KEYS.held(unit): unit for unit in self._world.units}

    def opens(self, worker: str, unit: Unit, member: FleetMember) -> None:
        """etcd gave this worker the epoch that it believes to hold."""
        view = member._belief.view
        assert view is not None
        epoch = view.held[unit].epoch
        given = self._given.get((unit, epoch))
        assert given == worker, f"{worker} opens {unit} in epoch {epoch}, which was {given}'s"
        self._world.counts["openings"] += 1

    def forget(self) -> None:
        """etcd was restored: it gives revisions, and so epochs, a second time."""
        self._given.clear()

    async def watch_owners(self) -> None:
        """Until cancelled."""
        world = self._world
        while True:
            await world.clock.sleep(LOOK_S)
            calm_s = world.now - world.disturbed_at
            if world.etcd.is_down or not world.could_run():
                self._ownerless_since = dict.fromkeys(self._ownerless_since, world.now)
                continue
            for unit, since in self._ownerless_since.items():
                for_s = min(world.now - since, calm_s)
                self.longest_ownerless_s = max(self.longest_ownerless_s, for_s)
                assert for_s <= OWNERLESS_S, f"{unit} has no owner since {since:.1f} at {world.now:.1f}"


class World:
    def __init__(
        self, seed: int, faults: tuple[str, ...] = FAULTS, workers: int = 3, units: int = 7, cut: int = 0
    ) -> None:
        """`units` links, each `cut` into so many units, if not 0."""
        self.loop = SimulatedLoop()
        self.clock = SimulatedClock(self.loop)
        self.chance = random.Random(seed)
        self.faults = faults
        self.links = [f"link-{n}" for n in range(units)]
        self.cut = cut
        offered = OfferedLink(target="", declared="", units=cut)
        self.units = [unit for link in self.links for unit in offered.units_of(link)]
        self.target = Target()
        self.out_of_reach: set[str] = set()
        """Workers that reach no target."""
        self.fails_soon: set[str] = set()
        """Workers whose sessions are opened, and fail with their first batch."""
        self.never_ready: set[str] = set()
        """Workers that can prepare nothing."""
        self.rates: dict[Unit, float] = {}
        """Of units in MiB per second."""
        self.workers: list[Worker] = []
        self.judge = Judge(self)
        self.counts: Counter[str] = Counter()
        self.trace: list[str] = []
        self.disturbed_at = 0.0
        """When a fault began or ended last."""
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
        self.etcd.listeners.append(self.judge.hear)
        owners = asyncio.ensure_future(self.judge.watch_owners())
        for _ in range(self._first):
            self.join()
        while self.faults and self.now < LENGTH_S:
            await self.clock.sleep(self.chance.uniform(0.5, 6.0))
            if owners.done():
                owners.result()
            await self._disturb(self.chance.choice(self.faults))
        if not self.workers:
            self.join()
        await self.clock.sleep(QUIET_S)
        self.check_quiet()
        if then is not None:
            await then()
        for worker in self.workers:
            if worker.task is not None and worker.task.done():
                worker.task.result()
        if owners.done():
            owners.result()
        owners.cancel()

    def could_run(self) -> bool:
        """Whether a worker lives that is not drained, is awake and hears etcd."""
        return any(
            worker.awake.is_set() and not worker.store.is_cut and KEYS.drained(worker.name) not in self.etcd.items
            for worker in self.workers
        )

    async def _disturb(self, fault: str) -> None:
        self.counts[fault] += 1
        self.trace.append(f"{self.now:.2f} {fault}")
        self.disturbed_at = self.now
        await self._fault(fault)
        self.trace.append(f"{self.now:.2f} {fault} is over")
        self.disturbed_at = self.now

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
            case "leave":
                worker.stopping.set()
                self.workers.remove(worker)
                await self.clock.sleep(self.chance.uniform(0, 2 * SETTINGS.leave_seconds))
                assert worker.task is not None
                if not worker.task.done():
                    worker.kill9()
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
