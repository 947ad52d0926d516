"""The whole mirror worker in simulated worlds, one for each seed: world.py says what happens, oracle.py what holds.

The seeds are fixed. FARSHORE_SIMULATION_SEED=7 runs one alone and shows all its events when it fails;
FARSHORE_SIMULATION_SEEDS=100000:20000 runs others (`make simulation` takes fresh ones).
"""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import replace

import pytest

from broker.wire.api import API, ApiKey
from tests.mirror.simulation.network import BAD_FATES, Fate
from tests.mirror.simulation.profile import CURSED, Profile, choose_profile, choose_world
from tests.mirror.simulation.seeds import SEED_VARIABLE, SEEDS_VARIABLE, run_seed, run_seeds
from tests.mirror.simulation.world import World
from tests.worlds import first_worlds

SEEDS = first_worlds(90, of=5_000)
MUST_HAPPEN = (
    *("kills", "fenced", "restarting", "started", "topic_created", "topic_grown", "renewed", "accepted"),
    *("partition_taken_in", "partition_held", "pages", "repairs"),
)
"""What a run in which it never happened would not have tried; and each fate of a request."""
HANGS = (Fate.SWALLOWED, Fate.SILENT)
HANGING_SEEDS = first_worlds(4, of=30)
HANGING_SEEDS_MAX = 300
"""Until one hung: some are asked at a session's start alone, and few sessions end."""


def chosen_seeds() -> range:
    one, several = os.environ.get(SEED_VARIABLE), os.environ.get(SEEDS_VARIABLE, f"0:{SEEDS}")
    if one is not None:
        return range(int(one), int(one) + 1)
    first, count = map(int, several.split(":"))
    return range(first, first + count)


@pytest.mark.timeout(3600)
def test_every_world_ends_with_a_true_copy() -> None:
    seeds = chosen_seeds()
    if len(seeds) == 1:
        run_seed(seeds[0], choose_world)
        return
    counts = run_seeds(seeds, choose_world)
    for fate in BAD_FATES:
        counts[fate] = sum(counts[f"{API[key].name} {fate}"] for key in CURSED)
    missing = [event for event in (*MUST_HAPPEN, *BAD_FATES) if not counts[event]] if len(seeds) >= SEEDS else []
    assert not missing, f"in {len(seeds)} worlds these never happened: {missing}; {counts}"


@pytest.mark.parametrize("key", CURSED, ids=lambda key: API[key].name)
def test_requests_of_each_kind_may_hang(key: ApiKey) -> None:
    """Served or not: no answer ever comes. The world must end as well as any other."""

    def choose(rng: random.Random) -> Profile:
        profile = choose_profile(rng)
        weather = replace(profile.weather, cursed=key, fates=HANGS)
        return replace(profile, weather=weather, groups=True, shared=False, actions=40, action_pause_max_s=0.4)

    counts: Counter[str] = Counter()
    hung = 0
    for seed in range(HANGING_SEEDS_MAX):
        if hung and seed >= HANGING_SEEDS:
            return
        counts += run_seed(seed, choose)
        hung = sum(counts[f"{API[key].name} {fate}"] for fate in HANGS)
    pytest.fail(f"in {HANGING_SEEDS_MAX} worlds no {API[key].name} ever hung: {counts}")


def test_a_seed_takes_the_same_steps_each_time() -> None:
    first, second = World(11), World(11)
    first.run()
    second.run()
    assert first.trace.lines() == second.trace.lines()
    assert first.loop.steps == second.loop.steps
