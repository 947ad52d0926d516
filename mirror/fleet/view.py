"""What a worker knows of its fleet: the store's keys, read once and followed change by change."""

from __future__ import annotations

from dataclasses import dataclass

from mirror.coordinator.model import Unit
from mirror.fleet.keys import DRAINED, HELD, PLAN, REBALANCE, WORKERS, FleetKeys, WorkerRecord, read_holder, read_worker
from mirror.fleet.store import Change, Changes, Item, Snapshot


@dataclass(frozen=True, slots=True)
class LiveWorker:
    """A worker whose lease lives. `joined` tells it from an earlier one of its name."""

    name: str
    joined: int
    record: WorkerRecord


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

    def __init__(self, keys: FleetKeys, snapshot: Snapshot) -> None:
        self._keys = keys
        self.revision = snapshot.revision
        self.inputs_revision = snapshot.revision
        """When something changed last that a plan is made from."""
        self.workers: dict[str, LiveWorker] = {}
        self.planned: dict[Unit, str] = {}
        self.held: dict[Unit, Holder] = {}
        self.drained: set[str] = set()
        self.rebalance: int | None = None
        """When an operator asked for it, as the key's revision."""
        self.garbled: set[str] = set()
        for key, item in snapshot.items.items():
            self._apply(Change(key, item))

    def follow(self, changes: Changes) -> None:
        self.revision = changes.revision
        for change in changes.changes:
            self._apply(change)

    @property
    def leader(self) -> LiveWorker | None:
        """The oldest of those that live."""
        return min(self.workers.values(), key=lambda worker: worker.joined, default=None)

    def _apply(self, change: Change) -> None:
        place = change.key.removeprefix(self._keys.prefix)
        self.garbled.discard(change.key)
        if place == REBALANCE:
            self.rebalance = change.item.created if change.item else None
            self.inputs_revision = self.revision
        elif place.startswith(WORKERS):
            self._apply_worker(change.key, place.removeprefix(WORKERS), change.item)
            self.inputs_revision = self.revision
        elif place.startswith(DRAINED):
            name = place.removeprefix(DRAINED)
            (self.drained.add if change.item else self.drained.discard)(name)
            self.inputs_revision = self.revision
        elif place.startswith(PLAN):
            self._apply_plan(Unit(place.removeprefix(PLAN)), change.item)
            self.inputs_revision = self.revision
        elif place.startswith(HELD):
            self._apply_held(change.key, Unit(place.removeprefix(HELD)), change.item)

    def _apply_worker(self, key: str, name: str, item: Item | None) -> None:
        self.workers.pop(name, None)
        if item is None:
            return
        record = read_worker(item.value)
        if record is None:
            self.garbled.add(key)
        else:
            self.workers[name] = LiveWorker(name, item.created, record)

    def _apply_plan(self, unit: Unit, item: Item | None) -> None:
        self.planned.pop(unit, None)
        if item is not None:
            self.planned[unit] = item.value

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
