"""Whole brokers of one cluster, under everything that can happen to them: what clients were told holds."""

from __future__ import annotations

import pytest

from tests.broker.simulation.seeds import WORLDS

SEEDS = 100
REPLAYED = (3, 14)


@pytest.mark.timeout(7200)
def test_what_clients_were_told_holds_whatever_happens() -> None:
    if WORLDS.alone is not None:
        (way,) = WORLDS.ways([WORLDS.alone])
        print("\n".join(way))
        return
    seeds = WORLDS.seeds(SEEDS)
    counts = WORLDS.run_seeds(seeds)
    # What the seeds are for has happened, often.
    for what, per_seed in {
        "acknowledged": 50, "read": 50, "commits": 10, "offsets told": 10, "crashes": 2, "torn": 0.5, "pauses": 1,
        "cuts": 2, "move": 0.5, "elect": 0.2, "make": 0.2, "delete": 0.2,
    }.items():  # fmt: skip
        assert counts[what] >= len(seeds) * per_seed, f"{what}: {counts}"


def test_a_seed_replays_bit_for_bit() -> None:
    one, two = WORLDS.ways(REPLAYED), WORLDS.ways(REPLAYED)
    assert one == two
    assert one[0] != one[1]
