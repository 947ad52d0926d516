"""A fleet as an operator sees it: who lives, who runs what, what moves, and what is wrong. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from mirror.coordinator.model import Unit
from mirror.fleet.keys import FleetKeys
from mirror.fleet.leading import decide, differing
from mirror.fleet.view import FleetView


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
    weight: float
    near: tuple[str, ...]
    started_at_ms: int | None


@dataclass(frozen=True, slots=True)
class FleetLink:
    link: str
    state: UnitState
    worker: str | None
    """That is to run it."""
    holder: str | None
    epoch: int | None
    """Grows with each holder."""


@dataclass(frozen=True, slots=True)
class FleetStatus:
    workers: tuple[WorkerStatus, ...]
    links: tuple[FleetLink, ...]
    findings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """A link that another worker would run; None: nobody."""

    link: str
    holder: str | None
    to: str | None


def fleet_status(view: FleetView, links: Iterable[str]) -> FleetStatus:
    """`links` are those of the file that is looked from; the fleet may have others."""
    offered = {link for worker in view.workers.values() for link in worker.record.links}
    known = {Unit(link) for link in offered | set(links)} | view.planned.keys() | view.held.keys()
    found = tuple(_link_of(view, unit) for unit in sorted(known))
    held = [holder.worker for holder in view.held.values()]
    workers = tuple(
        WorkerStatus(
            worker.name,
            worker is view.leader,
            worker.name in view.drained,
            True,
            held.count(worker.name),
            worker.record.weight,
            worker.record.near,
            worker.record.since_ms or None,
        )
        for worker in sorted(view.workers.values(), key=lambda worker: worker.joined)
    ) + tuple(
        WorkerStatus(name, False, True, False, held.count(name), 1.0, (), None)
        for name in sorted(view.drained - view.workers.keys())
    )
    return FleetStatus(workers, found, tuple(_findings(view, found)))


def _link_of(view: FleetView, unit: Unit) -> FleetLink:
    worker, holder = view.planned.get(unit), view.held.get(unit)
    if holder is not None and holder.worker == worker:
        state = UnitState.HELD
    elif holder is not None:
        state = UnitState.MOVING
    else:
        state = UnitState.NOBODY if worker is None else UnitState.WAITING
    name = None if holder is None else holder.worker
    return FleetLink(unit.link, state, worker, name, None if holder is None else holder.epoch)


def _findings(view: FleetView, links: Iterable[FleetLink]) -> list[str]:
    findings = []
    if not view.workers:
        findings.append("no worker lives: farshore mirror run")
    for link in links:
        if link.state is UnitState.NOBODY and view.workers:
            findings.append(f"nobody runs link {link.link}: start a worker whose file has it, or undrain one")
    for name, workers in sorted(differing(view.workers.values()).items()):
        findings.append(f"the files of {', '.join(workers)} differ about link {name}: make them say the same")
    findings += [f"key {key} cannot be read: delete it, or run the newest farshore" for key in sorted(view.garbled)]
    return findings


def moves_of(
    keys: FleetKeys,
    view: FleetView,
    loads: Mapping[Unit, float],
    *,
    drain: str | None = None,
    undrain: str | None = None,
    rebalance: bool = False,
) -> list[Move]:
    """What the leader would move now if balance were due, with one worker drained or not, or all shared out anew."""
    drained = set(view.drained)
    drained |= {drain} if drain is not None else set()
    drained -= {undrain} if undrain is not None else set()
    decision = decide(keys, view, loads, is_settled=drain is None, drained=drained, is_asked=rebalance)
    assigned = decision.plan.assigned
    return [
        Move(unit.link, view.planned.get(unit), assigned.get(unit))
        for unit in sorted(assigned.keys() | view.planned.keys())
        if assigned.get(unit) != view.planned.get(unit)
    ]
