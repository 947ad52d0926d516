"""How long the planner needs for 100,000 units and 1,000 workers."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from mirror.coordinator.model import Unit
from mirror.fleet.planner import EASE, SHARE, Balance, PlannedUnit, PlannedWorker, make_plan

UNITS: Final = 100_000
WORKERS: Final = 1_000


class Planned(NamedTuple):
    """Median, and the units that moved or were given away."""

    what: str
    seconds: float
    changed: int


def bench_planner(rounds: int) -> list[Planned]:
    chance = random.Random(7)
    workers = [PlannedWorker(f"w{number:04}") for number in range(WORKERS)]
    everyone = frozenset(worker.name for worker in workers)
    units = [PlannedUnit(Unit(f"u{number:06}"), everyone, chance.expovariate(1.0) + 0.01) for number in range(UNITS)]
    first = make_plan(workers, units, {}).assigned
    shifted = [
        PlannedUnit(each.unit, everyone, each.load * chance.lognormvariate(0.0, 1.0))
        if chance.random() < 0.25
        else each
        for each in units
    ]
    joined = [*workers, *(PlannedWorker(f"x{number}") for number in range(10))]
    all_joined = everyone | {worker.name for worker in joined}
    wider = [PlannedUnit(each.unit, all_joined, each.load) for each in units]
    return [
        _planned("a new fleet", rounds, workers, units, {}, SHARE),
        _planned("nothing changed", rounds, workers, units, first, SHARE),
        _planned("a worker is gone", rounds, workers[1:], units, first, None),
        _planned("ten workers joined", rounds, joined, wider, first, SHARE),
        _planned("loads shifted", rounds, workers, shifted, first, SHARE),
        _planned("loads shifted, one move", rounds, workers, shifted, first, EASE),
    ]


def _planned(
    what: str,
    rounds: int,
    workers: list[PlannedWorker],
    units: list[PlannedUnit],
    current: Mapping[Unit, str],
    balance: Balance | None,
) -> Planned:
    seconds = []
    for _ in range(rounds):
        began_s = time.perf_counter()
        plan = make_plan(workers, units, current, balance)
        seconds.append(time.perf_counter() - began_s)
    return Planned(what, statistics.median(seconds), sum(current.get(unit) != at for unit, at in plan.assigned.items()))
