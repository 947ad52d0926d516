"""What the leader of a fleet writes: the plan that follows from what it knows. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from mirror.coordinator.model import Unit
from mirror.fleet.failures import Failures
from mirror.fleet.keys import FleetKeys, OfferedLink
from mirror.fleet.loads import IDLE_LOAD, lags
from mirror.fleet.planner import NOBODY, Balance, Plan, PlannedUnit, PlannedWorker, make_plan
from mirror.fleet.store import Put
from mirror.fleet.view import FleetView, LiveWorker


def workers_of(view: FleetView, drained: Collection[str], failing: Collection[str] = ()) -> list[PlannedWorker]:
    lagging = {name for name, record in view.measured.items() if lags(record)}
    return [
        PlannedWorker(
            worker.name,
            worker.record.weight,
            frozenset(worker.record.near),
            worker.name in drained or worker.record.leaving,
            worker.record.max_links,
            worker.name in lagging,
            worker.name in failing,
        )
        for worker in view.workers.values()
    ]


def units_of(
    view: FleetView, resting: Collection[Unit], avoided: Mapping[Unit, frozenset[str]] | None = None
) -> list[PlannedUnit]:
    """All that any worker offers, each to be run by those only whose files say of it what the newest file says."""
    avoided = avoided or {}
    names: dict[frozenset[str], frozenset[str]] = {}  # one set for all links that the same workers offer
    units = []
    for link, versions in versions_of(view.workers.values()).items():
        newest = versions[0]
        offered_by = frozenset(newest.workers)
        offered_by = names.setdefault(offered_by, offered_by)
        said = newest.offered
        for unit in said.units_of(link):
            load = view.loads.get(unit, IDLE_LOAD)
            avoids = avoided.get(unit, NOBODY)
            units.append(
                PlannedUnit(
                    unit, offered_by, load, said.target, said.priority, unit in resting, avoids, said.target_rack
                )
            )
    return units


@dataclass(slots=True)
class Version:
    """What some workers' files say of a link; `file_at_ms` is of the newest of these files, `offered` its words."""

    offered: OfferedLink
    file_at_ms: int
    workers: list[str]

    @property
    def rank(self) -> tuple[int, int, str]:
        """Of the version that counts it is the greatest. Files that are as new as each other: what most of them say."""
        return (self.file_at_ms, len(self.workers), self.offered.declared)


def versions_of(workers: Iterable[LiveWorker]) -> Mapping[str, Sequence[Version]]:
    """Of each link what files say of it, what counts first. More than one: not all files are the same."""
    alike: dict[tuple[int, int], list[LiveWorker]] = {}
    for worker in workers:
        alike.setdefault((id(worker.record.links), worker.record.file_at_ms), []).append(worker)
    found: dict[str, dict[str, Version]] = {}
    for some in alike.values():
        record, names = some[0].record, [worker.name for worker in some]
        for link, offered in record.links.items():
            versions = found.setdefault(link, {})
            version = versions.get(offered.declared)
            if version is None:
                versions[offered.declared] = Version(offered, record.file_at_ms, names.copy())
                continue
            version.workers += names
            if record.file_at_ms > version.file_at_ms:
                version.file_at_ms, version.offered = record.file_at_ms, offered
    return {
        link: sorted(versions.values(), key=lambda version: version.rank, reverse=True)
        for link, versions in found.items()
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
    failures: Failures | None = None,
    unproven: Collection[str] = (),
) -> Decision:
    """What the leader writes, with as much balance as is due.

    `drained` is what an operator is about to say, who wants to see first what would come of it. `unproven` are given
    nothing for balance.
    """
    failures = failures or Failures()
    workers = workers_of(view, view.drained if drained is None else drained, {*failures.workers, *unproven})
    plan = make_plan(workers, units_of(view, resting, failures.avoided), view.planned, balance)
    puts: dict[str, Put | None] = {
        keys.plan(unit): Put(worker) for unit, worker in plan.assigned.items() if view.planned.get(unit) != worker
    }
    # Nobody can run it: the next who offers it is chosen as if it had never run.
    puts |= {keys.plan(unit): None for unit in view.planned if unit not in plan.assigned}
    if view.rebalance is not None:
        puts[keys.rebalance] = None  # the last: a leader that dies before leaves the wish to the next
    return Decision(plan, puts)
