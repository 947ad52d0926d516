"""The seeded runs of three brokers: nothing acknowledged is lost, and where it may be lost that is found."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chaos.cluster.checker import Violation
from tests.chaos_runs.brokers_runs import Mode
from tests.chaos_runs.runner import run_brokers

pytestmark = pytest.mark.slow
SEEDS = int(os.environ.get("FARSHORE_BROKERS_SEEDS") or 1)
PARTS = 4
LENGTH_S = 20.0
SEEDS_UNTIL_LOST = 12


@pytest.mark.parametrize("part", range(min(PARTS, SEEDS)))
def test_nothing_acknowledged_is_lost(part: int, tmp_path: Path) -> None:
    seeds = range(1, SEEDS + 1)[part::PARTS]
    results = run_brokers(seeds, LENGTH_S, Mode(), tmp_path)
    assert [result.line() for result in results if not result.is_good] == []


@pytest.mark.parametrize("mode", [Mode(acks_all=False), Mode(unclean=True)], ids=["acks-1", "unclean"])
def test_what_may_be_lost_is_found_to_be_lost(mode: Mode, tmp_path: Path) -> None:
    for seed in range(1, SEEDS_UNTIL_LOST + 1):
        (result,) = run_brokers([seed], LENGTH_S, mode, tmp_path / str(seed))
        if result.violations[Violation.LOST]:
            return
    pytest.fail(f"no acknowledged record was found to be lost in {SEEDS_UNTIL_LOST} runs")
