"""Whether a source still has what was mirrored from it, asked while the mirror goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mirror.offsets.tail import read_tails
from mirror.worker.parted import source_partings
from tests.failover.stage import PARTITIONS, RECORDS, mirrored, two_sites
from tests.mirror.harness import some_records, wait_for_records, write

NEWS = 5


async def test_what_is_mirrored_while_it_is_looked_at_is_not_taken_for_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source's log seemed to end before what the target had by then."""
    async with two_sites(tmp_path) as stage, mirrored(stage):

        async def behind_news(*given: Any) -> Any:
            await write(stage.source, PARTITIONS[0], some_records(50_000, NEWS))
            await wait_for_records(stage.target, PARTITIONS[0], RECORDS + NEWS)
            return await read_tails(*given)

        monkeypatch.setattr("mirror.worker.evidence.read_tails", behind_news)
        assert await source_partings(stage.link, stage.source, stage.target) == ()
