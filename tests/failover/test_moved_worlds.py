"""Switchovers and failovers under trouble: each that ends with exit code 0 is held against the world by content, and
each that is refused against what the world allows.

FARSHORE_SWITCHOVER_SEEDS=FIRST:COUNT runs others than the fixed worlds (`make chaos` takes 500).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.failover.machines import quick
from tests.failover.moved_operator import play

FIRST, COUNT = map(int, os.environ.get("FARSHORE_SWITCHOVER_SEEDS", "0:20").split(":"))


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> Iterator[Counter[str]]:
    """How often each thing happened, printed at the end."""
    counts: Counter[str] = Counter()
    yield counts
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print("\n" + "\n".join(f"{count:6} {what}" for what, count in sorted(counts.items())))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
async def test_each_consumer_of_a_moved_group_goes_on_at_exactly_its_next_record(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcomes: Counter[str]
) -> None:
    quick(monkeypatch)
    outcomes += await play(seed, tmp_path, monkeypatch)
