"""Switchovers and failovers under trouble: each that ends with exit code 0 is held against the world by content.

FARSHORE_SWITCHOVER_SEEDS=FIRST:COUNT runs others than the fixed worlds (`make chaos` takes 500).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.failover.machines import quick
from tests.failover.moved_worlds import play

FIRST, COUNT = map(int, os.environ.get("FARSHORE_SWITCHOVER_SEEDS", "0:20").split(":"))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
async def test_each_consumer_of_a_moved_group_goes_on_at_exactly_its_next_record(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    await play(seed, tmp_path, monkeypatch)
