"""The planner over time: what fleets move when workers die and join and loads shift, and how they stand after it."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from mirror.fleet.pacing import Pacing
from mirror.fleet.planner import EASE, SHARE
from tests.bench.planner_plots import DOCS
from tests.mirror.fleet.planner_world import EVENTS, SETTINGS, UNITS, WORKERS, PlannerWorld

SHARED = ("a worker dies", "one joins", "two die", "two join")
MOVED_MAX = UNITS // 2
"""Workers that join get their part, three of ten here; a shift of loads moves a unit in 30 seconds."""


@pytest.mark.parametrize("seed", range(100, 103))
def test_a_fleet_is_steady_soon_and_moves_little(seed: int) -> None:
    run = PlannerWorld(seed).run()
    assert run.ownerless == 0, "what a dead worker ran has another one in the same second"
    for name in SHARED:
        assert run.steady_s[name] <= 2 * SETTINGS.settle_seconds, name
    joined = next(event for event in EVENTS if event.name == "one joins")
    assert run.apart[joined.at_s + 10] <= SHARE.tolerance + 0.15, "with what wavers and was not told"
    assert run.moves[joined.at_s + 10] - run.moves[joined.at_s] <= UNITS // WORKERS + 10
    shift = next(event for event in EVENTS if event.name == "loads shift")
    before, after = run.apart[shift.at_s - 1], run.apart[shift.at_s + 440]
    assert run.apart[shift.at_s] > before, "this shift of loads is one"
    assert after < max(run.apart[shift.at_s] - 0.2, 2 * EASE.trigger)
    eased = run.moves[shift.at_s + 440] - run.moves[shift.at_s]
    assert 0 < eased <= 440 / SETTINGS.ease_every_seconds
    assert run.moves[-1] <= MOVED_MAX


def test_a_leader_that_forgets_who_died_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pacing, "is_due", lambda self, view, now: now < EVENTS[0].at_s)
    assert PlannerWorld(1).run().ownerless > 0


def test_the_drawings_are_whole_and_light() -> None:
    for name in ("planner-balance.svg", "planner-moves.svg", "planner-steady.svg"):
        text = (DOCS / name).read_text()
        assert ElementTree.fromstring(text).tag.endswith("svg")
        assert len(text) < 40_000
        assert "prefers-color-scheme:dark" in text
