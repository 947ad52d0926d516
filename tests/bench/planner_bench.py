"""How long the planner needs for 100,000 units and 1,000 workers."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from mirror.coordinator.model import Unit
from mirror.fleet.keys import FleetKeys, OfferedLink, WorkerRecord
from mirror.fleet.leading import Decision, decide
from mirror.fleet.planner import EASE, SHARE, Balance, PlannedUnit, PlannedWorker, make_plan
from mirror.fleet.store import Change, Changes, Item, Snapshot
from mirror.fleet.view import FleetView

UNITS: Final = 100_000
WORKERS: Final = 1_000
LINKS: Final = 1_000
KEYS: Final = FleetKeys("/bench/")


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
        *_decided(rounds),
        _planned("a new fleet", rounds, workers, units, {}, SHARE),
        _planned("nothing changed", rounds, workers, units, first, SHARE),
        _planned("a worker is gone", rounds, workers[1:], units, first, None),
        _planned("ten workers joined", rounds, joined, wider, first, SHARE),
        _planned("loads shifted", rounds, workers, shifted, first, SHARE),
        _planned("loads shifted, one move", rounds, workers, shifted, first, EASE),
    ]


def _decided(rounds: int) -> list[Planned]:
    """The whole of what a leader does, from what it knows of the fleet to what it writes."""
    offered = OfferedLink(target="west", declared="0123456789abcdef", units=UNITS // LINKS)
    said = WorkerRecord(links={f"link-{number:04}": offered for number in range(LINKS)}).model_dump_json()
    items = {KEYS.worker(f"w{number:04}"): Item(said, number + 1) for number in range(WORKERS)}
    fleet = FleetView(KEYS, Snapshot(WORKERS, items))
    first = decide(KEYS, fleet, SHARE)
    news = [Change(key, Item(put.value, WORKERS + 1)) for key, put in first.puts.items() if put is not None]
    found = [_timed("decided: a new fleet", rounds, lambda: _written(decide(KEYS, fleet, SHARE)))]
    fleet.follow(Changes(WORKERS + 1, tuple(news)))
    fleet.follow(Changes(WORKERS + 2, (Change(KEYS.worker("w0000"), None),)))
    return [*found, _timed("decided: a worker is gone", rounds, lambda: _written(decide(KEYS, fleet, None)))]


def _written(decision: Decision) -> int:
    return len(decision.puts)


def _planned(
    what: str,
    rounds: int,
    workers: list[PlannedWorker],
    units: list[PlannedUnit],
    current: Mapping[Unit, str],
    balance: Balance | None,
) -> Planned:
    def changed() -> int:
        plan = make_plan(workers, units, current, balance)
        return sum(current.get(unit) != at for unit, at in plan.assigned.items())

    return _timed(what, rounds, changed)


def _timed(what: str, rounds: int, decided: Callable[[], int]) -> Planned:
    seconds = []
    for _ in range(rounds):
        began_s = time.perf_counter()
        changed = decided()
        seconds.append(time.perf_counter() - began_s)
    return Planned(what, statistics.median(seconds), changed)
