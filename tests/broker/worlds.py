"""Running simulated worlds by their seeds, and telling how one that found something can be run again."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import pytest

from broker.base.errors import first_of
from tests.broker.replication.simulation.judge import Found
from tests.rubbish import begin_simulating

CHUNK_SEEDS: Final = 25
MEMORY: Final = "/dev/shm"
"""A world's logs are small, and worth nothing after it: in memory, where a system has such a folder."""
STEPS_SHOWN: Final = 30
PRELOADED: Final = ["pytest", __name__, "broker.server", "mirror.worker.service"]
"""What the one process of a run imports that all others are forked from: each would need half a second for it."""
HASHES: Final = "PYTHONHASHSEED"
"""Sets of texts are gone through in another order in each process, unless this is given."""


class Simulated(Protocol):
    """One world."""

    @property
    def trace(self) -> list[str]: ...
    @property
    def counts(self) -> Counter[str]: ...

    def run(self) -> None:
        """To its end, with nothing left of it. Raises whatever was found."""
        ...


@dataclass(frozen=True, slots=True)
class Worlds:
    """`make` is a module's own, so that other processes find it. `name` is in the variables that choose seeds:
    FARSHORE_name_SEED runs one alone and shows the whole way, FARSHORE_name_SEEDS=FIRST:COUNT others than the fixed.
    """

    name: str
    make: Callable[[int, Path], Simulated]
    tests: str

    @property
    def alone(self) -> int | None:
        chosen = os.environ.get(f"FARSHORE_{self.name}_SEED")
        return int(chosen) if chosen else None

    def seeds(self, count: int) -> range:
        """Those that are chosen; from 0 on where none are."""
        first, chosen = os.environ.get(f"FARSHORE_{self.name}_SEEDS", f"0:{count}").split(":")
        return range(int(first), int(first) + int(chosen))

    def run_seed(self, seed: int) -> Simulated:
        """One world, to its end. Raises Found, with the way there."""
        with tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as folder:
            world = self.make(seed, Path(folder))
            try:
                world.run()
            except Exception as error:  # whatever it was, it is told with the way there
                way = world.trace if self.alone is not None else world.trace[-STEPS_SHOWN:]
                again = f"run it alone: FARSHORE_{self.name}_SEED={seed} pytest {self.tests}"
                found = first_of(error)
                raise Found("\n".join([f"seed {seed}: {type(found).__name__}: {found}", again, *way])) from error
            return world

    def run_chunk(self, seeds: range) -> Counter[str]:
        return sum((self.run_seed(seed).counts for seed in seeds), Counter())

    def run_seeds(self, seeds: range) -> Counter[str]:
        """All of them, on all processors. Raises Found."""
        chunks = [seeds[start : start + CHUNK_SEEDS] for start in range(0, len(seeds), CHUNK_SEEDS)]
        with _processes() as pool:
            return sum(pool.map(self.run_chunk, chunks), Counter())

    def ways(self, seeds: Iterable[int]) -> list[list[str]]:
        """All that happened in each, as a process tells it that does nothing else. Raises Found."""
        with _processes() as pool:
            return list(pool.map(self._way, seeds))

    def _way(self, seed: int) -> list[str]:
        return self.run_seed(seed).trace

    def first_finding(self, seeds: Iterable[int]) -> tuple[int, str] | None:
        """The first seed that finds something, and what (in one line); None when none does."""
        for seed in seeds:
            try:
                self.run_seed(seed)
            except Found as found:
                return seed, str(found).split("\n")[0]
        return None

    def first_finding_of(self, plant: Callable[[pytest.MonkeyPatch], None], seeds: range) -> tuple[int, str] | None:
        """As `first_finding`, with a bug planted, in a process of its own: the same one each time."""
        with _processes() as pool:
            return pool.submit(partial(_planted, self, plant), seeds).result()


def _planted(
    worlds: Worlds, plant: Callable[[pytest.MonkeyPatch], None], seeds: Iterable[int]
) -> tuple[int, str] | None:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        return worlds.first_finding(seeds)


@contextmanager
def _processes() -> Iterator[ProcessPoolExecutor]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(HASHES, "0")
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        with ProcessPoolExecutor(os.cpu_count(), context, begin_simulating) as pool:
            yield pool
