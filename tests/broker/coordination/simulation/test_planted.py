"""The simulation bites: each of these bugs, planted into the coordinators, is found within a few seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from broker.coordination.coordinators import Coordinators, Led
from broker.coordination.internal_log import StateLog
from broker.errors import CoordinatorFenced
from broker.groups.coordinator import GroupCoordinator
from broker.handlers import offset_fetch
from broker.log.producers import ProducerStates
from broker.transactions.formats import read_value
from broker.transactions.model import Transaction
from tests.broker.coordination.simulation.world import World
from tests.mirror.simulation.trace import Found

Plant = Callable[[pytest.MonkeyPatch], None]
SEEDS = 40


async def _at_once(self: Coordinators[Any], key: str, step: Callable[[Any], Any]) -> Any:
    return step(await self.at(key))


def answers_before_it_is_replicated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Coordinators, "ask", _at_once)


def shows_commits_before_they_are_replicated(patch: pytest.MonkeyPatch) -> None:
    """Whose own answers wait."""
    handle = offset_fetch._at_its_coordinator

    async def planted(broker: Any, *more: Any) -> Any:
        with pytest.MonkeyPatch.context() as now:
            now.setattr(StateLog, "replicated", _nothing)
            looked = handle(broker, *more)
            # Nothing in it waits but for replicas, and for a coordinator that is there.
            try:
                looked.send(None)
            except StopIteration as done:
                return done.value
            raise AssertionError

    patch.setattr(offset_fetch, "_at_its_coordinator", planted)


async def _nothing(*_: Any) -> None:
    """Instead of waiting."""


def takes_markers_of_deposed_coordinators(patch: pytest.MonkeyPatch) -> None:
    check = ProducerStates.check_marker

    def planted(self: ProducerStates, *marker: Any) -> None:
        try:
            check(self, *marker)
        except CoordinatorFenced:
            return

    patch.setattr(ProducerStates, "check_marker", planted)


def serves_while_it_loads(patch: pytest.MonkeyPatch) -> None:
    check = Coordinators._check

    def planted(self: Coordinators[Any], led: Led[Any]) -> None:
        was, led.is_loaded = led.is_loaded, True
        try:
            check(self, led)
        finally:
            led.is_loaded = was

    patch.setattr(Coordinators, "_check", planted)


def tells_no_one_that_it_ends(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupCoordinator, "end", lambda self: setattr(self.log, "is_over", True))


def forgets_who_asked_for_an_epoch(patch: pytest.MonkeyPatch) -> None:
    def planted(transactional_id: str, value: bytes) -> Transaction:
        return replace(read_value(transactional_id, value), previous_producer_id=-1, previous_epoch=-1)

    patch.setattr("broker.transactions.coordinator.read_value", planted)


FIRST_SEEDS: dict[Plant, int] = {takes_markers_of_deposed_coordinators: 6, forgets_who_asked_for_an_epoch: 8}
"""One that few worlds meet is looked for near a seed that has it: a seed takes half a second."""


@pytest.mark.parametrize(
    "plant",
    [
        answers_before_it_is_replicated,
        shows_commits_before_they_are_replicated,
        takes_markers_of_deposed_coordinators,
        serves_while_it_loads,
        tells_no_one_that_it_ends,
        forgets_who_asked_for_an_epoch,
    ],
    ids=lambda plant: plant.__name__,
)
def test_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert first_finding(FIRST_SEEDS.get(plant, 0)) is not None


def first_finding(first: int) -> str | None:
    for seed in range(first, first + SEEDS):
        try:
            World(seed).run()
        except Found as found:
            return f"seed {seed}: {found}"
    return None
