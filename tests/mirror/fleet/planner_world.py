"""A fleet's leader over many seeds, on simulated time: workers die and join, loads shift; what it moves, and how even
that leaves them.

What decides is what decides in a worker, `Pacing` and `decide`. Around it is a model: a plan is carried out in the
second in which it is made, loads are smoothed and told as seldom as workers tell theirs, and a worker that dies is
missed after its lease.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from math import exp
from typing import Final

from mirror.coordinator.model import Unit
from mirror.fleet.keys import FleetKeys, WorkerRecord
from mirror.fleet.leading import decide
from mirror.fleet.measuring import NOTABLE_PART, SMOOTHED_OVER_S, TOLD_EVERY_S
from mirror.fleet.pacing import Pacing
from mirror.fleet.planner import EASE, Balance
from mirror.fleet.settings import FleetSettings
from mirror.fleet.store import Snapshot
from mirror.fleet.view import FleetView, LiveWorker
from tests.mirror.fleet.workers import offer_of

WORKERS: Final = 10
UNITS: Final = 200
LENGTH_S: Final = 1_500
WAVERS: Final = 0.1
"""Each load goes up and down by so much all the time."""
KEYS: Final = FleetKeys("/plan/")
SETTINGS: Final = FleetSettings()


@dataclass(frozen=True, slots=True)
class Event:
    at_s: int
    name: str


EVENTS: Final = (
    Event(150, "a worker dies"),
    Event(350, "one joins"),
    Event(550, "loads shift"),
    Event(1_000, "two die"),
    Event(1_250, "two join"),
)


@dataclass(slots=True)
class Run:
    """Of one seed, second by second. `apart`: the busiest and the idlest worker, as a part of the mean."""

    apart: list[float] = field(default_factory=list)
    moves: list[int] = field(default_factory=list)
    """So far, of units that ran; those of a worker that died are none."""
    steady_s: dict[str, int] = field(default_factory=dict)
    """From each event to the last move before the next one."""
    ownerless: int = 0
    """Units that were nobody's behind a second in which the leader could plan."""


class PlannerWorld:
    """Use `run`."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._units = [Unit(f"u{number:03}") for number in range(UNITS)]
        self._record: WorkerRecord = offer_of([unit.link for unit in self._units])
        self._true = {unit: self._chance.lognormvariate(1.0, 1.0) for unit in self._units}
        self._smoothed = dict(self._true)
        self._view = FleetView(KEYS, Snapshot(1, {}))
        self._pacing = Pacing(0.0, SETTINGS)
        self._joined = 0
        self._moved = 0
        for _ in range(WORKERS):
            self._join()
        self._view.loads.update(self._true)

    def run(self) -> Run:
        found, last_move_s = Run(), 0
        events = {event.at_s: event for event in EVENTS}
        current: Event | None = None
        for now in range(LENGTH_S):
            if (event := events.get(now)) is not None:
                if current is not None:
                    found.steady_s[current.name] = max(0, last_move_s - current.at_s)
                current = event
                self._happen(event)
            self._waver(now)
            before = dict(self._view.planned)
            self._lead(float(now))
            if any(self._view.planned[unit] != worker for unit, worker in before.items()):
                last_move_s = now
            found.apart.append(self._apart())
            found.moves.append(self._moved)
            found.ownerless += sum(self._view.planned.get(unit) not in self._view.workers for unit in self._units)
        if current is not None:
            found.steady_s[current.name] = max(0, last_move_s - current.at_s)
        return found

    def _happen(self, event: Event) -> None:
        match event.name:
            case "a worker dies":
                self._die(1)
            case "two die":
                self._die(2)
            case "one joins":
                self._join()
            case "two join":
                self._join()
                self._join()
            case "loads shift":
                for unit in self._chance.sample(self._units, UNITS // 4):
                    self._true[unit] *= self._chance.lognormvariate(0.5, 1.0)

    def _join(self) -> None:
        self._joined += 1
        name = f"w{self._joined:02}"
        self._view.workers[name] = LiveWorker(name, self._joined, self._record, "")
        self._changed()

    def _die(self, count: int) -> None:
        for name in self._chance.sample(sorted(self._view.workers), count):
            del self._view.workers[name]
        self._changed()

    def _changed(self) -> None:
        self._view.revision += 1
        self._view.inputs_revision = self._view.revision

    def _waver(self, now: int) -> None:
        """What workers measure, and what they tell of it."""
        if now % int(TOLD_EVERY_S):
            return
        kept = exp(-TOLD_EVERY_S / SMOOTHED_OVER_S)
        for unit, load in self._true.items():
            measured = load * self._chance.uniform(1 - WAVERS, 1 + WAVERS)
            self._smoothed[unit] = kept * self._smoothed[unit] + (1 - kept) * measured
            told = self._view.loads[unit]
            if abs(self._smoothed[unit] - told) > NOTABLE_PART * max(told, self._smoothed[unit]):
                self._view.loads[unit] = self._smoothed[unit]
                self._view.revision += 1
                self._view.loads_revision = self._view.revision

    def _lead(self, now: float) -> None:
        """As `Leader` does."""
        view, pacing = self._view, self._pacing
        if pacing.is_due(view, now):
            balance = pacing.balance(view, now)
            unproven = pacing.unproven(view, balance, now)
            assigned = decide(KEYS, view, balance, unproven=unproven).plan.assigned
            self._carry_out(balance, assigned, now, unproven)
        if pacing.may_ease(view, now):
            decision = decide(KEYS, view, EASE, resting=pacing.resting(now))
            if pacing.eases(view, decision.plan.moved, now):
                self._carry_out(EASE, decision.plan.assigned, now)

    def _carry_out(
        self, balance: Balance | None, assigned: dict[Unit, str], now: float, unproven: Collection[str] = ()
    ) -> None:
        view = self._view
        living = ((unit, worker) for unit, worker in view.planned.items() if worker in view.workers)
        self._moved += sum(assigned[unit] != worker for unit, worker in living)
        if assigned != view.planned:
            view.planned = dict(assigned)
            self._changed()
        self._pacing.planned(balance, view.revision, now, unproven)

    def _apart(self) -> float:
        loads = dict.fromkeys(self._view.workers, 0.0)
        for unit, worker in self._view.planned.items():
            if worker in loads:
                loads[worker] += self._true[unit]
        return (max(loads.values()) - min(loads.values())) * len(loads) / sum(loads.values())


def run_all(seeds: Sequence[int]) -> list[Run]:
    return [PlannerWorld(seed).run() for seed in seeds]
