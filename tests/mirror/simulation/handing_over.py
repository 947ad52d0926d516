"""Two workers between which links are handed over all the time, as a fleet does it: the second one prepares them first.

What a fleet agrees on through etcd is here one object that is always right; what is real is what each worker does.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace

from mirror.coordinator.model import Coordinator, Member, Meter, Permit, Share, Unit, UnitNotHeld, units_of
from mirror.fleet.bell import Bell
from tests.mirror.simulation.profile import Profile, Rival, choose_profile
from tests.mirror.simulation.world import World

STAYS_MAX_S = 3.0
PATIENCE_MAX_S = 5.0


def choose_handed_over(rng: random.Random) -> Profile:
    profile = choose_profile(rng)
    return replace(profile, rival=Rival.NEVER, actions=rng.randrange(10, 40), action_pause_max_s=0.4)


class Hands:
    """Who holds all links, and to whom they go next; everything may be opened by the holder alone."""

    def __init__(self, units: Share) -> None:
        self.units = units
        self.bell = Bell()
        self.members: list[str] = []
        self.holder = self.heir = ""
        self.lets_go = False
        self.runs: dict[str, set[Unit]] = {}
        self.prepared: set[tuple[str, Unit]] = set()

    def share(self, process: str) -> Share:
        runs = self.holder == process and not self.lets_go
        return self.units if runs or self.heir == process else frozenset()

    def join(self, process: str) -> None:
        self.members.append(process)
        self._settle()

    def leave(self, process: str) -> None:
        self.members.remove(process)
        if self.holder == process:
            self.holder = ""
        if process in (self.heir, self.holder) or not self.holder:
            self.heir, self.lets_go = "", False
        self._settle()

    def _settle(self) -> None:
        if not self.holder and self.members:
            self.holder = self.members[0]
        self.bell.ring()

    async def hand_over(self, patience_s: float) -> bool:
        """To the other one; whether it was prepared."""
        before, (heir,) = self.holder, [each for each in self.members if each != self.holder][:1]
        self.heir = heir
        self.bell.ring()
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await self.until(lambda: self.heir != heir or self._is_prepared(heir))
        was_prepared = self._is_prepared(heir)
        if self.heir == heir:
            self.lets_go = True
            self.bell.ring()
            await self.until(lambda: self.heir != heir or not self.runs.get(before))
        if self.heir == heir:
            self.holder, self.heir, self.lets_go = heir, "", False
            self.bell.ring()
        return was_prepared

    def _is_prepared(self, process: str) -> bool:
        return all((process, unit) in self.prepared for unit in self.units)

    async def until(self, is_so: object) -> None:
        assert callable(is_so)
        while not is_so():
            await self.bell.next.wait()


class HandedTo:
    """One worker's coordinator and member."""

    def __init__(self, hands: Hands, process: str) -> None:
        self._hands, self.worker_id = hands, process
        self._meters: dict[Unit, Meter] = {}

    def member(self) -> AbstractAsyncContextManager[Member]:
        return self._join()

    @asynccontextmanager
    async def _join(self) -> AsyncIterator[Member]:
        self._hands.join(self.worker_id)
        try:
            yield self
        finally:
            self._hands.leave(self.worker_id)

    async def shares(self) -> AsyncIterator[Share]:
        last: Share | None = None
        while True:
            rung, share = self._hands.bell.next, self._hands.share(self.worker_id)
            if share != last:
                last = share
                self._hands.runs.setdefault(self.worker_id, set()).update(share)
                yield share
            else:
                await rung.wait()

    def permit(self, unit: Unit) -> Permit:
        return _Permit(self._hands, self.worker_id, unit)

    def meter(self, unit: Unit) -> Meter:
        return self._meters.setdefault(unit, Meter())

    async def released(self, unit: Unit) -> None:
        self._hands.runs[self.worker_id].discard(unit)
        self._hands.bell.ring()

    async def goes_on_after(self, unit: Unit, error: Exception) -> bool:
        await asyncio.sleep(1.0)
        return True


class _Permit:
    def __init__(self, hands: Hands, process: str, unit: Unit) -> None:
        self._hands, self._process, self._key = hands, process, (process, unit)

    @property
    def is_given(self) -> bool:
        return self._hands.holder == self._process

    async def begin(self) -> None:
        return

    async def wait(self, *, is_prepared: bool) -> None:
        if is_prepared:
            self._hands.prepared.add(self._key)
            self._hands.bell.ring()
        try:
            await self._hands.until(lambda: self.is_given)
        finally:
            self._hands.prepared.discard(self._key)

    def check(self) -> None:
        if not self.is_given:
            raise UnitNotHeld("the other one runs it")


class HandedOver(World):
    """Until the faults are over. A worker that ended is replaced."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, choose_handed_over)
        self.hands = Hands(frozenset(unit for link in self.links for unit in units_of(link)))

    def _share_of(self, process: str) -> Coordinator | None:
        return HandedTo(self.hands, process)

    async def _live(self) -> None:
        self._start_worker()
        handing = asyncio.ensure_future(self._hand_over())
        await super()._live()
        handing.cancel()
        await asyncio.gather(handing, return_exceptions=True)
        if self.hands.heir:
            self.hands.heir, self.hands.lets_go = "", False
            self.hands.bell.ring()

    async def _hand_over(self) -> None:
        while True:
            await asyncio.sleep(self.rng.random() * STAYS_MAX_S)
            await self.hands.until(lambda: len(self.hands.members) > 1)
            was_prepared = await self.hands.hand_over(self.rng.random() * PATIENCE_MAX_S)
            self.counts["prepared" if was_prepared else "unprepared"] += 1

    def _ended(self, process: str, task: asyncio.Task[None]) -> None:
        super()._ended(process, task)
        if self._workers and not self._judged:
            self.loop.call_later(self.rng.random() * 2, self._start_if_few)

    def _start_if_few(self) -> None:
        if len(self._workers) < 2 and not self._judged:
            self._start_worker()

    def _restart_maimed(self) -> None:
        return
