"""What the leader makes of what workers' files say."""

from __future__ import annotations

from mirror.coordinator.model import Unit
from mirror.fleet.keys import FleetKeys, LinkLoad, LoadRecord, OfferedLink, WorkerRecord
from mirror.fleet.leading import decide, units_of
from mirror.fleet.loads import IDLE_LOAD
from mirror.fleet.planner import SHARE
from mirror.fleet.status import UnitState, fleet_status
from mirror.fleet.store import Change, Changes, Item, Snapshot
from mirror.fleet.view import FleetView

KEYS = FleetKeys("/f/")
RED = Unit("red")


def offer(declared: str, file_at_ms: int) -> str:
    links = {"red": OfferedLink(target="west", declared=declared)}
    return WorkerRecord(links=links, file_at_ms=file_at_ms).model_dump_json()


def view_of(**offers: str) -> FleetView:
    items = {KEYS.worker(name): Item(said, number) for number, (name, said) in enumerate(offers.items(), 1)}
    return FleetView(KEYS, Snapshot(10, items))


def test_a_link_is_run_by_those_whose_file_is_the_newest() -> None:
    def offered_by(view: FleetView) -> set[str]:
        (unit,) = units_of(view, ())
        return set(unit.offered_by)

    assert offered_by(view_of(one=offer("old", 1), two=offer("new", 2), three=offer("old", 1))) == {"two"}
    assert offered_by(view_of(one=offer("old", 1), two=offer("new", 2), three=offer("new", 1))) == {"two", "three"}
    assert offered_by(view_of(one=offer("same", 1), two=offer("same", 9))) == {"one", "two"}
    assert offered_by(view_of(one=offer("a", 5), two=offer("b", 5), three=offer("b", 5))) == {"two", "three"}


def test_a_worker_whose_file_is_old_loses_the_link_and_is_named() -> None:
    view = view_of(one=offer("old", 1), two=offer("new", 2))
    view.follow(Changes(11, (Change(KEYS.plan(RED), Item("one", 11)),)))
    decision = decide(KEYS, view, None)
    assert decision.plan.moved == {RED: ("one", "two")}
    (finding,) = [text for text in fleet_status(view, [RED]).findings if "newest" in text]
    assert "that of two; the files of one say something else" in finding


def test_loads_are_those_of_the_holder_and_outlive_it() -> None:
    view = view_of(one=offer("x", 1), two=offer("x", 1))
    measured = LoadRecord(cpu_cores=0.5, links={"red": LinkLoad(bytes_per_second=9, lag_offsets=3)}).model_dump_json()
    held = '{"worker": "one", "joined": 1}'
    changes = [(KEYS.plan(RED), "one"), (KEYS.held(RED), held), (KEYS.load("one"), measured)]
    view.follow(Changes(11, tuple(Change(key, Item(value, 11)) for key, value in changes)))
    view.follow(Changes(12, (Change(KEYS.load("two"), Item('{"cpu_cores": 9.0, "links": {"red": {}}}', 12)),)))
    assert view.loads == {RED: 50.0}, "two measured it before it was moved"
    (link,) = fleet_status(view, [RED]).links
    assert (link.state, link.bytes_per_second, link.lag_offsets) == (UnitState.HELD, 9, 3)
    view.follow(Changes(13, tuple(Change(key, None) for key in (KEYS.worker("one"), KEYS.load("one")))))
    view.follow(Changes(13, (Change(KEYS.held(RED), None),)))
    (unit,) = units_of(view, ())
    assert unit.load == 50.0
    again = FleetView(KEYS, Snapshot(14, {KEYS.plan(RED): Item("two", 14)}), view)
    assert again.loads == {RED: 50.0}, "reading everything anew forgets nothing"
    assert FleetView(KEYS, Snapshot(15, {}), view).loads == {}, "but of what is not there any more"
    assert IDLE_LOAD < 50.0


def test_a_load_that_nobody_can_read_is_named_and_concerns_nothing_else() -> None:
    view = view_of(one=offer("x", 1))
    view.follow(Changes(11, (Change(KEYS.load("one"), Item("{", 11)),)))
    assert view.garbled == {KEYS.load("one")}
    assert decide(KEYS, view, SHARE).plan.assigned == {RED: "one"}
