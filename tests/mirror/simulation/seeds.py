"""Running seeds, and telling how a failed one can be run again."""

from __future__ import annotations

import multiprocessing
import os
import random
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.mirror.simulation.profile import Profile, choose_profile
from tests.mirror.simulation.trace import Found
from tests.mirror.simulation.world import World
from tests.rubbish import begin_simulating

SEED_VARIABLE = "FARSHORE_SIMULATION_SEED"
"""Runs this one seed alone."""
SEEDS_VARIABLE = "FARSHORE_SIMULATION_SEEDS"
"""Runs these, given as FIRST:COUNT, in the place of the fixed ones."""
CIRCLES_VARIABLE = "FARSHORE_SIMULATION_CIRCLES"
"""As the former, of the worlds with more than two sites."""
CHUNK_SEEDS = 100


def run_seed(seed: int, choose: Callable[[random.Random], Profile] = choose_profile) -> Counter[str]:
    """Run one world -> what happened in it. Raises Found, with the way there."""
    world = World(seed, choose)
    try:
        world.run()
    except BaseException as error:  # whatever it was, it is told with the way there
        told = f"seed {seed}: {type(error).__name__}: {error}"
        again = f"run it alone: {SEED_VARIABLE}={seed} pytest tests/mirror/simulation"
        way = world.trace.shown(whole=SEED_VARIABLE in os.environ)
        raise Found(f"{told}\n{again}\n{world.profile}\n{way}") from error
    return world.counts + world.network.fates


def run_chunk(seeds: range, choose: Callable[[random.Random], Profile] = choose_profile) -> Counter[str]:
    """As `run_seed`, for several."""
    return sum((run_seed(seed, choose) for seed in seeds), Counter())


def run_seeds(seeds: range, choose: Callable[[random.Random], Profile] = choose_profile) -> Counter[str]:
    """All of them, on all processors; so few that they are one chunk, in this process."""
    if len(seeds) <= CHUNK_SEEDS:
        return run_chunk(seeds, choose)
    chunks = [seeds[start : start + CHUNK_SEEDS] for start in range(0, len(seeds), CHUNK_SEEDS)]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), context, begin_simulating) as pool:
        return sum(pool.map(partial(run_chunk, choose=choose), chunks), Counter())


def first_finding(
    seeds: Iterable[int], choose: Callable[[random.Random], Profile] = choose_profile
) -> tuple[int, str] | None:
    """The first seed that finds something, and what (in one line); None when none does."""
    for seed in seeds:
        try:
            run_seed(seed, choose)
        except Found as found:
            return seed, str(found).split("\n")[0]
    return None
