"""What the leader of a fleet writes: the plan that follows from what it knows. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from mirror.coordinator.model import Unit
from mirror.fleet.keys import FleetKeys, OfferedLink
from mirror.fleet.loads import IDLE_LOAD, lags
from mirror.fleet.planner import Balance, Plan, PlannedUnit, PlannedWorker, make_plan
from mirror.fleet.store import Put
from mirror.fleet.view import FleetView, LiveWorker


def workers_of(view: FleetView, drained: Collection[str]) -> list[PlannedWorker]:
    lagging = {name for name, record in view.measured.items() if lags(record)}
    return [
        PlannedWorker(
            worker.name,
            worker.record.weight,
            frozenset(worker.record.near),
            worker.name in drained,
            worker.record.max_links,
            worker.name in lagging,
        )
        for worker in view.workers.values()
    ]


def units_of(view: FleetView, resting: Collection[Unit]) -> list[PlannedUnit]:
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
        said, unit = next(iter(by_worker.values())), Unit(link)
        load = view.loads.get(unit, IDLE_LOAD)
        units.append(PlannedUnit(unit, offered_by, load, said.target, said.priority, unit in resting))
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
    balance: Balance | None,
    *,
    drained: Collection[str] | None = None,
    resting: Collection[Unit] = (),
) -> Decision:
    """What the leader writes, with as much balance as is due.

    `drained` is what an operator is about to say, who wants to see first what would come of it.
    """
    workers = workers_of(view, view.drained if drained is None else drained)
    plan = make_plan(workers, units_of(view, resting), view.planned, balance)
    puts: dict[str, Put | None] = {
        keys.plan(unit): Put(worker) for unit, worker in plan.assigned.items() if view.planned.get(unit) != worker
    }
    # Nobody can run it: the next who offers it is chosen as if it had never run.
    puts |= {keys.plan(unit): None for unit in view.planned if unit not in plan.assigned}
    if view.rebalance is not None:
        puts[keys.rebalance] = None  # the last: a leader that dies before leaves the wish to the next
    return Decision(plan, puts)
