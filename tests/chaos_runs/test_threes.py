"""A mirror between two clusters of three whose brokers are killed: two of the seeded runs of `make chaos`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from tests.chaos_runs.clusters import THREES
from tests.chaos_runs.command_runs import SwitchoverRun
from tests.chaos_runs.content_runs import ContentResult
from tests.chaos_runs.replicated_runs import ReplicatedRun
from tests.chaos_runs.trio import two_trios
from tests.chaos_runs.warm_commands import WarmCommands
from tests.interop.servers import Toxiproxy

Run = Callable[[type[ReplicatedRun], int, float], ContentResult]


class KillsOnly(ReplicatedRun):
    """Sleepers and slow networks take long."""

    def weight_of(self, kind: str, weight: int) -> int:
        return weight if kind in ("source-kill", "target-kill", "both-kill", "mirror-kill") else 0


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("threes")
    with two_trios(folder) as (east, west), Toxiproxy(folder / "toxiproxy") as toxiproxy, WarmCommands() as commands:

        def run(form: type[ReplicatedRun], seed: int, length_s: float) -> ContentResult:
            own = folder / f"{form.__name__}-{seed}"
            try:
                return asyncio.run(form(seed, THREES, east, west, toxiproxy, commands, own, length_s).run())
            finally:
                east.start_all()
                west.start_all()

        yield run


def test_records_and_groups_are_the_same_after_leaders_died(run: Run) -> None:
    result = run(KillsOnly, 101, 10.0)
    assert result.is_good, result.line()
    assert any("kill" in fault for fault in result.faults), result.line()


def test_a_switchover_in_which_brokers_die_is_done_or_says_what_to_do(run: Run) -> None:
    result = run(SwitchoverRun, 102, 3.0)
    assert result.is_good, result.line()
