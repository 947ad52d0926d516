"""A fleet as an operator sees it: who lives, who runs what, what moves, and what is wrong. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mirror.coordinator.model import Unit
from mirror.fleet.failures import Failures
from mirror.fleet.keys import FleetKeys
from mirror.fleet.leading import decide, units_of, versions_of, workers_of
from mirror.fleet.planner import EVEN, SHARE, distance
from mirror.fleet.view import FleetView, LiveWorker

NAMED_MAX: Final = 5
"""Of units in one finding."""


class UnitState(StrEnum):
    """What a link does in its fleet; whether records flow is for `farshore status` to say."""

    HELD = "held"
    """By the worker that is to run it."""
    MOVING = "moving"
    """One worker is to run it, and another one holds it still."""
    WAITING = "waiting"
    """Its worker has not taken it yet."""
    NOBODY = "nobody"
    """No worker that could run it lives, or all of them are drained."""


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    worker: str
    leads: bool
    drained: bool
    lives: bool
    """A drained worker's name is kept when it is gone."""
    links_held: int
    max_links: int | None
    weight: float
    near: tuple[str, ...]
    started_at_ms: int | None
    cpu_cores: float | None
    """That it keeps busy. This and what its links move: smoothed, None before it measured, and with nothing to run."""
    bytes_per_second: int | None
    lag_offsets: int | None
    """Of its links together: source offsets whose records the targets do not have yet."""


@dataclass(frozen=True, slots=True)
class FleetLink:
    link: str
    """Or one of its units, LINK/NUMBER, where it is cut."""
    state: UnitState
    worker: str | None
    """That is to run it."""
    holder: str | None
    epoch: int | None
    """Grows with each holder."""
    bytes_per_second: int | None
    records_per_second: int | None
    lag_offsets: int | None


@dataclass(frozen=True, slots=True)
class FleetStatus:
    workers: tuple[WorkerStatus, ...]
    links: tuple[FleetLink, ...]
    findings: tuple[str, ...]


class MoveReason(StrEnum):
    NEW = "new"
    """Nobody was to run it."""
    GONE = "gone"
    """Its worker does not live any more."""
    DRAINED = "drained"
    FILE = "file"
    """Its worker's file does not say of it what the newest one does."""
    FULL = "full"
    """Its worker runs as many as it may, of them some with a higher priority."""
    NEARER = "nearer"
    """The other one is nearer to its target."""
    LOAD = "load"


@dataclass(frozen=True, slots=True)
class Move:
    """A link that another worker would run, and why; None: nobody."""

    link: str
    holder: str | None
    to: str | None
    why: MoveReason


def in_between(view: FleetView) -> frozenset[tuple[Unit, str, int]]:
    """What its worker has not taken: the unit, the worker, and the epoch in which another one holds it (0: nobody)."""
    held = view.held
    return frozenset(
        (unit, worker, held[unit].epoch if unit in held else 0)
        for unit, worker in view.planned.items()
        if worker in view.workers and (unit not in held or held[unit].worker != worker)
    )


def fleet_status(view: FleetView, units: Iterable[Unit], stuck: Collection[tuple[Unit, str, int]] = ()) -> FleetStatus:
    """`units` are those of the file that is looked from; the fleet may have others. `stuck` were `in_between` a while
    ago, and are still.
    """
    offered = dict.fromkeys(units)
    for link, versions in versions_of(view.workers.values()).items():
        offered |= dict.fromkeys(versions[0].offered.units_of(link))
    known = offered.keys() | view.planned.keys() | view.held.keys()
    found = tuple(_link_of(view, unit) for unit in sorted(known))
    held = Counter(holder.worker for holder in view.held.values())
    leader = view.leader
    living = sorted(view.workers.values(), key=lambda worker: worker.joined)
    workers = [_worker_of(view, worker, worker is leader, held[worker.name]) for worker in living]
    gone = sorted(view.drained - view.workers.keys())
    workers += [
        WorkerStatus(name, False, True, False, held[name], None, 1.0, (), None, None, None, None) for name in gone
    ]
    return FleetStatus(tuple(workers), found, tuple(_findings(view, found, stuck)))


def _worker_of(view: FleetView, worker: LiveWorker, leads: bool, links_held: int) -> WorkerStatus:
    record, measured = worker.record, view.measured.get(worker.name)
    links = list(measured.links.values()) if measured is not None else []
    lags = [link.lag_offsets for link in links if link.lag_offsets is not None]
    return WorkerStatus(
        worker=worker.name,
        leads=leads,
        drained=worker.name in view.drained,
        lives=True,
        links_held=links_held,
        max_links=record.max_links,
        weight=record.weight,
        near=record.near,
        started_at_ms=record.since_ms or None,
        cpu_cores=measured.cpu_cores if measured is not None else None,
        bytes_per_second=sum(link.bytes_per_second for link in links) if links else None,
        lag_offsets=sum(lags) if links and len(lags) == len(links) else None,
    )


def _link_of(view: FleetView, unit: Unit) -> FleetLink:
    worker, holder = view.planned.get(unit), view.held.get(unit)
    if holder is not None and holder.worker == worker:
        state = UnitState.HELD
    elif holder is not None:
        state = UnitState.MOVING
    else:
        state = UnitState.NOBODY if worker is None else UnitState.WAITING
    if holder is None:
        return FleetLink(str(unit), state, worker, None, None, None, None, None)
    measured = view.measured.get(holder.worker)
    load = measured.links.get(str(unit)) if measured is not None else None
    if load is None:
        return FleetLink(str(unit), state, worker, holder.worker, holder.epoch, None, None, None)
    rates = (load.bytes_per_second, load.records_per_second, load.lag_offsets)
    return FleetLink(str(unit), state, worker, holder.worker, holder.epoch, *rates)


def _findings(view: FleetView, links: Iterable[FleetLink], stuck: Collection[tuple[Unit, str, int]]) -> list[str]:
    findings = []
    if not view.workers:
        findings.append("no worker lives: farshore mirror run")
    full = {
        link
        for name, worker in view.workers.items()
        if name not in view.drained and worker.record.max_links is not None
        for link in worker.record.links
    }
    for link in links:
        if link.state is UnitState.NOBODY and Unit.named(link.link).link in full:
            findings.append(
                f"nobody runs link {link.link}: who could has --max-links already; start another worker with it"
            )
        elif link.state is UnitState.NOBODY and view.workers:
            findings.append(f"nobody runs link {link.link}: start a worker whose file has it, or undrain one")
    for unit, worker, epoch in sorted(stuck):
        who = f"{view.held[unit].worker} has it still" if epoch else "nobody runs it"
        findings.append(f"worker {worker} does not take link {unit}, and {who}: see the log of either; restart one")
    for name, measured in sorted(view.measured.items()):
        if measured.failing:
            some = ", ".join(measured.failing[:NAMED_MAX]) + (", ..." if len(measured.failing) > NAMED_MAX else "")
            findings.append(
                f"worker {name} can begin no session of {some}, or none that lasts: its log says why; "
                "where other workers can, see that its machine reaches both sites"
            )
    for name, (newest, *others) in sorted(versions_of(view.workers.values()).items()):
        behind = sorted(worker for version in others for worker in version.workers)
        if behind:
            findings.append(
                f"link {name} runs as the newest file says, that of {', '.join(sorted(newest.workers))}; "
                f"the files of {', '.join(behind)} say something else: bring them up to date"
            )
    findings += [f"key {key} cannot be read: delete it, or run the newest farshore" for key in sorted(view.garbled)]
    return findings


def moves_of(
    keys: FleetKeys, view: FleetView, *, drain: str | None = None, undrain: str | None = None, rebalance: bool = False
) -> list[Move]:
    """What the leader would move now if balance were due, with one worker drained or not, or all shared out anew."""
    drained = set(view.drained)
    drained |= {drain} if drain is not None else set()
    drained -= {undrain} if undrain is not None else set()
    balance = EVEN if rebalance else SHARE if drain is None else None
    workers = {worker.name: worker for worker in workers_of(view, drained)}
    units = {unit.unit: unit for unit in units_of(view, ())}
    failures = Failures()
    failures.look(view, 0.0)  # what fails now; what failed a while ago the leader alone knows
    assigned = decide(keys, view, balance, drained=drained, failures=failures).plan.assigned
    full = Counter(assigned.values())

    def why(unit: Unit) -> MoveReason:
        holder = workers.get(view.planned.get(unit, ""))
        if holder is None:
            return MoveReason.GONE if unit in view.planned else MoveReason.NEW
        if holder.is_drained:
            return MoveReason.DRAINED
        if unit not in units or holder.name not in units[unit].offered_by:
            return MoveReason.FILE
        to = assigned.get(unit)
        if to is not None and distance(units[unit], workers[to]) < distance(units[unit], holder):
            return MoveReason.NEARER
        return MoveReason.FULL if full[holder.name] == holder.max_links else MoveReason.LOAD

    return [
        Move(str(unit), view.planned.get(unit), assigned.get(unit), why(unit))
        for unit in sorted(assigned.keys() | view.planned.keys())
        if assigned.get(unit) != view.planned.get(unit)
    ]
