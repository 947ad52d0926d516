"""What a slow look finds alive is not looked at again, and its garbage waits for the hour's end, not for good."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from broker.base.garbage import MUCH_OBJECTS, passing_over_what_stays, without_looks

HELD_OBJECTS: Final = 5_000


@pytest.fixture(autouse=True)
def _the_sessions_own_stays_frozen() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()
    gc.freeze()


@dataclass
class Looks:
    """A clock by which each look takes as long as it is told."""

    look_s: float = 0.0
    now_s: float = 0.0

    def monotonic(self) -> float:
        self.now_s += self.look_s
        return self.now_s


class Cyclic:
    def __init__(self) -> None:
        self.me = self


def test_nothing_is_looked_at_until_the_first_that_asked_for_that_is_done() -> None:
    gc.enable()
    first, second = without_looks(), without_looks()
    for looks in (first, second):
        looks.__enter__()
        assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert not gc.isenabled()
    first.__exit__(None, None, None)
    assert gc.isenabled()


def test_what_a_slow_look_found_alive_is_left_out_of_the_next() -> None:
    looks = Looks()
    with passing_over_what_stays(looks.monotonic, slow_look_s=0.02):
        held: list[Any] = [Cyclic() for _ in range(HELD_OBJECTS)]
        gc.collect()
        before = gc.get_freeze_count()
        looks.look_s = 0.03
        gc.collect()
        assert gc.get_freeze_count() - before >= HELD_OBJECTS
        assert len(held) == HELD_OBJECTS


def test_a_slow_look_at_the_young_alone_proves_nothing_about_the_old() -> None:
    looks = Looks(look_s=0.03)
    with passing_over_what_stays(looks.monotonic, slow_look_s=0.02):
        before = gc.get_freeze_count()
        held: list[Any] = [Cyclic() for _ in range(HELD_OBJECTS)]
        gc.collect(1)
        assert gc.get_freeze_count() <= before
        assert len(held) == HELD_OBJECTS


def test_what_dies_in_a_cycle_later_goes_at_the_next_whole_look() -> None:
    looks = Looks()
    with passing_over_what_stays(looks.monotonic, slow_look_s=0.02, whole_every_s=60.0):
        held = Cyclic()
        seen = weakref.ref(held)
        looks.look_s = 0.03
        gc.collect()
        looks.look_s = 0.0
        del held
        gc.collect()
        assert seen() is not None, "it was not held back"
        looks.now_s += 60.0
        gc.collect(0)
        gc.collect()
        assert seen() is None


def test_everything_is_looked_at_again_after_it() -> None:
    with passing_over_what_stays(Looks().monotonic):
        assert gc.get_freeze_count()
    assert not gc.get_freeze_count()


def test_much_that_is_made_at_once_to_stay_is_never_looked_at() -> None:
    gc.enable()
    with passing_over_what_stays(Looks().monotonic):
        before = gc.get_freeze_count()
        with without_looks():
            held: list[Any] = [Cyclic() for _ in range(MUCH_OBJECTS)]
        assert gc.get_freeze_count() - before >= MUCH_OBJECTS
        assert len(held) == MUCH_OBJECTS


def test_of_little_that_was_made_at_once_the_next_look_finds_what_died() -> None:
    gc.enable()
    with passing_over_what_stays(Looks().monotonic):
        with without_looks():
            seen = weakref.ref(Cyclic())
        gc.collect()
        assert seen() is None


def test_who_passes_over_nothing_looks_at_all_that_was_made_at_once() -> None:
    gc.enable()
    gc.unfreeze()
    with without_looks():
        held: list[Any] = [Cyclic() for _ in range(MUCH_OBJECTS)]
    assert not gc.get_freeze_count()
    assert len(held) == MUCH_OBJECTS
