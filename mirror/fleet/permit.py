"""Whether a worker of a fleet may begin with a unit, and open it, by what it believes."""

from __future__ import annotations

from collections.abc import Callable

from broker.base.clock import Clock
from mirror.coordinator.model import Unit, UnitNotHeld
from mirror.fleet.belief import Belief
from mirror.fleet.bell import Bell


class FleetPermit:
    def __init__(self, unit: Unit, belief: Belief, bell: Bell, clock: Clock) -> None:
        self._unit, self._belief, self._bell, self._clock = unit, belief, bell, clock

    async def begin(self) -> None:
        await self._until(self._may_prepare)

    async def wait(self, *, is_prepared: bool) -> None:
        if self.is_given:
            return
        self._belief.note_prepared(self._unit, is_prepared=is_prepared)
        self._bell.ring()
        try:
            await self._until(lambda: self.is_given)
        finally:
            self._belief.note_prepared(self._unit, is_prepared=False)
            self._bell.ring()

    def check(self) -> None:
        if not self.is_given:
            raise UnitNotHeld(f"{self._unit}: this worker's lease is in doubt, or another one runs the link")

    @property
    def is_given(self) -> bool:
        return self._belief.may_open(self._unit, self._clock.boottime())

    def _may_prepare(self) -> bool:
        return self._belief.may_prepare(self._unit, self._clock.boottime())

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            rung = self._bell.next
            if not is_so():
                await rung.wait()
