"""Which links of a fleet would be better cut anew."""

from __future__ import annotations

from mirror.coordinator.model import Unit
from mirror.fleet.advice import CutAdvice, advise_cuts
from mirror.fleet.planner import PlannedUnit, PlannedWorker

ALL = frozenset({"one", "two", "three", "four"})
WORKERS = [PlannedWorker(name) for name in sorted(ALL)]


def units(**loads: tuple[float, ...]) -> list[PlannedUnit]:
    """By link, those of its units; of one alone it is the whole link's. Hundredths of a core."""
    return [
        PlannedUnit(Unit(link, number) if len(some) > 1 else Unit(link), ALL, load)
        for link, some in loads.items()
        for number, load in enumerate(some)
    ]


def test_what_can_be_shared_out_is_left() -> None:
    assert advise_cuts(WORKERS, units(red=(10,), green=(11,), blue=(9,), grey=(10,))) == []
    assert advise_cuts(WORKERS, units(red=(20, 20), blue=(20, 20))) == []
    assert advise_cuts([], units(red=(500,))) == []


def test_a_link_that_is_most_of_the_load_is_to_be_cut() -> None:
    (advice,) = advise_cuts(WORKERS, units(red=(60,), green=(10,), blue=(10,)))
    assert advice == CutAdvice(Unit("red"), 0.6, 0.2, 3)


def test_so_is_one_that_no_worker_can_carry() -> None:
    (advice,) = advise_cuts(WORKERS[:1], units(red=(90,)))
    assert advice.units == 2, "there is one worker, and the next one would have nothing to take"
    loads = units(red=(95,), green=(95,), blue=(95,), grey=(95,))
    assert [advice.units for advice in advise_cuts(WORKERS, loads)] == [2, 2, 2, 2]


def test_more_units_are_for_what_is_even_and_a_pin_for_what_is_hot() -> None:
    (even,) = advise_cuts(WORKERS, units(red=(40, 40), blue=(1,)))
    assert even.units == 4
    (hot,) = advise_cuts(WORKERS, units(red=(60, 5, 5), blue=(10,)))
    assert (hot.unit, hot.units) == (Unit("red", 0), None)


def test_what_is_nearly_idle_is_not_cut_and_drained_workers_do_not_count() -> None:
    assert advise_cuts(WORKERS, units(red=(8,), blue=(1,))) == []
    drained = [PlannedWorker(worker.name, is_drained=worker.name != "one") for worker in WORKERS]
    assert advise_cuts(drained, units(red=(60,), blue=(1,))) == []


def test_a_worker_of_twice_the_weight_may_have_twice_as_much() -> None:
    wide = [PlannedWorker("one", weight=3.0), PlannedWorker("two")]
    assert advise_cuts(wide, units(red=(60,), blue=(20,))) == []
    assert advise_cuts([PlannedWorker("one"), PlannedWorker("two")], units(red=(60,), blue=(20,))) != []
