"""Which worker runs which unit: pure, and the same for the same facts.

What runs stays where it is. A unit without a worker goes to the one that would have the least load with it, those of
the highest priority first, and of them the heaviest; where all that could run it have as many as they may, one of a
lower priority gives way. What runs moves for balance only (`Balance`): from the busiest worker to the idlest, as few
units as bring them together. Who is near a unit's target comes before all who are not, and of those who is in its rack;
a unit is further away only while all who are nearer are full, fail, or lag.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final, TypeAlias

from mirror.coordinator.model import Unit

Candidates: TypeAlias = frozenset[str]
Rank: TypeAlias = tuple[int, float, Unit]
Heaps: TypeAlias = dict[Candidates, list[tuple[float, str]]]
NOBODY: Final[Candidates] = frozenset()


@dataclass(frozen=True, slots=True)
class Balance:
    """How much may move, as parts of the mean load.

    Nothing moves where the busiest and the idlest worker are `trigger` apart or less; where they are further apart,
    units move until they are no more than `tolerance` apart. A worker that lags is relieved at `tolerance` already.
    `moves_max`: so many moves at most; then none is made either to bring a unit near its target.
    """

    tolerance: float
    trigger: float
    moves_max: int | None = None


SHARE: Final = Balance(0.2, 0.2)
"""The fleet has changed: everybody gets their part."""
EVEN: Final = Balance(0.0, 0.0)
"""An operator wants it as even as it goes."""
EASE: Final = Balance(0.2, 0.5, moves_max=1)
"""Only loads have changed: one unit at a time, and none for what wavers."""


@dataclass(frozen=True, slots=True)
class PlannedWorker:
    """`weight`: a worker of 2 gets twice the load of one of 1. `near`: the sites it stands at, and SITE/RACK.

    One that `fails` keeps what it runs, and is given what no other one can run.
    """

    name: str
    weight: float = 1.0
    near: frozenset[str] = frozenset()
    is_drained: bool = False
    max_links: int | None = None
    lags: bool = False
    fails: bool = False


@dataclass(frozen=True, slots=True)
class PlannedUnit:
    """`load` is above 0, in whatever all are counted in. Of the `offered_by` those near `target` are preferred, and of
    them those in its `rack`.

    One that `rests` is not moved for balance. Those that it `avoids` run it only where no other one can.
    """

    unit: Unit
    offered_by: Candidates
    load: float = 1.0
    target: str = ""
    priority: int = 0
    rests: bool = False
    avoids: Candidates = NOBODY
    rack: str = ""

    @property
    def rank(self) -> Rank:
        """Who is placed first has the least."""
        return (-self.priority, -self.load, self.unit)


def distance(unit: PlannedUnit, worker: PlannedWorker) -> int:
    """0: in the unit's rack; 1: near its target; 2: neither."""
    return 0 if f"{unit.target}/{unit.rack}" in worker.near else 1 if unit.target in worker.near else 2


def _rank(unit: PlannedUnit) -> Rank:
    return unit.rank


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
    balance: Balance | None = SHARE,
) -> Plan:
    """`balance` None: only what has no worker, or one that is drained, gone or full, is assigned."""
    return _Planning(workers).plan(units, current, balance)


class _Planning:
    def __init__(self, workers: Iterable[PlannedWorker]) -> None:
        self._usable = {worker.name: worker for worker in workers if not worker.is_drained}
        self._weights = {name: worker.weight for name, worker in self._usable.items()}
        self._loads = dict.fromkeys(self._usable, 0.0)
        """Of each worker, divided by its weight."""
        self._counts: Counter[str] = Counter()
        self._rings: dict[tuple[Candidates, str, str], tuple[Candidates, ...]] = {}
        self._offered: dict[Candidates, Candidates] = {}
        self._sound_places: dict[tuple[Candidates, Candidates], Candidates] = {}
        self._failing = frozenset(worker.name for worker in self._usable.values() if worker.fails)
        self._plan = Plan()

    def plan(self, units: Collection[PlannedUnit], current: Mapping[Unit, str], balance: Balance | None) -> Plan:
        classes: defaultdict[Candidates, list[PlannedUnit]] = defaultdict(list)
        orphans: list[PlannedUnit] = []
        are_capped = any(worker.max_links is not None for worker in self._usable.values())
        for unit in sorted(units, key=_rank) if are_capped else units:
            candidates = self._candidates_of(unit)
            if not candidates:
                continue
            classes[candidates].append(unit)
            worker = current.get(unit.unit)
            # One that would not be chosen today keeps what it runs until moves are due.
            stays = worker in self._usable and worker in unit.offered_by and self._has_room(worker)
            if worker is not None and stays and not self._runs_better_elsewhere(unit, worker):
                self._give(unit, worker)
            else:
                orphans.append(unit)
        self._place(orphans, units, displaces=are_capped)
        if balance is not None:
            self._balance_all(classes, units, balance)
        plan = self._plan
        plan.moved = {
            unit: (current[unit], worker)
            for unit, worker in plan.assigned.items()
            if unit in current and current[unit] != worker
        }
        return plan

    def _candidates_of(self, unit: PlannedUnit) -> Candidates:
        """Who is to run it: those nearest to its target."""
        return self._rings_of(unit)[0]

    def _rings_of(self, unit: PlannedUnit) -> tuple[Candidates, ...]:
        """Who could run it, the nearest to its target first; each has those before it, too, and the last has all."""
        key = (unit.offered_by, unit.target, unit.rack)
        found = self._rings.get(key)
        if found is None:
            offered = self._offered_by(unit)
            rings = [offered]
            for place in [unit.target, f"{unit.target}/{unit.rack}"] if unit.target else []:
                near = frozenset(name for name in rings[0] if place in self._usable[name].near)
                if near and near != rings[0]:
                    rings.insert(0, near)
            found = self._rings[key] = tuple(rings)
        return found

    def _offered_by(self, unit: PlannedUnit) -> Candidates:
        """Who could run it at all: one set for all units that the same workers offer."""
        found = self._offered.get(unit.offered_by)
        if found is None:
            found = self._offered[unit.offered_by] = frozenset(unit.offered_by & self._usable.keys())
        return found

    def _runs_better_elsewhere(self, unit: PlannedUnit, worker: str) -> bool:
        """Whether it fails there, and there is somebody who does not fail, as far as is known."""
        if worker not in unit.avoids:
            return False
        return any(map(self._has_room, self._sound(self._offered_by(unit), unit)))

    def _sound(self, places: Candidates, unit: PlannedUnit) -> Candidates:
        """Those of them that do not fail: one set for all units of which the same is known."""
        if not self._failing and not unit.avoids:
            return places
        key = (places, unit.avoids)
        found = self._sound_places.get(key)
        if found is None:
            found = self._sound_places[key] = places - self._failing - unit.avoids
        return found

    def _has_room(self, worker: str) -> bool:
        max_links = self._usable[worker].max_links
        return max_links is None or self._counts[worker] < max_links

    def _give(self, unit: PlannedUnit, worker: str) -> None:
        self._take(unit)
        self._plan.assigned[unit.unit] = worker
        self._loads[worker] += unit.load / self._weights[worker]
        self._counts[worker] += 1

    def _take(self, unit: PlannedUnit) -> None:
        before = self._plan.assigned.pop(unit.unit, None)
        if before is not None:
            self._loads[before] -= unit.load / self._weights[before]
            self._counts[before] -= 1

    def _place(self, orphans: Iterable[PlannedUnit], units: Iterable[PlannedUnit], *, displaces: bool) -> None:
        """Each to the least loaded of its candidates with room, else of all who could run it; where there is none, and
        it `displaces` others, in the place of a lesser one.
        """
        waiting = sorted(orphans, key=_rank)
        heaps: Heaps = {}
        lesser: dict[Candidates, list[PlannedUnit]] = {}
        placed = 0
        while placed < len(waiting):
            unit = waiting[placed]
            placed += 1
            if self._give_to_idlest(unit, heaps) or not displaces:
                continue
            places = self._offered_by(unit)
            if places not in lesser:
                ran = [each for each in units if self._plan.assigned.get(each.unit) in places]
                lesser[places] = sorted(ran, key=_rank)
            gone = self._least(lesser[places], places, unit.priority)
            if gone is not None:
                worker = self._plan.assigned[gone.unit]
                self._take(gone)
                self._give(unit, worker)
                insort(waiting, gone, lo=placed, key=_rank)

    def _give_to_idlest(self, unit: PlannedUnit, heaps: Heaps) -> bool:
        """Of the nearest, else of who is further away, rather than who fails; False: all are full."""
        rings = self._rings_of(unit)
        return self._give_in(unit, [*(self._sound(ring, unit) for ring in rings), *rings], heaps)

    def _give_in(self, unit: PlannedUnit, rings: Iterable[Candidates], heaps: Heaps) -> bool:
        """To the idlest with room of the first of these that has one; False: none has."""
        for places in rings:
            heap = heaps.get(places)
            if heap is None:
                heap = heaps[places] = [(self._loads[name], name) for name in places]
                heapify(heap)
            worker = self._idlest_with_room(heap)
            if worker is not None:
                self._give(unit, worker)
                heappush(heap, (self._loads[worker], worker))
                return True
        return False

    def _bring_nearer(self, units: Iterable[PlannedUnit]) -> None:
        """What runs further away than it must moves to those nearer who have room and do not lag, and nowhere else."""
        lagging = frozenset(name for name, worker in self._usable.items() if worker.lags)
        waiting = sorted((unit for unit in units if len(self._rings_of(unit)) > 1), key=_rank)
        moves = True
        while moves:  # a move leaves room where it came from; each ends nearer, so there is a last one
            moves = False
            heaps: Heaps = {}
            for unit in waiting:
                worker, nearer = self._plan.assigned.get(unit.unit), []
                for ring in self._rings_of(unit):
                    if worker is None or worker in ring:
                        break
                    sound = self._sound(ring, unit)
                    nearer.append(sound - lagging if lagging else sound)
                moves |= self._give_in(unit, nearer, heaps)

    def _idlest_with_room(self, heap: list[tuple[float, str]]) -> str | None:
        """Taken out of the heap. Who is full leaves it for good: a place that is freed is given away at once."""
        while heap:
            load, name = heappop(heap)
            if not self._has_room(name):
                continue
            if load == self._loads[name]:
                return name
            heappush(heap, (self._loads[name], name))  # it was given something by another heap
        return None

    def _least(self, ranked: list[PlannedUnit], places: Candidates, priority: int) -> PlannedUnit | None:
        """The last that runs there still, if it is of a lower priority than this."""
        while ranked and ranked[-1].priority < priority:
            unit = ranked.pop()
            if self._plan.assigned.get(unit.unit) in places:
                return unit
        return None

    def _balance_all(
        self, classes: Mapping[Candidates, list[PlannedUnit]], units: Iterable[PlannedUnit], balance: Balance
    ) -> None:
        if balance.moves_max is None:
            self._bring_nearer(units)
        moves_left = balance.moves_max
        # Those with the fewest places first: what is left to the others can make up for them.
        ordered = sorted(classes, key=lambda names: (len(names), sorted(names)))
        moves = True
        while moves:  # what one class moves may be a reason for another; each move brings two workers closer
            moves = False
            for candidates in ordered:
                moved = self._balance(candidates, classes[candidates], balance, moves_left)
                moves_left = None if moves_left is None else moves_left - moved
                moves |= moved > 0 and len(ordered) > 1
        if moves_left:
            self._relieve(classes, balance, moves_left)

    def _relieve(self, classes: Mapping[Candidates, list[PlannedUnit]], balance: Balance, moves_left: int) -> None:
        """Who lags, and has nobody as near to be relieved by, is relieved by those further away."""
        for further in (1, 2):
            wider: defaultdict[Candidates, list[PlannedUnit]] = defaultdict(list)
            for candidates, units in classes.items():
                lagging = {name for name in candidates if self._usable[name].lags}
                for unit in units if lagging else ():
                    rings = self._rings_of(unit)
                    if further < len(rings) and self._plan.assigned.get(unit.unit) in lagging:
                        wider[rings[further]].append(unit)
            for ring in sorted(wider, key=sorted):
                if moves_left:
                    moves_left -= self._balance(ring, wider[ring], balance, moves_left)

    def _balance(
        self, candidates: Candidates, units: Iterable[PlannedUnit], balance: Balance, moves_max: int | None
    ) -> int:
        """Move units of one class between its candidates until these are close, or nothing that fits is left -> how
        many were moved.
        """
        candidates = candidates - self._failing  # what is measured of those says nothing
        if not candidates:
            return 0
        ordered = sorted((unit for unit in units if not unit.rests), key=lambda unit: (unit.load, unit.unit))
        owned: defaultdict[str, list[int]] = defaultdict(list)
        """Of each worker the places of its units in `ordered`, the lightest first."""
        for place, unit in enumerate(ordered):
            if (owner := self._plan.assigned.get(unit.unit)) is not None:
                owned[owner].append(place)
        mean = sum(self._loads[name] * self._weights[name] for name in candidates) / sum(
            self._weights[name] for name in candidates
        )
        idlest = [(self._loads[name], name) for name in candidates]
        busiest = [(-load, name) for load, name in idlest]
        heapify(idlest)
        heapify(busiest)
        moved: Counter[str] = Counter()
        while busiest and (moves_max is None or moved.total() < moves_max):
            high = -busiest[0][0]
            name_high = heappop(busiest)[1]
            if high != self._loads[name_high]:
                continue  # an older word of it; the newest is in the heap, too
            lightest = self._lightest(idlest, but_who_lags=balance.moves_max is not None)
            if lightest is None:
                break  # who is not full is none of these
            low, name_low = lightest
            is_due = moved[name_high] or self._usable[name_high].lags
            if high - low <= mean * (balance.tolerance if is_due else balance.trigger):
                continue
            meet = (high - low) / (1 / self._weights[name_high] + 1 / self._weights[name_low])
            fitting = bisect_right(owned[name_high], meet, key=lambda place: ordered[place].load)
            if not fitting:
                continue  # with any of it the idle worker would be the busier one: it stays as it is
            place = owned[name_high].pop(fitting - 1)
            self._give(ordered[place], name_low)
            moved[name_high] += 1
            insort(owned[name_low], place)
            heappush(busiest, (-self._loads[name_high], name_high))
            heappush(busiest, (-self._loads[name_low], name_low))
            heappush(idlest, (self._loads[name_low], name_low))
            heappush(idlest, (self._loads[name_high], name_high))
        return moved.total()

    def _lightest(self, idlest: list[tuple[float, str]], *, but_who_lags: bool) -> tuple[float, str] | None:
        while idlest:
            load, name = idlest[0]
            if load == self._loads[name] and self._has_room(name) and not (but_who_lags and self._usable[name].lags):
                return idlest[0]
            heappop(idlest)  # an older word of it, or nobody to be given more
        return None
