"""Links that would be better cut anew: where one unit is more than a worker should have. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import ceil
from typing import Final

from mirror.coordinator.model import Unit
from mirror.fleet.loads import LOAD_PER_CORE
from mirror.fleet.planner import SHARE, PlannedUnit, PlannedWorker
from mirror.link import UNITS_MAX

CARRIED_MAX: Final = 0.8 * LOAD_PER_CORE
"""Of one unit: a worker is one process on one core, and needs some of it for what comes in bursts."""
NOTABLE_MIN: Final = 0.1 * LOAD_PER_CORE
"""What is idle is not cut, however few do anything at all."""
UNEVEN: Final = 2.0
"""A unit with so many times the mean of its link's others has a partition that is hot: more units do not part it."""


@dataclass(frozen=True, slots=True)
class CutAdvice:
    """`unit` keeps so many parts of a core busy, while a worker's fair part is `share`. `units`: into how many the link
    would have to be cut, those of its pins counted; None: a partition of the unit is hot, and is to be pinned.
    """

    unit: Unit
    load: float
    share: float
    units: int | None


def advise_cuts(workers: Collection[PlannedWorker], units: Collection[PlannedUnit]) -> list[CutAdvice]:
    """The heaviest unit of each link that is above what one worker can carry, or so large that the load cannot be
    shared out evenly among those that could run it.
    """
    usable = {worker.name: worker for worker in workers if not worker.is_drained}
    weights = sum(worker.weight for worker in usable.values())
    if not weights:
        return []
    share = sum(unit.load for unit in units) / weights
    by_link: dict[str, list[PlannedUnit]] = {}
    for unit in units:
        by_link.setdefault(unit.unit.link, []).append(unit)
    found = []
    for mine in by_link.values():
        top = max(mine, key=lambda unit: unit.load)
        widest = max((usable[name].weight for name in top.offered_by if name in usable), default=1.0)
        is_in_the_way = len(usable) > 1 and top.load > max(NOTABLE_MIN, (1 + SHARE.tolerance) * share * widest)
        if is_in_the_way or top.load > CARRIED_MAX:
            found.append(CutAdvice(top.unit, top.load / LOAD_PER_CORE, share / LOAD_PER_CORE, _units(mine, top, share)))
    return sorted(found, key=lambda advice: (-advice.load, advice.unit))


def _units(mine: Collection[PlannedUnit], top: PlannedUnit, share: float) -> int | None:
    """So that each has a worker's share, or what one can carry; None where that would not part what is hot."""
    load, others = sum(unit.load for unit in mine), len(mine) - 1
    if others and top.load > UNEVEN * (load - top.load) / others:
        return None
    return min(UNITS_MAX, max(len(mine) + 1, ceil(load / min(share, CARRIED_MAX))))
