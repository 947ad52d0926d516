"""Rings of three and four, and meshes that lack a link: each record once at every site, whatever ends when."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from broker.wire.batch import BatchHeader, only_from
from broker.wire.vocabulary import TopicPartition
from mirror import origins
from mirror.link import Link
from mirror.offsets import origin_entries
from mirror.offsets.origin_entries import OriginRun, OriginRuns, Way
from mirror.offsets.state_writer import Change
from mirror.origins import Registration
from mirror.worker import origin_runs
from mirror.worker import origins as worker_origins
from mirror.worker.origin_runs import OriginReader
from mirror.worker.replicator import Replicator
from tests.mirror.simulation.profile import choose_circle
from tests.mirror.simulation.seeds import CIRCLES_VARIABLE, first_finding, run_seeds
from tests.worlds import first_worlds

FIRST_SEED = 20
SEEDS = first_worlds(24, of=120)
PLANTED_SEEDS = 60
"""Within so many each planted bug must be found. When this was written all were by the first ten."""


@pytest.mark.timeout(3600)
def test_every_circle_ends_with_each_record_once_at_every_site() -> None:
    """FARSHORE_SIMULATION_CIRCLES=1000:5000 runs others."""
    first, count = map(int, os.environ.get(CIRCLES_VARIABLE, f"{FIRST_SEED}:{SEEDS}").split(":"))
    counts = run_seeds(range(first, first + count), choose_circle)
    missing = [event for event in ("kills", "fenced", "renewed", "restarting") if not counts[event]]
    assert not missing, f"these never happened: {missing}; {counts}"


Plant = Callable[[pytest.MonkeyPatch], None]


def tells_the_way_with_the_next_batches(patch: pytest.MonkeyPatch) -> None:
    """One plan late: whoever reads the last batches before that is not told."""
    ahead = Replicator._origins
    waiting: dict[int, list[Change]] = {}

    def planted(self: Replicator, batches: Any) -> list[Change]:
        before = waiting.get(id(self), [])
        waiting[id(self)] = ahead(self, batches)
        return before

    patch.setattr(Replicator, "_origins", planted)


def calls_all_batches_its_source_s(patch: pytest.MonkeyPatch) -> None:
    ahead = Replicator._origins

    def planted(self: Replicator, batches: Any) -> list[Change]:
        here = frozenset({self._outlet.link.split("-")[0]})
        return ahead(self, [replace(batch, way=Way(here, here)) for batch in batches])

    patch.setattr(Replicator, "_origins", planted)


def counts_the_runs_from_the_start(patch: pytest.MonkeyPatch) -> None:
    """Each entry begins at sequence 0: the second is not the first one's continuation."""
    ahead = Replicator._origins

    def planted(self: Replicator, batches: Any) -> list[Change]:
        found: list[Change] = []
        for entry in ahead(self, batches):
            assert isinstance(entry, OriginRuns)
            first = entry.runs[0].first
            runs = tuple(OriginRun(run.first - first, run.end - first, run.way) for run in entry.runs)
            found.append(replace(entry, runs=runs))
        return found

    patch.setattr(Replicator, "_origins", planted)


def never_reads_on(patch: pytest.MonkeyPatch) -> None:
    learn = OriginReader.learn

    async def planted(self: OriginReader, where: TopicPartition, headers: list[BatchHeader]) -> None:
        if not self._read_to:
            await learn(self, where, headers)

    patch.setattr(OriginReader, "learn", planted)


def finds_the_run_before(patch: pytest.MonkeyPatch) -> None:
    def planted(runs: Sequence[OriginRun], sequence: int) -> OriginRun | None:
        return origin_entries.find_run(runs, max(0, sequence - 1))

    patch.setattr(origin_runs, "find_run", planted)


def forgets_where_batches_have_been(patch: pytest.MonkeyPatch) -> None:
    """And who wrote them: all goes on to everywhere."""
    judge = origins.judge_batches

    def planted(link: Link, way: Way, direct: frozenset[str]) -> origins.Verdict:
        return judge(replace(link, target=replace(link.target, name="nowhere")), way, direct)

    patch.setattr(worker_origins, "judge_batches", planted)


def passes_what_comes_directly(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(worker_origins, "direct_sites", lambda _link, _topic: frozenset())
    patch.setattr(origins, "direct_sites", lambda _link, _topic: frozenset())


def names_ways_an_epoch_later(patch: pytest.MonkeyPatch) -> None:
    def planted(self: Registration, epoch: int) -> bool:
        return self.named_from is not None and epoch > self.named_from

    patch.setattr(Registration, "names_origins", planted)


def does_not_ask_each_epoch(patch: pytest.MonkeyPatch) -> None:
    """A link that brings more since its last session is believed what it said before."""

    def planted(records: memoryview, asked: Any) -> bool:
        return only_from(records, _AnyEpoch(asked))

    patch.setattr("mirror.worker.registry.only_from", planted)


class _AnyEpoch:
    def __init__(self, asked: set[tuple[int, int]]) -> None:
        self._ids = {producer_id for producer_id, _ in asked}

    def __contains__(self, producer: object) -> bool:
        return isinstance(producer, tuple) and producer[0] in self._ids


PLANTED: tuple[Plant, ...] = (
    tells_the_way_with_the_next_batches,
    calls_all_batches_its_source_s,
    counts_the_runs_from_the_start,
    never_reads_on,
    finds_the_run_before,
    forgets_where_batches_have_been,
    passes_what_comes_directly,
    names_ways_an_epoch_later,
    does_not_ask_each_epoch,
)


@pytest.mark.parametrize("plant", PLANTED)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    found = first_finding(range(PLANTED_SEEDS), choose_circle)
    assert found is not None, f"{PLANTED_SEEDS} seeds do not see what is wrong where a link {plant.__name__}"
