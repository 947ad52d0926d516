"""Bugs planted where a session takes partitions in while it runs: each is found within a few seeds.

Who joins without a fence, or without proving that it is the owner still, is stopped by the fence of the link's state
all the same, but for the moment of a takeover: `tests/mirror/offsets/test_extending.py` holds that.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from broker.wire.api import ApiKey
from mirror.offsets import fence
from mirror.offsets.entries import Writer
from mirror.worker import latecomers
from mirror.worker.resume import Evidence
from tests.mirror.simulation.network import Fate
from tests.mirror.simulation.profile import Profile, Rival, choose_profile
from tests.mirror.simulation.seeds import first_finding

Plant = Callable[[pytest.MonkeyPatch], None]


def writes_before_the_marker(patch: pytest.MonkeyPatch) -> None:
    """It does not ask for the end again: the marker comes when records flow."""

    async def planted(*_args: Any) -> dict[Any, Any]:
        return {}

    patch.setattr(fence, "_until_ended", planted)


def goes_on_with_the_acknowledged_sequence(patch: pytest.MonkeyPatch) -> None:
    """What landed without an answer had the sequences that come again: what has them now counts as a repetition."""

    def planted(found: Evidence, writer: Writer) -> Evidence:
        ours = found.checkpoint is not None and found.checkpoint.writer == writer
        return replace(found, sequence=found.checkpoint.sequence) if ours and found.checkpoint else found

    patch.setattr(latecomers, "_with_sequence", planted)


def joins_without_recovery(patch: pytest.MonkeyPatch) -> None:
    """It opens what it had before as if it were new."""

    def planted(found: Evidence, _writer: Writer) -> Evidence:
        return replace(found, checkpoint=None)

    patch.setattr(latecomers, "_with_sequence", planted)


SEEDS = 400
"""Within so many each must be found. When this was written the last was by the 53rd."""


def fertile(rng: random.Random) -> Profile:
    """A world with many births, in which a second worker takes over."""
    return replace(choose_profile(rng), births=0.3, topics_max=8, rival=Rival.LATER, disaster=None)


def refusing(rng: random.Random) -> Profile:
    """A world in which a target often says that it could not take a batch, whether it has taken it or not."""
    profile = choose_profile(rng)
    weather = replace(profile.weather, cursed=ApiKey.PRODUCE, fates=(Fate.REFUSED,))
    return replace(profile, weather=weather, disaster=None, kills=0, rival=Rival.NEVER)


PLANTED: tuple[tuple[Plant, Callable[[random.Random], Profile]], ...] = (
    (writes_before_the_marker, fertile),
    (goes_on_with_the_acknowledged_sequence, refusing),
    (joins_without_recovery, refusing),
)
FIRST_SEEDS: dict[Plant, int] = {goes_on_with_the_acknowledged_sequence: 49}
"""One that few worlds meet is looked for near a seed that has it."""


@pytest.mark.parametrize(("plant", "world"), PLANTED)
def test_a_planted_bug_is_found(
    plant: Plant, world: Callable[[random.Random], Profile], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    first = FIRST_SEEDS.get(plant, 0)
    found = first_finding(range(first, first + SEEDS), world)
    assert found is not None, f"{SEEDS} seeds do not see what is wrong where the worker {plant.__name__}"
