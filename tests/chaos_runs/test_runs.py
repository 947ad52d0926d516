"""The seeded runs of contents, and a sample of those of hands: a seed of each form (`make hands` runs them all)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.chaos_runs.circles import CIRCLES
from tests.chaos_runs.clusters import CONTENT_PAIRS, FLEET_PAIRS
from tests.chaos_runs.runner import (
    COMMANDS_OF_THREES,
    run_circle,
    run_content,
    run_fleet,
    run_hands,
    run_losses,
    run_replicated,
    shares,
)

pytestmark = pytest.mark.slow
SEEDS = int(os.environ.get("FARSHORE_CHAOS_SEEDS") or 0)
LENGTH_S = 60.0 if SEEDS else 10.0
FLEET_SEEDS = int(os.environ.get("FARSHORE_FLEET_ROUNDS") or 3)
FLEET_LENGTH_S = 6.0
COMMAND_LENGTH_S = 5.0
"""Of writing before a command."""
HANDS = {"ours-ours": [0, 2], "3.9.1-4.3.0": [9]}
"""Which seeds of hands run on which pair: the state deleted, the link renamed and back, each topic its own action."""


@pytest.mark.parametrize("kind", CIRCLES)
def test_circles_hold_each_record_once_at_every_site(kind: str, tmp_path: Path) -> None:
    seeds = range(1, max(1, SEEDS // 10) + 1)
    results = run_circle(kind, seeds, LENGTH_S, tmp_path)
    assert [result.line() for result in results if result.problems] == []


@pytest.mark.parametrize("pair", CONTENT_PAIRS)
def test_content_survives_kills_pauses_and_latency(pair: str, tmp_path: Path) -> None:
    seeds = dict(shares(range(1, SEEDS + 1), CONTENT_PAIRS)).get(pair, [1])
    results = run_content(pair, seeds, LENGTH_S, tmp_path)
    assert [result.line() for result in results if not result.is_good] == []


@pytest.mark.parametrize("pair", FLEET_PAIRS)
def test_a_fleet_loses_and_repeats_nothing(pair: str, tmp_path: Path) -> None:
    results = run_fleet(
        pair, dict(shares(range(1, FLEET_SEEDS + 1), FLEET_PAIRS)).get(pair, [1]), FLEET_LENGTH_S, tmp_path
    )
    assert [result.line() for result in results if not result.is_good] == []


@pytest.mark.parametrize("command", COMMANDS_OF_THREES)
def test_a_command_says_the_truth_while_brokers_die(command: str, tmp_path: Path) -> None:
    seeds = range(1, max(2, SEEDS // 4) + 1)
    results = run_replicated(seeds, COMMAND_LENGTH_S, tmp_path, COMMANDS_OF_THREES[command])
    assert [result.line() for result in results if not result.is_good] == []


@pytest.mark.parametrize("pair", HANDS)
def test_hands_leave_a_correct_mirror_or_a_way_on(pair: str, tmp_path: Path) -> None:
    results = run_hands(pair, HANDS[pair], (), tmp_path)
    assert [result.line() for result in results if not result.is_good] == []


@pytest.mark.parametrize(("pair", "seed"), [("ours-3.9.1", 3), ("3.9.1-4.3.0", 1), ("4.3.0-ours", 2)])
def test_a_stated_loss_is_what_the_lost_disk_has(pair: str, seed: int, tmp_path: Path) -> None:
    """Two hundred: `python -m tests.chaos_runs losses --seeds 200`."""
    (result,) = run_losses(pair, [seed], tmp_path)
    assert result.is_good, result.line()
    assert result.verdict.lost_records
