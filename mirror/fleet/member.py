"""A worker as a member of a fleet: it joins, follows the keys, takes what is planned for it, and says what it measures.
`leader.py` is what it does when it leads.

Decisions are `belief.py`'s; here they meet the store and the clock. All on one event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from broker.base.clock import Clock
from broker.base.errors import first_of
from mirror.coordinator.current import Current
from mirror.coordinator.model import Member, Meter, Permit, Share, Unit
from mirror.fleet.belief import Belief
from mirror.fleet.bell import Bell, heard
from mirror.fleet.errors import NOT_SERVED, FleetError, HistoryCompacted, StoreRefused, WorkerNameTaken
from mirror.fleet.events import FleetEvent, FleetSink
from mirror.fleet.keys import FleetKeys, HolderRecord, ReadyRecord, WorkerRecord
from mirror.fleet.leader import LOOK_AGAIN_S, Leader
from mirror.fleet.measuring import Measuring
from mirror.fleet.permit import FleetPermit
from mirror.fleet.settings import FleetSettings
from mirror.fleet.store import ABSENT, Commit, FleetStore, Lease, Put
from mirror.fleet.view import FleetView

TICK_S: Final = 0.1
"""How soon it is noticed that time alone changed something: a lease that ran out, a limit that passed."""
CHANGED_AT_ONCE: Final = 32


@dataclass(frozen=True)
class FleetCoordinator:
    """Joins a worker of this name, with what it offers now, to the fleet that the store keeps."""

    store: FleetStore
    name: str
    offer: Current[WorkerRecord]
    clock: Clock
    tell: FleetSink
    settings: FleetSettings = field(default_factory=FleetSettings)
    cpu_s: Callable[[], float] = time.process_time
    """Processor time that this worker has spent."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set where the worker is to leave: it goes when others run what it held, or `leave_seconds` later."""

    def member(self) -> AbstractAsyncContextManager[Member]:
        """While the store does not answer the member has no share, and waits. Raises WorkerNameTaken, StoreRefused."""
        return self._join()

    @asynccontextmanager
    async def _join(self) -> AsyncIterator[Member]:
        member = FleetMember(self)
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

    def __init__(self, place: FleetCoordinator) -> None:
        self._store, self._offer, self._clock, self._tell = place.store, place.offer, place.clock, place.tell
        self._offered = place.offer.value
        self._settings, self._cpu_s = place.settings, place.cpu_s
        self._stopping, self._has_left = place.stopping, False
        self.worker_id = place.name
        self._keys = FleetKeys(place.settings.prefix)
        self._belief = Belief(place.name, place.settings.without_etcd_seconds, place.settings.prepare_seconds)
        self._bell = Bell()
        self._leader = Leader(place.store, place.settings, self._belief, self._bell, place.clock)
        self._measuring = Measuring(place.clock.monotonic(), place.cpu_s())
        self._meters: dict[Unit, Meter] = {}
        self._is_reachable = True
        self._was_in = False
        """This worker joined the fleet once, so that etcd knew it then."""
        self._was_set_back = False
        """The store counts from an earlier revision than it did: it was restored from a snapshot."""
        self._changed_at: dict[Unit, int] = {}
        """The revision at which this worker took a unit or let it go, which the view may not show yet."""
        self._pauses: dict[Unit, tuple[float, float]] = {}
        """Of units that ended by an error: how long the last pause was, and when it ended."""

    # What the worker asks.

    async def shares(self) -> AsyncIterator[Share]:
        last: Share | None = None
        while not self._has_left:
            rung = self._bell.next
            share = self._belief.share(self._clock.boottime())
            self._belief.give_out(share)
            if share != last:
                last = share
                yield share
            else:
                await rung.wait()
        yield frozenset()

    def permit(self, unit: Unit) -> Permit:
        return FleetPermit(unit, self._belief, self._bell, self._clock)

    def meter(self, unit: Unit) -> Meter:
        return self._meters.setdefault(unit, Meter())

    async def released(self, unit: Unit) -> None:
        self._meters.pop(unit, None)
        self._belief.release(unit)
        self._bell.ring()

    async def goes_on_after(self, unit: Unit, error: Exception) -> bool:
        """A fleet gives no unit up: whatever ended it here may be over, or not be so at another worker."""
        self.meter(unit).ended(failed=True)
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
        """Until cancelled. Raises WorkerNameTaken, and StoreRefused if it comes before this worker was in the fleet."""
        belief = self._belief
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._tick())
            tasks.create_task(self._leave())
            while True:
                try:
                    async with self._store.lease(self._settings.lease_seconds) as lease:
                        await self._join(lease)
                        try:
                            await self._live(lease)
                        finally:
                            belief.joined = 0
                    self._tell(FleetEvent.LEASE_LOST)
                except NOT_SERVED as error:
                    if isinstance(error, StoreRefused) and not self._was_in:
                        raise
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

    async def _leave(self) -> None:
        """Its last share is empty, and comes when others run what this worker held, or none will."""
        await self._stopping.wait()
        self._offer.replace(self._offer.value.model_copy(update={"leaving": True}))
        give_up_at = self._clock.monotonic() + self._settings.leave_seconds
        while self._belief.is_awaited(self._clock.boottime()) and self._clock.monotonic() < give_up_at:
            await heard(self._bell.next, TICK_S)
        self._has_left = True
        self._bell.ring()

    async def _join(self, lease: Lease) -> None:
        """Put this worker's key. An earlier worker of the name may need its lease's time to be gone, and so may this
        one's own key, if what put it was carried out without a word.
        """
        key, wait_s = self._keys.worker(self.worker_id), self._settings.name_wait_leases * lease.granted_s
        give_up_at = self._clock.monotonic() + wait_s
        self._offered = self._offer.value
        put = Put(self._offered.model_dump_json(), lease.lease_id)
        while (revision := await self._store.commit(Commit({key: ABSENT}, {key: put}))) is None:
            if self._clock.monotonic() > give_up_at:
                raise WorkerNameTaken(f"the fleet has a worker {self.worker_id}, and had it for all of {wait_s} s")
            await self._clock.sleep(self._settings.retry_seconds)
        # What was known before may be of another etcd, if that was put up anew: its revisions mean nothing here.
        self._changed_at.clear()
        self._was_set_back, self._was_in = False, True
        self._measuring.forget_told()
        self._belief.view, self._belief.lease, self._belief.joined = None, lease, revision
        self._tell(FleetEvent.JOINED, revision=revision)
        self._hear()

    async def _live(self, lease: Lease) -> None:
        """For as long as the lease does."""
        async with asyncio.TaskGroup() as tasks:
            lead = self._leader.lead(self._tell, self._hear_nothing)
            own = (self._follow(), self._take(), self._offer_anew(lease), self._measure(lease))
            doings = [tasks.create_task(doing) for doing in (*own, lead)]
            while not (lease.is_over or self._is_forgotten() or self._was_set_back):
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
                snapshot = await self._store.read(prefix)
                if belief.view is not None and snapshot.revision < belief.view.revision:
                    self._was_set_back = True  # and nothing that was noted by revision means anything
                    return
                view = belief.view = FleetView(self._keys, snapshot, belief.view)
                self._hear()
                self._bell.ring()
                async with aclosing(self._store.watch(prefix, view.revision)) as changes:
                    async for some in changes:
                        view.follow(some)
                        self._bell.ring()
            except HistoryCompacted:
                continue
            except NOT_SERVED as error:
                self._hear_nothing(error)
                await self._clock.sleep(self._settings.retry_seconds)

    async def _offer_anew(self, lease: Lease) -> None:
        """Whenever it is something else. The key stays the one that was made when this worker joined."""
        key = self._keys.worker(self.worker_id)
        while True:
            await self._offer.until(lambda offer: offer != self._offered)
            offer = self._offer.value
            try:
                put = Put(offer.model_dump_json(), lease.lease_id)
                await self._store.commit(Commit({key: self._belief.joined}, {key: put}))
                self._offered = offer
            except NOT_SERVED as error:
                self._hear_nothing(error)
                await self._clock.sleep(self._settings.retry_seconds)

    async def _take(self) -> None:
        """Take what is planned for this worker and free; let go of what does not run here any more."""
        while True:
            rung = self._bell.next
            try:
                epochs = self._belief.to_let_go()
                await self._together(epochs, partial(self._let_go, epochs))
                free = self._belief.to_take()
                await self._together(free, self._take_all)
                await self._together(self._belief.to_say(), self._say_ready)
                await self._together(self._belief.to_take_back(), self._take_back)
            except NOT_SERVED as error:
                self._hear_nothing(error)
                await self._clock.sleep(self._settings.retry_seconds)
                continue
            await heard(rung, LOOK_AGAIN_S)

    async def _together(self, units: Iterable[Unit], change: Callable[[Sequence[Unit]], Awaitable[bool]]) -> None:
        """A number of them in one commit; where one of these cannot be changed, each of them by itself."""
        due = [unit for unit in units if not self._is_on_its_way(unit)]
        for at in range(0, len(due), CHANGED_AT_ONCE):
            some = due[at : at + CHANGED_AT_ONCE]
            if not await change(some) and len(some) > 1:
                for unit in some:
                    await change([unit])

    async def _let_go(self, epochs: Mapping[Unit, int], units: Sequence[Unit]) -> bool:
        """All of them or none. One that another has meanwhile refuses it."""
        keys = {self._keys.held(unit): epochs[unit] for unit in units}
        revision = await self._store.commit(Commit(keys, dict.fromkeys(keys)))
        if revision is None:
            return False
        for unit in units:
            self._changed_at[unit] = revision
            self._tell(FleetEvent.LET_GO, unit=unit)
        return True

    def _is_on_its_way(self, unit: Unit) -> bool:
        view = self._belief.view
        return view is not None and view.revision < self._changed_at.get(unit, 0)

    async def _take_all(self, units: Sequence[Unit]) -> bool:
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
            self._changed_at[unit] = revision
            self._tell(FleetEvent.TOOK, unit=unit, epoch=revision)
        return True

    async def _say_ready(self, units: Sequence[Unit]) -> bool:
        """Of the holders that this worker knows of, and of no other."""
        keys, belief = self._keys, self._belief
        assert belief.lease is not None
        assert belief.view is not None
        epochs = {unit: belief.view.held[unit].epoch for unit in units if unit in belief.view.held}
        puts: dict[str, Put | None] = {}
        for unit, epoch in epochs.items():
            record = ReadyRecord(worker=self.worker_id, joined=belief.joined, epoch=epoch)
            puts[keys.ready(unit)] = Put(record.model_dump_json(), belief.lease.lease_id)
        held = {keys.held(unit): epoch for unit, epoch in epochs.items()}
        return await self._write_of_ready({keys.worker(self.worker_id): belief.joined} | held, puts, units)

    async def _take_back(self, units: Sequence[Unit]) -> bool:
        keys = self._keys
        puts: dict[str, Put | None] = dict.fromkeys(keys.ready(unit) for unit in units)
        return await self._write_of_ready({keys.worker(self.worker_id): self._belief.joined}, puts, units)

    async def _write_of_ready(
        self, created: Mapping[str, int], puts: Mapping[str, Put | None], units: Sequence[Unit]
    ) -> bool:
        revision = await self._store.commit(Commit(created, puts))
        if revision is not None:
            self._changed_at |= dict.fromkeys(units, revision)
        return revision is not None

    async def _measure(self, lease: Lease) -> None:
        """Say what this worker measured, where it has become something else."""
        measuring, key = self._measuring, self._keys.load(self.worker_id)
        while True:
            measuring.look(self._clock.monotonic(), self._cpu_s(), self._meters)
            if (record := measuring.to_tell()) is not None:
                put = Put(record.model_dump_json(), lease.lease_id)
                try:
                    await self._store.commit(
                        Commit({self._keys.worker(self.worker_id): self._belief.joined}, {key: put})
                    )
                    measuring.tell(record)
                except NOT_SERVED as error:
                    self._hear_nothing(error)
            await self._clock.sleep(self._settings.measure_seconds)

    def _hear(self) -> None:
        if not self._is_reachable:
            self._is_reachable = True
            self._tell(FleetEvent.STORE_ANSWERS)

    def _hear_nothing(self, error: FleetError) -> None:
        if self._is_reachable:
            self._is_reachable = False
            self._tell(FleetEvent.STORE_UNREACHABLE, detail=str(error), hint=error.hint)
