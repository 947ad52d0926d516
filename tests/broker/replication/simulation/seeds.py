"""Running seeds, and telling how a failed one can be run again."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.broker.replication.simulation.judge import Found
from tests.broker.replication.simulation.world import World
from tests.rubbish import begin_simulating

SEED_VARIABLE = "FARSHORE_REPLICATION_SEED"
"""Runs this one seed alone, and shows the whole way."""
SEEDS_VARIABLE = "FARSHORE_REPLICATION_SEEDS"
"""Runs these, given as FIRST:COUNT, in the place of the fixed ones."""
CHUNK_SEEDS = 50
MEMORY = "/dev/shm"
"""A world's logs are small, and worth nothing after it: in memory, where a system has such a folder."""
STEPS_SHOWN = 30


def run_seed(seed: int) -> World:
    """One world, to its end. Raises Found, with the way there."""
    with tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as folder:
        world = World(seed, Path(folder))
        try:
            world.run()
        except Exception as error:  # whatever it was, it is told with the way there
            way = world.trace if SEED_VARIABLE in os.environ else world.trace[-STEPS_SHOWN:]
            again = f"run it alone: {SEED_VARIABLE}={seed} pytest tests/broker/replication/simulation"
            raise Found("\n".join([f"seed {seed}: {type(error).__name__}: {error}", again, *way])) from error
        finally:
            world.close()
        return world


def run_chunk(seeds: range) -> Counter[str]:
    return sum((run_seed(seed).counts for seed in seeds), Counter())


def run_seeds(seeds: range) -> Counter[str]:
    """All of them, on all processors."""
    chunks = [seeds[start : start + CHUNK_SEEDS] for start in range(0, len(seeds), CHUNK_SEEDS)]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), context, begin_simulating) as pool:
        return sum(pool.map(run_chunk, chunks), Counter())


def first_finding(seeds: Iterable[int]) -> tuple[int, str] | None:
    """The first seed that finds something, and what (in one line); None when none does."""
    for seed in seeds:
        try:
            run_seed(seed)
        except Found as found:
            return seed, str(found).split("\n")[0]
    return None
