"""Leaders, followers and their logs under everything that can happen to them: nothing acknowledged is lost."""

from __future__ import annotations

import os

import pytest

from tests.broker.replication.simulation.seeds import SEED_VARIABLE, SEEDS_VARIABLE, run_seed, run_seeds

SEEDS = 500
REPLAYED = (3, 14, 15)


@pytest.mark.timeout(3600)
def test_nothing_acknowledged_is_lost_whatever_happens() -> None:
    if alone := os.environ.get(SEED_VARIABLE):
        print("\n".join(run_seed(int(alone)).trace))
        return
    first, count = (int(part) for part in os.environ.get(SEEDS_VARIABLE, f"0:{SEEDS}").split(":"))
    counts = run_seeds(range(first, first + count))
    # What the seeds are for has happened, often.
    for what, per_seed in {
        "acknowledged": 15, "elections": 4, "crashes": 2, "torn": 1, "pauses": 1, "expiries": 1, "divergences": 1,
        "isr changes": 1,
    }.items():  # fmt: skip
        assert counts[what] >= count * per_seed / 2, f"{what}: {counts}"


@pytest.mark.parametrize("seed", REPLAYED)
def test_a_seed_replays_bit_for_bit(seed: int) -> None:
    one, two = run_seed(seed), run_seed(seed)
    assert one.trace == two.trace
    assert one.counts == two.counts
    assert one.judge.committed == two.judge.committed != []
