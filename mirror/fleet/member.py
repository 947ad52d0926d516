"""A worker as a member of a fleet: it joins, follows the keys, takes what is planned for it, and leads when it must.

Decisions are `belief.py`'s and `leading.py`'s; here they meet the store and the clock. All on one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from typing import Final

from broker.base.clock import Clock
from broker.base.errors import first_of
from mirror.coordinator.model import Member, Permit, Share, Unit, UnitNotHeld
from mirror.fleet.belief import Belief
from mirror.fleet.errors import FleetError, HistoryCompacted, StoreUnreachable, WorkerNameTaken
from mirror.fleet.events import FleetEvent, FleetSink
from mirror.fleet.keys import FleetKeys, HolderRecord, WorkerRecord
from mirror.fleet.leading import decide
from mirror.fleet.settings import FleetSettings
from mirror.fleet.store import ABSENT, Commit, FleetStore, Lease, Put, in_commits
from mirror.fleet.view import FleetView

TICK_S: Final = 0.1
"""How soon it is noticed that time alone changed something: a lease that ran out, a limit that passed."""
TAKEN_AT_ONCE: Final = 32
LOOK_AGAIN_S: Final = 5.0
"""Everything is looked at again after this, also where nothing is heard of."""


class FleetCoordinator:
    """Joins a worker of this name, with what it offers, to the fleet that the store keeps."""

    def __init__(
        self,
        store: FleetStore,
        name: str,
        offer: WorkerRecord,
        clock: Clock,
        tell: FleetSink,
        settings: FleetSettings | None = None,
    ) -> None:
        self._store, self._name, self._offer, self._clock, self._tell = store, name, offer, clock, tell
        self._settings = settings or FleetSettings()

    def member(self) -> AbstractAsyncContextManager[Member]:
        """While the store does not answer the member has no share, and waits. Raises WorkerNameTaken, StoreRefused."""
        return self._join()

    @asynccontextmanager
    async def _join(self) -> AsyncIterator[Member]:
        member = FleetMember(self._store, self._name, self._offer, self._clock, self._tell, self._settings)
        users: Exception | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                run = tasks.create_task(member.run())
                try:
                    yield member
                except Exception as error:  # noqa: BLE001 whatever it is: it is raised as it came, not in a group
                    users = error
                finally:
                    run.cancel()
        except BaseExceptionGroup as group:
            ended, others = group.split(FleetError)
            if ended is None or others is not None:
                raise
            raise first_of(ended) from group
        if users is not None:
            raise users


class FleetMember:
    """Use `FleetCoordinator.member`."""

    def __init__(
        self,
        store: FleetStore,
        name: str,
        offer: WorkerRecord,
        clock: Clock,
        tell: FleetSink,
        settings: FleetSettings,
    ) -> None:
        self._store, self._offer, self._clock, self._tell, self._settings = store, offer, clock, tell, settings
        self.worker_id = name
        self._keys = FleetKeys(settings.prefix)
        self._belief = Belief(name, settings.without_etcd_seconds)
        self._bell = _Bell()
        self._is_reachable = True
        self._taken_at: dict[Unit, int] = {}
        """The revision at which the store gave a unit to this worker, which the view may not show yet."""
        self._pauses: dict[Unit, tuple[float, float]] = {}
        """Of units that ended by an error: how long the last pause was, and when it ended."""

    # What the worker asks.

    async def shares(self) -> AsyncIterator[Share]:
        last: Share | None = None
        while True:
            rung = self._bell.next
            share = self._belief.share(self._clock.boottime())
            if share != last:
                last = share
                yield share
            else:
                await rung.wait()

    def permit(self, unit: Unit) -> Permit:
        return _Permit(unit, self._belief, self._bell, self._clock)

    async def released(self, unit: Unit) -> None:
        self._belief.releasing.add(unit)
        self._bell.ring()

    async def goes_on_after(self, unit: Unit, error: Exception) -> bool:
        """A fleet gives no unit up: whatever ended it here may be over, or not be so at another worker."""
        settings, now = self._settings, self._clock.monotonic()
        pause_s, ended_at = self._pauses.get(unit, (0.0, now))
        if now - ended_at > settings.again_after_max_seconds:
            pause_s = 0.0
        pause_s = min(2 * pause_s or settings.again_after_seconds, settings.again_after_max_seconds)
        self._pauses[unit] = pause_s, now + pause_s
        await self._clock.sleep(pause_s)
        return True

    # What it does meanwhile.

    async def run(self) -> None:
        """Until cancelled. Raises WorkerNameTaken, StoreRefused."""
        belief = self._belief
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._tick())
            while True:
                try:
                    async with self._store.lease(self._settings.lease_seconds) as lease:
                        await self._join(lease)
                        try:
                            await self._live(lease)
                        finally:
                            belief.joined = 0
                    self._tell(FleetEvent.LEASE_LOST)
                except StoreUnreachable as error:
                    self._hear_nothing(error)
                    await self._clock.sleep(self._settings.retry_seconds)

    async def _tick(self) -> None:
        """Rings when time alone changed what this worker may believe."""
        belief, before, was_alive, in_doubt = self._belief, frozenset[Unit](), False, False
        while True:
            now = self._clock.boottime()
            share, is_alive = belief.share(now), belief.is_alive(now)
            if (share, is_alive) != (before, was_alive):
                self._bell.ring()
            if belief.joined and in_doubt == is_alive:
                in_doubt = not is_alive
                self._tell(FleetEvent.LEASE_IN_DOUBT if in_doubt else FleetEvent.LEASE_RENEWED)
            before, was_alive = share, is_alive
            await self._clock.sleep(TICK_S)

    async def _join(self, lease: Lease) -> None:
        """Put this worker's key. An earlier worker of the name may need its lease's time to be gone."""
        key, wait_s = self._keys.worker(self.worker_id), self._settings.name_wait_leases * self._settings.lease_seconds
        give_up_at = self._clock.monotonic() + wait_s
        put = Put(self._offer.model_dump_json(), lease.lease_id)
        while (revision := await self._store.commit(Commit({key: ABSENT}, {key: put}))) is None:
            if self._clock.monotonic() > give_up_at:
                raise WorkerNameTaken(f"the fleet has a worker {self.worker_id}, and it lives")
            await self._clock.sleep(self._settings.retry_seconds)
        # What was known before may be of another etcd, if that was put up anew: its revisions mean nothing here.
        self._taken_at.clear()
        self._belief.view, self._belief.lease, self._belief.joined = None, lease, revision
        self._tell(FleetEvent.JOINED, revision=revision)
        self._hear()

    async def _live(self, lease: Lease) -> None:
        """For as long as the lease does."""
        async with asyncio.TaskGroup() as tasks:
            doings = [tasks.create_task(doing) for doing in (self._follow(), self._take(), self._lead())]
            while not lease.is_over and not self._is_forgotten():
                await self._clock.sleep(TICK_S)
            for doing in doings:
                doing.cancel()

    def _is_forgotten(self) -> bool:
        """Somebody deleted this worker's key."""
        view, joined = self._belief.view, self._belief.joined
        if view is None or view.revision < joined:
            return False
        worker = view.workers.get(self.worker_id)
        return worker is None or worker.joined != joined

    async def _follow(self) -> None:
        belief, prefix = self._belief, self._settings.prefix
        while True:
            try:
                view = belief.view = FleetView(self._keys, await self._store.read(prefix))
                self._hear()
                self._bell.ring()
                async with aclosing(self._store.watch(prefix, view.revision)) as changes:
                    async for some in changes:
                        view.follow(some)
                        self._bell.ring()
            except HistoryCompacted:
                continue
            except StoreUnreachable as error:
                self._hear_nothing(error)
                await self._clock.sleep(self._settings.retry_seconds)

    async def _take(self) -> None:
        """Take what is planned for this worker and free; let go of what does not run here any more."""
        while True:
            rung = self._bell.next
            try:
                for unit, epoch in self._belief.to_let_go().items():
                    key = self._keys.held(unit)
                    if await self._store.commit(Commit({key: epoch}, {key: None})) is not None:
                        self._tell(FleetEvent.LET_GO, unit=unit)
                free = [unit for unit in self._belief.to_take() if not self._is_on_its_way(unit)]
                for at in range(0, len(free), TAKEN_AT_ONCE):
                    some = free[at : at + TAKEN_AT_ONCE]
                    if not await self._take_all(some):
                        for unit in some:
                            await self._take_all([unit])
            except StoreUnreachable as error:
                self._hear_nothing(error)
                await self._clock.sleep(self._settings.retry_seconds)
                continue
            await _heard(rung, LOOK_AGAIN_S)

    def _is_on_its_way(self, unit: Unit) -> bool:
        view = self._belief.view
        return view is not None and view.revision < self._taken_at.get(unit, 0)

    async def _take_all(self, units: list[Unit]) -> bool:
        """All of them or none. A plan that changed meanwhile, or a holder that came, refuses it."""
        keys, belief = self._keys, self._belief
        assert belief.lease is not None
        held = Put(HolderRecord(worker=self.worker_id, joined=belief.joined).model_dump_json(), belief.lease.lease_id)
        commit = Commit(
            {keys.worker(self.worker_id): belief.joined} | {keys.held(unit): ABSENT for unit in units},
            {keys.held(unit): held for unit in units},
            {keys.plan(unit): self.worker_id for unit in units},
        )
        revision = await self._store.commit(commit)
        if revision is None:
            return False
        for unit in units:
            self._taken_at[unit] = revision
            self._tell(FleetEvent.TOOK, unit=unit, epoch=revision)
        return True

    async def _lead(self) -> None:
        """Plan for all, while this worker is the oldest."""
        leading = _Leading(self._clock.monotonic(), self._settings.settle_seconds)
        while True:
            rung, belief = self._bell.next, self._belief
            if not belief.leads(self._clock.boottime()):
                leading.ends()
                await _heard(rung, LOOK_AGAIN_S)
                continue
            assert belief.view is not None
            if leading.begins():
                self._tell(FleetEvent.LEADS)
            settled_in_s = leading.settled_in_s(belief.view, self._clock.monotonic())
            if leading.is_due(belief.view, settled_in_s <= 0):
                decision = decide(self._keys, belief.view, {}, is_settled=settled_in_s <= 0)
                try:
                    leading.written_at = await self._write(decision.puts)
                except StoreUnreachable as error:
                    leading.ends()  # nobody knows what was written: planned anew from what stands there
                    self._hear_nothing(error)
                    await self._clock.sleep(self._settings.retry_seconds)
                    continue
                if decision.puts:
                    self._tell(FleetEvent.PLANNED, units=len(decision.plan.assigned), moved=len(decision.plan.moved))
            await _heard(rung, settled_in_s if settled_in_s > 0 else LOOK_AGAIN_S)

    async def _write(self, puts: Mapping[str, Put | None]) -> int:
        """Write the plan, for as long as this worker leads -> the revision of the last commit."""
        revision = 0
        for commit in in_commits({self._keys.worker(self.worker_id): self._belief.joined}, puts):
            done = await self._store.commit(commit)
            if done is None:
                break  # this worker's key is gone, and the view will say so
            revision = done
        return revision

    def _hear(self) -> None:
        if not self._is_reachable:
            self._is_reachable = True
            self._tell(FleetEvent.STORE_ANSWERS)

    def _hear_nothing(self, error: StoreUnreachable) -> None:
        if self._is_reachable:
            self._is_reachable = False
            self._tell(FleetEvent.STORE_UNREACHABLE, detail=str(error), hint=error.hint)


class _Leading:
    """What a leader remembers between two plans."""

    def __init__(self, now: float, settle_seconds: float) -> None:
        self._settle_s = settle_seconds
        self._leads = False
        self._fleet: tuple[frozenset[int], frozenset[str]] | None = None
        self._settled_at = now + settle_seconds
        self._planned: tuple[int, bool] | None = None
        self.written_at = 0

    def begins(self) -> bool:
        """Whether it leads since now."""
        begins, self._leads = not self._leads, True
        return begins

    def ends(self) -> None:
        self._leads, self._planned, self._fleet = False, None, None

    def settled_in_s(self, view: FleetView, now: float) -> float:
        """Until the fleet's workers were the same for long enough; 0 or less: they were."""
        fleet = frozenset(worker.joined for worker in view.workers.values()), frozenset(view.drained)
        if fleet != self._fleet:
            self._fleet, self._settled_at = fleet, now + self._settle_s
        return self._settled_at - now

    def is_due(self, view: FleetView, is_settled: bool) -> bool:
        """Whether a new plan could say anything else than the last one, which the view must show."""
        if view.revision < self.written_at:
            return False
        due = (view.inputs_revision, is_settled)
        is_due, self._planned = due != self._planned, due
        return is_due


class _Bell:
    """Is rung when anything changed; who waits takes `next` before looking, so that no ring is missed."""

    def __init__(self) -> None:
        self.next = asyncio.Event()

    def ring(self) -> None:
        self.next.set()
        self.next = asyncio.Event()


async def _heard(rung: asyncio.Event, timeout_s: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await rung.wait()


class _Permit:
    def __init__(self, unit: Unit, belief: Belief, bell: _Bell, clock: Clock) -> None:
        self._unit, self._belief, self._bell, self._clock = unit, belief, bell, clock

    async def wait(self) -> None:
        while not self._may_open():
            rung = self._bell.next
            if not self._may_open():
                await rung.wait()

    def check(self) -> None:
        if not self._may_open():
            raise UnitNotHeld(f"{self._unit}: this worker's lease is in doubt, or another one runs the link")

    def _may_open(self) -> bool:
        return self._belief.may_open(self._unit, self._clock.boottime())
