"""What only a source has is neither left there nor replayed while a move along the link has not ended."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from deploy.cli.terminal import ExitCode
from failover.failback.export import export_stranded
from failover.failback.stranding import read_stranded
from failover.freezing.hooks import Hooks
from failover.running.taking_up import resume
from mirror.api import read_entries
from tests.chaos_runs.warm_commands import Said, warm_commands
from tests.deploy.cli.test_failover import CONFIG
from tests.failover.machines import HEIR, machine, quick
from tests.failover.running.test_taking_up import FAILOVER, ID, die_in, ready
from tests.failover.stage import PARTITIONS, Stage
from tests.mirror.harness import some_records, write


async def run(stage: Stage, folder: Path, verb: str, *options: str) -> Said:
    """`farshore stranded` of the link, by a file that declares it alone."""
    link, file = stage.link, folder / "farshore.toml"
    config = CONFIG.format(east=link.source.bootstrap_servers, west=link.target.bootstrap_servers)
    file.write_text(config.replace('"east-west"', f'"{link.name}"'))
    return await asyncio.to_thread(warm_commands().run, ["--config", str(file), "stranded", verb, *options], folder)


async def test_amid_a_move_that_has_not_ended_nothing_is_left_or_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took the link's fence from the move, which was cut short by that, or ended without what was left."""
    quick(monkeypatch)
    async with ready(tmp_path) as stage:
        await die_in(stage, monkeypatch, "move_groups", FAILOVER)
        await write(stage.source, PARTITIONS[0], some_records(7_000, 3))
        async with Cluster(stage.link.source) as east:
            reader, found = await read_stranded(stage.link, east, stage.target)
            await export_stranded(reader, found.undecided, tmp_path / "saved", 0)
        stood = await read_entries(stage.link, stage.target)
        told = partial(run, stage, tmp_path)
        replayed = ("replay", "--policy", "append", "--from", str(tmp_path / "saved"))
        for line in (("leave", "--yes"), ("leave", "--dry-run"), (*replayed, "--yes"), (*replayed, "--dry-run")):
            said = await told(*line)
            assert said.code == ExitCode.REFUSED, (line, said.err)
            words = " ".join(said.err.split())
            assert f"{ID} moves {stage.link.name}" in words, line
            assert "nothing was changed" in words
            assert f"farshore operation wait {ID}" in words
        now = await read_entries(stage.link, stage.target)
        assert (now.run, dict(now.gaps)) == (stood.run, dict(stood.gaps))
        async with machine(HEIR, stage.link) as sites:
            (result,) = await resume(await stage.log(ID), sites, Hooks(), "an heir")
        assert result.verified
        for line in (("leave", "--yes"), (*replayed, "--yes")):
            said = await told(*line)
            assert said.code == ExitCode.DONE, (line, said.err)
