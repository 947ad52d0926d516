"""The worker that plans for all: it writes the plan for as long as its key is the oldest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from broker.base.clock import Clock
from mirror.fleet.belief import Belief
from mirror.fleet.bell import Bell, heard
from mirror.fleet.errors import NOT_SERVED, FleetError
from mirror.fleet.events import FleetEvent, FleetSink
from mirror.fleet.keys import FleetKeys
from mirror.fleet.leading import Decision, decide
from mirror.fleet.pacing import Pacing
from mirror.fleet.planner import EASE
from mirror.fleet.settings import FleetSettings
from mirror.fleet.store import FleetStore, Put, in_commits
from mirror.fleet.view import FleetView

LOOK_AGAIN_S: Final = 5.0
"""Everything is looked at again after this, also where nothing is heard of."""


class Leader:
    """Each worker has one; it does something while `belief` says that this worker leads."""

    def __init__(self, store: FleetStore, settings: FleetSettings, belief: Belief, bell: Bell, clock: Clock) -> None:
        self._store, self._settings, self._belief, self._bell, self._clock = store, settings, belief, bell, clock
        self._keys = FleetKeys(settings.prefix)

    async def lead(self, tell: FleetSink, hear_nothing: Callable[[FleetError], None]) -> None:
        """Until cancelled."""
        pacing, belief, clock = Pacing(self._clock.monotonic(), self._settings), self._belief, self._clock
        while True:
            rung = self._bell.next
            if belief.view is None or not belief.leads(clock.boottime()):
                pacing.ends()
                await heard(rung, LOOK_AGAIN_S)
                continue
            if pacing.begins():
                tell(FleetEvent.LEADS)
            try:
                for decision in await self._plan(pacing, belief.view):
                    tell(FleetEvent.PLANNED, units=len(decision.plan.assigned), moved=len(decision.plan.moved))
            except NOT_SERVED as error:
                pacing.forget_plan()  # planned anew from what stands there
                hear_nothing(error)
                await clock.sleep(self._settings.retry_seconds)
                continue
            settled_in_s = pacing.settled_in_s(belief.view, clock.monotonic())
            await heard(rung, settled_in_s if settled_in_s > 0 else LOOK_AGAIN_S)

    async def _plan(self, pacing: Pacing, view: FleetView) -> list[Decision]:
        """What was decided and written."""
        now, decisions = self._clock.monotonic(), []
        if pacing.is_due(view, now):
            balance = pacing.balance(view, now)
            unproven = pacing.unproven(view, balance, now)
            decision = decide(self._keys, view, balance, failures=pacing.failures, unproven=unproven)
            pacing.planned(balance, await self._write(decision.puts), now, unproven)
            decisions.append(decision)
        if pacing.may_ease(view, now):
            decision = decide(self._keys, view, EASE, resting=pacing.resting(now), failures=pacing.failures)
            if pacing.eases(view, decision.plan.moved, now):
                pacing.planned(EASE, await self._write(decision.puts), now)
                decisions.append(decision)
        return [decision for decision in decisions if decision.puts]

    async def _write(self, puts: Mapping[str, Put | None]) -> int:
        """Write the plan, for as long as this worker leads -> the revision of the last commit."""
        revision = 0
        for commit in in_commits({self._keys.worker(self._belief.name): self._belief.joined}, puts):
            done = await self._store.commit(commit)
            if done is None:
                break  # this worker's key is gone, and the view will say so
            revision = done
        return revision
