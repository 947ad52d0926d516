"""What the leader of a fleet writes: the plan that follows from what it knows. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from mirror.coordinator.model import Unit
from mirror.fleet.keys import FleetKeys, OfferedLink
from mirror.fleet.planner import NO_TOLERANCE, TOLERANCE, Plan, PlannedUnit, PlannedWorker, make_plan
from mirror.fleet.store import Put
from mirror.fleet.view import FleetView, LiveWorker


def workers_of(view: FleetView, drained: Collection[str]) -> list[PlannedWorker]:
    return [
        PlannedWorker(worker.name, worker.record.weight, frozenset(worker.record.near), worker.name in drained)
        for worker in view.workers.values()
    ]


def units_of(view: FleetView, loads: Mapping[Unit, float]) -> list[PlannedUnit]:
    """All that any worker offers. Where files declare a link differently, only those agree that offer the same."""
    offers: dict[str, dict[str, OfferedLink]] = {}
    for worker in view.workers.values():
        for link, offered in worker.record.links.items():
            offers.setdefault(link, {})[worker.name] = offered
    names: dict[frozenset[str], frozenset[str]] = {}  # one set for all links that the same workers offer
    units = []
    for link, by_worker in offers.items():
        offered_by = frozenset(by_worker)
        offered_by = names.setdefault(offered_by, offered_by)
        target = next(iter(by_worker.values())).target
        unit = Unit(link)
        units.append(PlannedUnit(unit, offered_by, loads.get(unit, 1.0), target))
    return units


def differing(workers: Iterable[LiveWorker]) -> dict[str, list[str]]:
    """Links that workers' files declare differently -> those workers."""
    declared: dict[str, dict[str, list[str]]] = {}
    for worker in workers:
        for link, offered in worker.record.links.items():
            declared.setdefault(link, {}).setdefault(offered.declared, []).append(worker.name)
    return {
        link: sorted(name for names in versions.values() for name in names)
        for link, versions in declared.items()
        if len(versions) > 1
    }


@dataclass(frozen=True, slots=True)
class Decision:
    """The plan, and what is to be written of it: only what differs from what stands there."""

    plan: Plan
    puts: Mapping[str, Put | None]


def decide(
    keys: FleetKeys,
    view: FleetView,
    loads: Mapping[Unit, float],
    *,
    is_settled: bool,
    drained: Collection[str] | None = None,
    is_asked: bool = False,
) -> Decision:
    """What the leader writes. What runs is moved for balance only when the fleet is settled, or an operator asked.

    `drained` and `is_asked` are what an operator is about to say, who wants to see first what would come of it.
    """
    asked = is_asked or view.rebalance is not None
    plan = make_plan(
        workers_of(view, view.drained if drained is None else drained),
        units_of(view, loads),
        view.planned,
        may_move=is_settled or asked,
        tolerance=NO_TOLERANCE if asked else TOLERANCE,
    )
    puts: dict[str, Put | None] = {
        keys.plan(unit): Put(worker) for unit, worker in plan.assigned.items() if view.planned.get(unit) != worker
    }
    # Nobody can run it: the next who offers it is chosen as if it had never run.
    puts |= {keys.plan(unit): None for unit in view.planned if unit not in plan.assigned}
    if view.rebalance is not None:
        puts[keys.rebalance] = None  # the last: a leader that dies before leaves the wish to the next
    return Decision(plan, puts)
