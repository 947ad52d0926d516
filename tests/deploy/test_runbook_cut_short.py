"""docs/runbook.md, the moves of one link where their machine dies amid them: taken up as it is written."""

from __future__ import annotations

import os
from pathlib import Path

from deploy.cli.terminal import ExitCode
from tests.deploy.cli.test_failover import DEADLINE_S, append_records
from tests.deploy.test_runbook import arrive, cut_drain_short, is_allowed, is_in, role_of, take_up, world, written
from tests.interop.servers import wait_until


def test_a_planned_move_that_is_cut_short_is_taken_up(tmp_path: Path) -> None:
    with world(tmp_path) as shell:
        append_records(shell.east, "first", 4)
        shell.begin("mirror run --link east-west")
        drill, dry_run, _, _, cut_short, resume, *_ = written("Planned")
        wait_until(lambda: is_allowed(shell, drill), DEADLINE_S, "a drill without findings")
        switchover = dry_run.removesuffix(" --dry-run")
        cut_drain_short(shell, switchover)
        shell.run(f"{switchover} --yes", ExitCode.REFUSED)
        take_up(shell, cut_short, resume)
        assert (role_of(shell, "east"), role_of(shell, "west")) == ("standby", "active")


def test_an_unplanned_move_that_is_cut_short_is_taken_up(tmp_path: Path) -> None:
    """Its machine dies behind the fence, in an after_hook."""
    with world(tmp_path) as shell:
        append_records(shell.east, "first", 4)
        shell.begin("mirror run --link east-west")
        arrive(shell.west, ["first"] * 4)
        held_up = tmp_path / "held-up"
        os.mkfifo(held_up)
        file = tmp_path / "farshore.toml"
        file.write_text(f'{file.read_text()}\n[failover]\nafter_hook = ["cat", "{held_up}"]\n')
        shell.east.kill9()
        _, failover, cut_short, resume, _ = written("Unplanned")
        begun = shell.start(f"{failover} --yes")
        wait_until(lambda: is_in(shell, "after_hook"), DEADLINE_S, "the failover to run its last hook")
        begun.process.kill()
        begun.end(DEADLINE_S)
        held_up.rename(tmp_path / "was-held-up")
        held_up.touch()
        take_up(shell, cut_short, resume, ExitCode.FINDINGS)
        # The hook of who died ends, too, if it lives: opened so, a pipe waits for no reader.
        os.close(os.open(tmp_path / "was-held-up", os.O_RDWR))
        assert role_of(shell, "west") == "active"
