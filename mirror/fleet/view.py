"""What a worker knows of its fleet: the store's keys, read once and followed change by change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mirror.coordinator.model import Unit
from mirror.fleet.keys import (
    DRAINED,
    HELD,
    LOADS,
    PLAN,
    READY,
    REBALANCE,
    WORKERS,
    FleetKeys,
    LoadRecord,
    OfferedLink,
    ReadyRecord,
    WorkerRecord,
    read_holder,
    read_load,
    read_ready,
    read_worker,
)
from mirror.fleet.loads import loads_of
from mirror.fleet.store import Change, Changes, Item, Snapshot


@dataclass(frozen=True, slots=True)
class LiveWorker:
    """A worker whose lease lives. `joined` tells it from an earlier one of its name; `said`: the record as written."""

    name: str
    joined: int
    record: WorkerRecord
    said: str


@dataclass(frozen=True, slots=True)
class Holder:
    """Who runs a unit. `epoch` is the revision at which it took it: a later holder has a higher one.

    `worker` is empty where nobody can read what stands there; the unit is taken all the same.
    """

    worker: str
    joined: int
    epoch: int


class FleetView:
    """As of `revision`. A key that cannot be read concerns nothing but what it describes; `garbled` names it."""

    def __init__(self, keys: FleetKeys, snapshot: Snapshot, before: FleetView | None = None) -> None:
        """`before` is what was known until now: of it the loads are kept that nobody has measured since."""
        self._keys = keys
        self.revision = snapshot.revision
        self.inputs_revision = snapshot.revision
        """When something changed last that a plan is made from."""
        self.workers: dict[str, LiveWorker] = {}
        self.planned: dict[Unit, str] = {}
        self.held: dict[Unit, Holder] = {}
        self.ready: dict[Unit, ReadyRecord] = {}
        self.drained: set[str] = set()
        self.rebalance: int | None = None
        """When an operator asked for it, as the key's revision."""
        self.measured: dict[str, LoadRecord] = {}
        """By worker, what it wrote last."""
        self.loads: dict[Unit, float] = dict(before.loads) if before is not None else {}
        """Of units, as their holders measured them last: also of one whose holder is gone, or has not measured yet."""
        self.loads_revision = snapshot.revision
        self.garbled: set[str] = set()
        for key, item in sorted(snapshot.items.items()):  # who holds what comes before what was measured of it
            self._apply(Change(key, item))
        self.loads = {unit: load for unit, load in self.loads.items() if unit in self.planned}

    def follow(self, changes: Changes) -> None:
        self.revision = changes.revision
        for change in changes.changes:
            self._apply(change)

    @property
    def leader(self) -> LiveWorker | None:
        """The oldest of those that live."""
        return min(self.workers.values(), key=lambda worker: worker.joined, default=None)

    @property
    def unusable(self) -> frozenset[str]:
        """Workers that are to run nothing: drained, or being stopped."""
        return frozenset(self.drained) | {name for name, worker in self.workers.items() if worker.record.leaving}

    def is_ready(self, unit: Unit, worker: LiveWorker) -> bool:
        """Whether this worker has prepared what the holder of now runs."""
        ready, holder = self.ready.get(unit), self.held.get(unit)
        if ready is None or holder is None:
            return False
        return (ready.worker, ready.joined, ready.epoch) == (worker.name, worker.joined, holder.epoch)

    def _apply(self, change: Change) -> None:
        place = change.key.removeprefix(self._keys.prefix)
        self.garbled.discard(change.key)
        if place == REBALANCE:
            self.rebalance = change.item.created if change.item else None
            self.inputs_revision = self.revision
        elif place.startswith(WORKERS):
            self._apply_worker(change.key, place.removeprefix(WORKERS), change.item)
            self.inputs_revision = self.revision
        elif place.startswith(LOADS):
            self._apply_load(change.key, place.removeprefix(LOADS), change.item)
        elif place.startswith(DRAINED):
            name = place.removeprefix(DRAINED)
            (self.drained.add if change.item else self.drained.discard)(name)
            self.inputs_revision = self.revision
        elif place.startswith(PLAN):
            self._apply_plan(Unit.named(place.removeprefix(PLAN)), change.item)
            self.inputs_revision = self.revision
        elif place.startswith(HELD):
            self._apply_held(change.key, Unit.named(place.removeprefix(HELD)), change.item)
        elif place.startswith(READY):
            self._apply_ready(change.key, Unit.named(place.removeprefix(READY)), change.item)

    def _apply_worker(self, key: str, name: str, item: Item | None) -> None:
        self.workers.pop(name, None)
        if item is None:
            return
        record = read_worker(item.value)
        if record is None:
            self.garbled.add(key)
            return
        links = self._as_known(record.links)
        self.workers[name] = LiveWorker(name, item.created, record.model_copy(update={"links": links}), item.value)

    def _as_known(self, links: Mapping[str, OfferedLink]) -> Mapping[str, OfferedLink]:
        """One mapping for all workers whose files say the same: a thousand may each name a thousand links."""
        return next((each.record.links for each in self.workers.values() if each.record.links == links), links)

    def _apply_load(self, key: str, name: str, item: Item | None) -> None:
        self.measured.pop(name, None)
        if item is None:
            return
        record = read_load(item.value)
        if record is None:
            self.garbled.add(key)
            return
        self.measured[name] = record
        self.loads_revision = self.revision
        for unit, load in loads_of(record).items():
            holder = self.held.get(unit)
            if holder is None or holder.worker == name:  # else it was moved since this was measured
                self.loads[unit] = load

    def _apply_plan(self, unit: Unit, item: Item | None) -> None:
        self.planned.pop(unit, None)
        if item is not None:
            self.planned[unit] = item.value
        else:
            self.loads.pop(unit, None)

    def _apply_held(self, key: str, unit: Unit, item: Item | None) -> None:
        self.held.pop(unit, None)
        if item is None:
            return
        record = read_holder(item.value)
        if record is None:
            self.garbled.add(key)
            self.held[unit] = Holder("", 0, item.created)
        else:
            self.held[unit] = Holder(record.worker, record.joined, item.created)

    def _apply_ready(self, key: str, unit: Unit, item: Item | None) -> None:
        self.ready.pop(unit, None)
        if item is None:
            return
        record = read_ready(item.value)
        if record is None:
            self.garbled.add(key)
        else:
            self.ready[unit] = record
