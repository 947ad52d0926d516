"""Leaders, followers and their logs under everything that can happen to them: nothing acknowledged is lost."""

from __future__ import annotations

import pytest

from tests.broker.replication.simulation.seeds import WORLDS
from tests.broker.replication.simulation.world import World
from tests.worlds import first_worlds

SEEDS = first_worlds(40, of=500)
REPLAYED = (3, 14, 15)


@pytest.mark.timeout(3600)
def test_nothing_acknowledged_is_lost_whatever_happens() -> None:
    if WORLDS.alone is not None:
        print("\n".join(WORLDS.run_seed(WORLDS.alone).trace))
        return
    seeds = WORLDS.seeds(SEEDS)
    counts = WORLDS.run_seeds(seeds)
    # What the seeds are for has happened, often.
    for what, per_seed in {
        "acknowledged": 15, "elections": 4, "crashes": 2, "torn": 1, "pauses": 1, "expiries": 1, "divergences": 1,
        "isr changes": 1,
    }.items():  # fmt: skip
        assert counts[what] >= len(seeds) * per_seed / 2, f"{what}: {counts}"


@pytest.mark.parametrize("seed", REPLAYED)
def test_a_seed_replays_bit_for_bit(seed: int) -> None:
    one, two = WORLDS.run_seed(seed), WORLDS.run_seed(seed)
    assert isinstance(one, World)
    assert isinstance(two, World)
    assert one.trace == two.trace
    assert one.counts == two.counts
    assert one.judge.committed == two.judge.committed != []
