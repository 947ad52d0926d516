"""Whatever becomes of coordinators, nobody was told what the next one does not know."""

from __future__ import annotations

import pytest

from tests.broker.coordination.simulation.world import World
from tests.worlds import first_worlds

SEEDS = first_worlds(3, of=12)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_was_told_holds(seed: int) -> None:
    told = World(seed).run()
    assert min(told.counts[what] for what in ("offsets", "assignments", "epochs", "transactions", "loads")) > 3
    assert told.counts["renewals"]


def test_a_seed_replays() -> None:
    first, second = World(3).run(), World(3).run()
    assert (first.offsets, first.assignments, first.ends) == (second.offsets, second.assignments, second.ends)
