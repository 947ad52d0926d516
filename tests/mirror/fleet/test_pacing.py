"""When a leader shares out a fleet whose workers come and go."""

from __future__ import annotations

from mirror.coordinator.model import Unit
from mirror.fleet.keys import FleetKeys, WorkerRecord
from mirror.fleet.leading import decide
from mirror.fleet.pacing import SETTLES_MAX, Pacing
from mirror.fleet.settings import FleetSettings
from mirror.fleet.store import Snapshot
from mirror.fleet.view import FleetView, LiveWorker
from tests.mirror.fleet.workers import offer_of

KEYS = FleetKeys("/f/")
SETTINGS = FleetSettings()
LINKS = [f"link-{number}" for number in range(4)]
RECORD: WorkerRecord = offer_of(LINKS)
STEP_S = 0.5


class Led:
    """One worker has everything; others come."""

    def __init__(self) -> None:
        self.view = FleetView(KEYS, Snapshot(1, {}))
        self.view.planned = dict.fromkeys(map(Unit, LINKS), "old")
        self.pacing = Pacing(0.0, SETTINGS)
        self._joined = 0
        self.now = 0.0
        self.join("old")

    def join(self, name: str) -> None:
        self._joined += 1
        self.view.workers[name] = LiveWorker(name, self._joined, RECORD, "")
        self._changed()

    def die(self, name: str) -> None:
        del self.view.workers[name]
        self._changed()

    def _changed(self) -> None:
        self.view.revision += 1
        self.view.inputs_revision = self.view.revision

    def lead(self) -> None:
        """One look, as `Leader` has it."""
        self.now += STEP_S
        if self.pacing.is_due(self.view, self.now):
            balance = self.pacing.balance(self.view, self.now)
            unproven = self.pacing.unproven(self.view, balance, self.now)
            self.view.planned = dict(decide(KEYS, self.view, balance, unproven=unproven).plan.assigned)
            self.pacing.planned(balance, self.view.revision, self.now, unproven)

    def runs(self, name: str) -> int:
        return sum(worker == name for worker in self.view.planned.values())

    def crash_looping(self, seconds: float) -> None:
        """Of a worker that is there for one look of two."""
        until = self.now + seconds
        while self.now < until:
            self.join("looping")
            self.lead()
            assert self.runs("looping") == 0
            self.die("looping")
            self.lead()


def test_a_worker_that_comes_and_goes_does_not_keep_another_one_idle_for_ever() -> None:
    fleet = Led()
    fleet.join("new")
    fleet.crash_looping(SETTINGS.settle_seconds * (SETTLES_MAX - 1))
    assert fleet.runs("new") == 0, "the fleet may settle yet"
    fleet.crash_looping(2 * SETTINGS.settle_seconds)
    assert fleet.runs("new") == fleet.runs("old") == len(LINKS) // 2


def test_a_worker_that_stops_coming_and_going_is_given_its_part() -> None:
    fleet = Led()
    fleet.crash_looping(SETTINGS.settle_seconds * (SETTLES_MAX + 1))
    fleet.join("looping")
    for _ in range(int(SETTINGS.settle_seconds * (SETTLES_MAX + 2) / STEP_S)):
        fleet.lead()
    assert fleet.runs("looping") == len(LINKS) // 2
