"""What a leader holds against workers that cannot run a unit."""

from __future__ import annotations

from mirror.coordinator.model import Unit
from mirror.fleet.failures import AVOIDED_MAX_S, AVOIDED_S, TRIES, Failures
from mirror.fleet.keys import FleetKeys, HolderRecord, LoadRecord
from mirror.fleet.leading import decide
from mirror.fleet.planner import EASE, SHARE
from mirror.fleet.status import fleet_status
from mirror.fleet.store import Change, Changes, Item, Snapshot
from mirror.fleet.view import FleetView
from tests.mirror.fleet.workers import offer_of

KEYS = FleetKeys("/f/")
RED, BLUE = Unit("red"), Unit("blue")


class Fleet:
    """A view, written to key by key."""

    def __init__(self, *workers: str) -> None:
        said = offer_of(["red", "blue"]).model_dump_json()
        items = {KEYS.worker(name): Item(said, number) for number, name in enumerate(workers, 1)}
        self.view = FleetView(KEYS, Snapshot(10, items))
        self.failures = Failures()

    def put(self, key: str, value: str) -> None:
        revision = self.view.revision + 1
        self.view.follow(Changes(revision, (Change(key, Item(value, revision)),)))

    def runs(self, worker: str, *units: Unit, failing: bool) -> None:
        """It has taken these, as was planned, and says of them whether they fail."""
        for unit in units:
            self.put(KEYS.plan(unit), worker)
            self.put(KEYS.held(unit), HolderRecord(worker=worker, joined=1).model_dump_json())
        record = LoadRecord(failing=tuple(str(unit) for unit in units) if failing else ())
        self.put(KEYS.load(worker), record.model_dump_json())

    def avoided(self, now: float) -> dict[Unit, frozenset[str]]:
        self.failures.look(self.view, now)
        return self.failures.avoided


def test_a_unit_leaves_who_cannot_run_it_and_does_not_come_back_for_a_while() -> None:
    fleet = Fleet("one", "two")
    fleet.runs("one", RED, failing=True)
    assert fleet.avoided(0.0) == {RED: {"one"}}
    decision = decide(KEYS, fleet.view, None, failures=fleet.failures)
    assert decision.plan.moved == {RED: ("one", "two")}
    fleet.runs("two", RED, BLUE, failing=False)
    assert fleet.avoided(AVOIDED_S - 1) == {RED: {"one"}}
    for balance in (SHARE, EASE, None):
        assert not decide(KEYS, fleet.view, balance, failures=fleet.failures).plan.moved, "one looks idle, no more"
    assert fleet.avoided(AVOIDED_S + 1) == {}
    assert decide(KEYS, fleet.view, SHARE, failures=fleet.failures).plan.moved


def test_what_fails_stays_where_there_is_nobody_else() -> None:
    fleet = Fleet("one")
    fleet.runs("one", RED, BLUE, failing=True)
    fleet.failures.look(fleet.view, 0.0)
    plan = decide(KEYS, fleet.view, SHARE, failures=fleet.failures).plan
    assert plan.assigned == {RED: "one", BLUE: "one"}
    fleet = Fleet("one", "two")
    fleet.put("/f/drained/two", "")
    fleet.runs("one", RED, BLUE, failing=True)
    fleet.failures.look(fleet.view, 0.0)
    assert not decide(KEYS, fleet.view, None, failures=fleet.failures).plan.moved


def test_what_fails_everywhere_is_nobody_s_fault_and_moves_no_more() -> None:
    names = ("one", "two", "three", "four", "five")
    fleet = Fleet(*names)
    tried = []
    worker = "one"
    for now in range(10):
        fleet.runs(worker, RED, failing=True)
        tried.append(worker)
        fleet.failures.look(fleet.view, float(now))
        worker = decide(KEYS, fleet.view, None, failures=fleet.failures).plan.assigned[RED]
        if worker == tried[-1]:
            break
        fleet.put(KEYS.load(tried[-1]), LoadRecord().model_dump_json())
    assert len(set(tried)) == len(tried) == TRIES
    assert fleet.failures.workers == frozenset()


def test_a_worker_that_joined_anew_has_failed_with_nothing() -> None:
    fleet = Fleet("one", "two")
    fleet.runs("one", RED, failing=True)
    version = fleet.failures.version
    assert fleet.avoided(0.0)
    assert fleet.failures.version > version, "it is planned anew"
    version = fleet.failures.version
    fleet.avoided(1.0)
    assert fleet.failures.version == version, "and only once"
    fleet.runs("two", RED, failing=False)
    fleet.put(KEYS.load("one"), LoadRecord().model_dump_json())
    fleet.put(KEYS.worker("one"), offer_of(["red", "blue"]).model_dump_json())
    assert not fleet.avoided(2.0)


def test_an_operator_is_told_who_cannot_run_what() -> None:
    fleet = Fleet("one", "two")
    fleet.runs("one", RED, failing=True)
    (finding,) = fleet_status(fleet.view, [RED]).findings[-1:]
    assert finding.startswith("worker one can begin no session of red, or none that lasts:")


def test_what_nobody_can_run_keeps_no_other_unit_where_it_is() -> None:
    fleet = Fleet("one", "two")
    fleet.runs("one", RED, failing=True)
    fleet.failures.look(fleet.view, 0.0)
    fleet.put(KEYS.load("one"), LoadRecord().model_dump_json())
    fleet.runs("two", RED, BLUE, failing=False)
    failing = LoadRecord(failing=(str(RED),)).model_dump_json()
    fleet.put(KEYS.load("two"), failing)
    assert fleet.avoided(1.0) == {}
    assert fleet.failures.workers == frozenset()
    decision = decide(KEYS, fleet.view, SHARE, failures=fleet.failures)
    assert len(decision.plan.moved) == 1, "the other worker is given one of the two"


def test_a_unit_that_fails_everywhere_is_tried_elsewhere_ever_more_seldom() -> None:
    fleet, worker, now = Fleet("one", "two"), "one", 0.0
    moved_at: list[float] = []
    while now < 48 * 3600:
        fleet.put(KEYS.load("two" if worker == "one" else "one"), LoadRecord().model_dump_json())
        fleet.runs(worker, RED, failing=True)
        fleet.failures.look(fleet.view, now)
        planned = decide(KEYS, fleet.view, None, failures=fleet.failures).plan.assigned[RED]
        if planned != worker:
            worker = planned
            moved_at.append(now)
        now += 10.0
    day = [at for at in moved_at if at >= 24 * 3600]
    assert moved_at, "it is tried at both"
    assert len(day) <= 24 * 3600 / AVOIDED_MAX_S + 1, day


def test_a_worker_that_failed_long_ago_is_as_good_as_any() -> None:
    fleet = Fleet("one", "two")
    fleet.runs("one", RED, failing=True)
    fleet.failures.look(fleet.view, 0.0)
    fleet.put(KEYS.load("one"), LoadRecord().model_dump_json())
    fleet.failures.look(fleet.view, 2 * AVOIDED_S + 1)
    fleet.runs("one", RED, failing=True)
    fleet.failures.look(fleet.view, 2 * AVOIDED_S + 2)
    fleet.put(KEYS.load("one"), LoadRecord().model_dump_json())
    assert fleet.avoided(3 * AVOIDED_S + 1) == {RED: {"one"}}
    assert not fleet.avoided(3 * AVOIDED_S + 3)
