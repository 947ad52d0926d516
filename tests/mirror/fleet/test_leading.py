"""What the leader makes of what workers' files say."""

from __future__ import annotations

from mirror.coordinator.model import Unit
from mirror.fleet.keys import FleetKeys, LinkLoad, LoadRecord, OfferedLink, WorkerRecord
from mirror.fleet.leading import decide, units_of
from mirror.fleet.loads import IDLE_LOAD, loads_of
from mirror.fleet.planner import SHARE
from mirror.fleet.status import MoveReason, UnitState, fleet_status, in_between, moves_of
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


def test_a_link_that_is_cut_is_planned_and_shown_by_its_units() -> None:
    def cut(file_at_ms: int, units: int) -> str:
        links = {"red": OfferedLink(target="west", declared=f"cut {units}", units=units)}
        return WorkerRecord(links=links, file_at_ms=file_at_ms).model_dump_json()

    view = view_of(one=cut(1, 4), two=cut(1, 4))
    decision = decide(KEYS, view, SHARE)
    assert decision.plan.assigned.keys() == {Unit("red", number) for number in range(4)}
    assert sorted(decision.plan.assigned.values()) == ["one", "one", "two", "two"]
    assert {key for key in decision.puts if "plan" in key} == {f"/f/plan/red/{number}" for number in range(4)}
    view.follow(Changes(11, tuple(Change(key, Item(put.value, 11)) for key, put in decision.puts.items() if put)))
    assert view.planned == decision.plan.assigned, "what was written is read back as the same units"
    assert decide(KEYS, view, SHARE).puts == {}, "nothing moves where nothing changed"
    held = Item('{"worker": "one", "joined": 1}', 12)
    view.follow(Changes(12, (Change(KEYS.held(Unit("red", 2)), held),)))
    shown = fleet_status(view, [Unit("red", number) for number in range(4)]).links
    assert [link.link for link in shown] == ["red/0", "red/1", "red/2", "red/3"]
    assert [link.holder for link in shown] == [None, None, "one", None]
    loads = loads_of(LoadRecord(cpu_cores=1.0, links={"red/2": LinkLoad(bytes_per_second=5)}))
    assert loads == {Unit("red", 2): 100.0}
    gone = view_of(one=offer("whole", 9))
    gone.follow(Changes(11, tuple(Change(key, Item("one", 11)) for key in decision.puts)))
    assert decide(KEYS, gone, SHARE).plan.assigned == {RED: "one"}, "units that nobody declares any more are taken off"


def test_units_are_called_by_their_links_name_and_their_number() -> None:
    for unit in (Unit("red"), Unit("red", 0), Unit("red-1", 11)):
        assert Unit.named(str(unit)) == unit
    assert [str(unit) for unit in (Unit("red"), Unit("red", 0))] == ["red", "red/0"]


def test_moves_say_why() -> None:
    def worker(near: tuple[str, ...] = (), declared: str = "x", max_links: int | None = None) -> str:
        link = OfferedLink(target="west", declared=declared, target_rack="a")
        return WorkerRecord(links={"red": link}, near=near, max_links=max_links, file_at_ms=1).model_dump_json()

    def why(view: FleetView, holder: str, drain: str | None = None) -> list[tuple[str | None, MoveReason]]:
        view.follow(Changes(11, (Change(KEYS.plan(RED), Item(holder, 11) if holder else None),)))
        return [(move.to, move.why) for move in moves_of(KEYS, view, drain=drain)]

    two = view_of(one=worker(), two=worker(("west",)), three=worker(("west", "west/a")))
    assert why(two, "three") == []
    assert why(two, "two") == why(two, "one") == [("three", MoveReason.NEARER)]
    assert why(two, "three", drain="three") == [("two", MoveReason.DRAINED)]
    assert why(two, "four") == [("three", MoveReason.GONE)]
    assert why(two, "") == [("three", MoveReason.NEW)]
    other = view_of(one=worker(declared="y"), two=worker(), three=worker())
    assert why(other, "one") == [("three", MoveReason.FILE)]
    alone = view_of(one=worker())
    assert why(alone, "one", drain="one") == [(None, MoveReason.DRAINED)]


def test_moves_for_loads_and_for_lack_of_places_say_so() -> None:
    def worker(max_links: int | None = None) -> str:
        links = {
            name: OfferedLink(target="west", declared=name, priority=priority)
            for name, priority in (("low", -1), ("high", 1), ("mid", 0))
        }
        return WorkerRecord(links=links, max_links=max_links).model_dump_json()

    def whys(view: FleetView, **planned: str) -> dict[str, tuple[str | None, MoveReason]]:
        view.follow(Changes(11, tuple(Change(KEYS.plan(Unit(u)), Item(w, 11)) for u, w in planned.items())))
        return {move.link: (move.to, move.why) for move in moves_of(KEYS, view)}

    (load,) = whys(view_of(one=worker(), two=worker()), low="one", mid="one", high="one").values()
    assert load == ("two", MoveReason.LOAD)
    full = whys(view_of(one=worker(max_links=1)), low="one")
    assert full == {"low": (None, MoveReason.FULL), "high": ("one", MoveReason.NEW)}


def test_what_its_worker_does_not_take_is_a_finding_once_it_stands_there_for_a_while() -> None:
    view = view_of(one=offer("x", 1), two=offer("x", 1))
    view.follow(Changes(11, (Change(KEYS.plan(RED), Item("two", 11)),)))
    waiting = in_between(view)
    assert waiting == {(RED, "two", 0)}
    assert not fleet_status(view, [RED]).findings, "a move that is under way"
    (finding,) = fleet_status(view, [RED], waiting).findings
    assert finding.startswith("worker two does not take link red, and nobody runs it")
    view.follow(Changes(12, (Change(KEYS.held(RED), Item('{"worker": "one", "joined": 1}', 12)),)))
    moving = in_between(view)
    assert not moving & waiting
    (finding,) = fleet_status(view, [RED], moving).findings
    assert finding.startswith("worker two does not take link red, and one has it still")
    view.follow(Changes(13, (Change(KEYS.plan(RED), Item("one", 13)),)))
    assert not in_between(view)
