"""Which worker runs which unit: pure, and the same for the same facts.

What runs stays where it is. A unit without a worker goes to the one that would have the least load with it, the
heaviest units first. Only where the loads of two workers differ by more than a tolerance, units move from the busiest
to the idlest, as few as bring them together: the tolerance is what keeps loads that waver from moving anything.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final, TypeAlias

from mirror.coordinator.model import Unit

TOLERANCE: Final = 0.2
"""Of the mean load: so far the busiest and the idlest worker may be apart."""
NO_TOLERANCE: Final = 0.0

Candidates: TypeAlias = frozenset[str]


@dataclass(frozen=True, slots=True)
class PlannedWorker:
    """`weight`: a worker of 2 gets twice the load of one of 1. `near`: the sites it stands at."""

    name: str
    weight: float = 1.0
    near: frozenset[str] = frozenset()
    is_drained: bool = False


@dataclass(frozen=True, slots=True)
class PlannedUnit:
    """`load` is above 0, in whatever all are counted in. Of the `offered_by` those near `target` are preferred."""

    unit: Unit
    offered_by: Candidates
    load: float = 1.0
    target: str = ""


@dataclass(slots=True)
class Plan:
    """Who is to run what. Units that nobody can run are missing; `moved` are those that run elsewhere now."""

    assigned: dict[Unit, str] = field(default_factory=dict)
    moved: dict[Unit, tuple[str, str]] = field(default_factory=dict)
    """From whom, to whom."""


def make_plan(
    workers: Collection[PlannedWorker],
    units: Collection[PlannedUnit],
    current: Mapping[Unit, str],
    *,
    may_move: bool = True,
    tolerance: float = TOLERANCE,
) -> Plan:
    """`may_move` False: only what has no worker, or one that is drained or gone, is assigned."""
    return _Planning(workers, tolerance).plan(units, current, may_move)


class _Planning:
    def __init__(self, workers: Iterable[PlannedWorker], tolerance: float) -> None:
        self._usable = {worker.name: worker for worker in workers if not worker.is_drained}
        self._weights = {name: worker.weight for name, worker in self._usable.items()}
        self._loads = dict.fromkeys(self._usable, 0.0)
        """Of each worker, divided by its weight."""
        self._tolerance = tolerance
        self._candidates: dict[tuple[Candidates, str], Candidates] = {}
        self._plan = Plan()

    def plan(self, units: Iterable[PlannedUnit], current: Mapping[Unit, str], may_move: bool) -> Plan:
        classes: defaultdict[Candidates, list[PlannedUnit]] = defaultdict(list)
        orphans: list[PlannedUnit] = []
        for unit in units:
            candidates = self._candidates_of(unit)
            if not candidates:
                continue
            classes[candidates].append(unit)
            worker = current.get(unit.unit)
            # One that would not be chosen today keeps what it runs until moves are due.
            if worker in self._usable and worker in unit.offered_by:
                self._give(unit, worker)
            else:
                orphans.append(unit)
        self._place(orphans)
        if may_move:
            self._bring_near(classes)
            # Those with the fewest places first: what is left to the others can make up for them.
            for candidates in sorted(classes, key=lambda names: (len(names), sorted(names))):
                self._balance(candidates, classes[candidates])
        plan = self._plan
        plan.moved = {
            unit: (current[unit], worker)
            for unit, worker in plan.assigned.items()
            if unit in current and current[unit] != worker
        }
        return plan

    def _candidates_of(self, unit: PlannedUnit) -> Candidates:
        """Who may run it: those near its target, where there is one."""
        key = (unit.offered_by, unit.target)
        found = self._candidates.get(key)
        if found is None:
            offered = unit.offered_by & self._usable.keys()
            near = frozenset(name for name in offered if unit.target in self._usable[name].near)
            found = self._candidates[key] = near or frozenset(offered)
        return found

    def _give(self, unit: PlannedUnit, worker: str) -> None:
        before = self._plan.assigned.get(unit.unit)
        if before is not None:
            self._loads[before] -= unit.load / self._weights[before]
        self._plan.assigned[unit.unit] = worker
        self._loads[worker] += unit.load / self._weights[worker]

    def _place(self, orphans: list[PlannedUnit]) -> None:
        """Each to the least loaded of its candidates, the heaviest first."""
        heaps: dict[Candidates, list[tuple[float, str]]] = {}
        for unit in sorted(orphans, key=lambda unit: (-unit.load, unit.unit.link)):
            candidates = self._candidates_of(unit)
            if candidates not in heaps:
                heaps[candidates] = [(self._loads[name], name) for name in candidates]
                heapify(heaps[candidates])
            heap = heaps[candidates]
            while True:
                load, name = heappop(heap)
                if load == self._loads[name]:
                    break
                heappush(heap, (self._loads[name], name))  # it was given something by another heap
            self._give(unit, name)
            heappush(heap, (self._loads[name], name))

    def _bring_near(self, classes: Mapping[Candidates, list[PlannedUnit]]) -> None:
        """What runs elsewhere although somebody near its target could run it."""
        away = [
            unit
            for candidates, units in classes.items()
            for unit in units
            if self._plan.assigned[unit.unit] not in candidates
        ]
        self._place(away)

    def _balance(self, candidates: Candidates, units: Iterable[PlannedUnit]) -> None:
        """Move units of one class between its candidates until these are close, or nothing that fits is left."""
        ordered = sorted(units, key=lambda unit: (unit.load, unit.unit.link))
        owned: defaultdict[str, list[int]] = defaultdict(list)
        """Of each worker the places of its units in `ordered`, the lightest first."""
        for place, unit in enumerate(ordered):
            owned[self._plan.assigned[unit.unit]].append(place)
        mean = sum(self._loads[name] * self._weights[name] for name in candidates) / sum(
            self._weights[name] for name in candidates
        )
        idlest = [(self._loads[name], name) for name in candidates]
        busiest = [(-load, name) for load, name in idlest]
        heapify(idlest)
        heapify(busiest)
        while busiest:
            high = -busiest[0][0]
            name_high = heappop(busiest)[1]
            if high != self._loads[name_high]:
                continue  # an older word of it; the newest is in the heap, too
            low, name_low = self._lightest(idlest)
            if high - low <= self._tolerance * mean:
                return
            meet = (high - low) / (1 / self._weights[name_high] + 1 / self._weights[name_low])
            fitting = bisect_right(owned[name_high], meet, key=lambda place: ordered[place].load)
            if not fitting:
                continue  # with any of it the idle worker would be the busier one: it stays as it is
            place = owned[name_high].pop(fitting - 1)
            self._give(ordered[place], name_low)
            insort(owned[name_low], place)
            heappush(busiest, (-self._loads[name_high], name_high))
            heappush(busiest, (-self._loads[name_low], name_low))
            heappush(idlest, (self._loads[name_low], name_low))
            heappush(idlest, (self._loads[name_high], name_high))

    def _lightest(self, idlest: list[tuple[float, str]]) -> tuple[float, str]:
        while idlest[0][0] != self._loads[idlest[0][1]]:
            heappop(idlest)  # as above
        return idlest[0]
