"""What Ctrl-C amid a move says: how that stands now, and the next command."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest

from broker.client.site import Site
from deploy.cli.interrupted import told_where_interrupted
from deploy.cli.terminal import ExitCode
from failover.running.steps import OperationStep
from tests.deploy.cli.draining import drain_held_up
from tests.deploy.cli.test_failover import DEADLINE_S, is_draining, role_of_east, two_sites
from tests.failover.machines import VICTIM, machine, operate, quick
from tests.failover.running.test_taking_up import ID, SWITCHOVER, _is_begun, ready
from tests.interop.servers import wait_until
from tests.mirror.harness import eventually
from tests.ports import free_port


async def interrupt(target: Site, operation_id: str) -> None:
    is_begun = asyncio.Event()

    async def move() -> None:
        async with told_where_interrupted(target) as begun:
            begun.operation_id = operation_id
            is_begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(move())
    await is_begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_one_that_was_cut_short_behind_the_fence_is_to_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    quick(monkeypatch)
    async with ready(tmp_path) as stage, machine(VICTIM, stage.link) as mine:
        await interrupt(stage.link.target, "")
        await interrupt(stage.link.target, ID)
        nothing = "interrupted before anything was begun: nothing was changed\n"
        assert capsys.readouterr().err == 2 * nothing, "asked for, and not in the journal: it was not begun"
        running = asyncio.create_task(operate(SWITCHOVER, mine, ID))
        await eventually(lambda: _is_begun(stage, OperationStep.FENCE), "the fence")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await interrupt(stage.link.target, ID)
        said = capsys.readouterr().err
        assert f"interrupted: {ID} was cut short in its step" in " ".join(said.split())
        assert said.splitlines()[-1] == f"next: farshore operation resume {ID}"


async def test_where_the_journal_does_not_answer_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    await interrupt(Site("west", f"127.0.0.1:{free_port()}"), ID)
    said = capsys.readouterr().err
    assert f"interrupted; how {ID} stands is not known" in " ".join(said.split())
    assert said.splitlines()[-1] == f"next: farshore operation show {ID}"


def test_ctrl_c_while_it_drains_is_exit_code_130_and_leaves_the_link_running(tmp_path: Path) -> None:
    with two_sites(tmp_path) as shell:
        before = shell.operations
        with drain_held_up(shell.east.bootstrap):
            operation = shell.start("switchover --yes -o json")
            wait_until(lambda: is_draining(shell, before), DEADLINE_S, "the drain to start")
            operation.process.send_signal(signal.SIGINT)
            ended = operation.end(DEADLINE_S)
        assert ended.code == ExitCode.INTERRUPTED
        (operation_id,) = [one for one in shell.operations if one not in before]
        assert f"interrupted: {operation_id} was given up in its step drain" in " ".join(ended.err.split())
        assert "what it had changed is undone, and nothing was moved" in " ".join(ended.err.split())
        show = f"farshore operation show {operation_id}"
        assert ended.err.splitlines()[-1] == f"next: {show}"
        document = json.loads(ended.out)
        assert (document["exit_code"], document["hint"]) == (ExitCode.INTERRUPTED, show)
        assert f"{operation_id} was given up in its step drain" in document["error"]
        assert role_of_east(shell) == ("active", 2), "frozen, and let in again"
        assert json.loads(shell.run("switchover --dry-run -o json", ExitCode.DONE).stdout)["refusals"] == []
