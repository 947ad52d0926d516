"""Whole brokers of one cluster, under everything that can happen to them: what clients were told holds."""

from __future__ import annotations

import pytest

from tests.broker.simulation.seeds import CONTROLLERS_DEPOSED, DISKS_FULL, SESSIONS_END, STATES_PUT_BACK, WORLDS
from tests.broker.worlds import Worlds
from tests.worlds import first_worlds

SEEDS = first_worlds(8, of=60)
SEEDS_OF_AIMED = first_worlds(3, of=10)
REPLAYED = (3, 14)
OFTEN = {
    "acknowledged": 50, "read": 50, "commits": 10, "offsets told": 10, "crashes": 2, "torn": 0.5, "pauses": 1,
    "cuts": 2, "clocks": 0.5, "full": 0.5, "move": 0.5, "elect": 0.2, "make": 0.2, "delete": 0.2,
}  # fmt: skip
"""What the seeds are for, and how often in each it happens at least."""
OFTEN_IN_AIMED = {"acknowledged": 50, "read": 50, "commits": 10, "offsets told": 10, "cuts": 2}
OFTEN_WHERE_STATES_ARE_PUT_BACK = {"acknowledged": 20, "read": 20, "put": 2, "crashes": 5}
OFTEN_WHERE_DISKS_ARE_FULL = {"acknowledged": 20, "read": 20, "full": 4}


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("worlds", "count", "often"),
    [
        (WORLDS, SEEDS, OFTEN),
        (SESSIONS_END, SEEDS_OF_AIMED, OFTEN_IN_AIMED),
        (CONTROLLERS_DEPOSED, SEEDS_OF_AIMED, OFTEN_IN_AIMED),
        (STATES_PUT_BACK, SEEDS_OF_AIMED, OFTEN_WHERE_STATES_ARE_PUT_BACK),
        (DISKS_FULL, SEEDS_OF_AIMED, OFTEN_WHERE_DISKS_ARE_FULL),
    ],
    ids=["all", "sessions end", "controllers deposed", "states put back", "disks full"],
)
def test_what_clients_were_told_holds_whatever_happens(worlds: Worlds, count: int, often: dict[str, float]) -> None:
    if worlds.alone is not None:
        (way,) = worlds.ways([worlds.alone])
        print("\n".join(way))
        return
    seeds = worlds.seeds(count)
    counts = worlds.run_seeds(seeds)
    for what, per_seed in often.items():
        assert counts[what] >= len(seeds) * per_seed, f"{what}: {counts}"


def test_a_seed_replays_bit_for_bit() -> None:
    one, two = WORLDS.ways(REPLAYED), WORLDS.ways(REPLAYED)
    assert one == two
    assert one[0] != one[1]
