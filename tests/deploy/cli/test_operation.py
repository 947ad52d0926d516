"""`farshore operation`: a switchover whose process was killed, gone on with or given up from elsewhere."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from broker.wire.api import ApiKey
from broker.wire.vocabulary import TopicPartition
from deploy.cli.operation import Found, _wait, _watched
from deploy.cli.terminal import ExitCode
from failover.journal.standing import OperationState
from failover.running.steps import OperationStep
from mirror.api import STATUS_LIMITS
from mirror.link import Link
from tests.broker.faults import SPARED, Faults, injected
from tests.deploy.cli.draining import drain_held_up
from tests.deploy.cli.test_failover import DEADLINE_S, Shell, is_draining, role_of_east, two_sites
from tests.failover.machines import VICTIM, machine, operate, quick
from tests.failover.on_its_way import hold_drain
from tests.failover.running.test_taking_up import ID, SWITCHOVER, _is_begun, ready
from tests.failover.stage import now_ms
from tests.interop.servers import wait_until
from tests.mirror.harness import eventually

WATCHED = re.compile(r"watching for \d+ s whether \S+ on \S+, process \d+ still carries (\S+) on")


@pytest.fixture
def own_shell(tmp_path: Path) -> Iterator[Shell]:
    with two_sites(tmp_path) as shell:
        yield shell


def kill_while_it_drains(shell: Shell) -> str:
    """-> the operation, which nobody carries on."""
    before = shell.operations
    with drain_held_up(shell.east.bootstrap):
        operation = shell.start("switchover --yes --reason maintenance")
        wait_until(lambda: is_draining(shell, before), DEADLINE_S, "the drain to start")
        operation.process.kill()
        operation.end(DEADLINE_S)
    (operation_id,) = [one for one in shell.operations if one not in before]
    return operation_id


def test_a_switchover_that_is_killed_while_it_drains_is_said_and_resumed_with_another_folder(own_shell: Shell) -> None:
    operation_id = kill_while_it_drains(own_shell)
    assert role_of_east(own_shell) == ("frozen", 1)
    refused = own_shell.run("switchover --yes", ExitCode.REFUSED)
    assert operation_id in refused.stderr
    assert "nothing was changed" in refused.stderr
    plan = own_shell.run("switchover --dry-run", ExitCode.REFUSED)
    said = " ".join(plan.stdout.split())
    assert "east is frozen already for flights, since switchover-east-west-" in said
    assert "refused; it would be: " in said
    assert f"error: {operation_id} moves east-west" in " ".join(plan.stderr.split())
    listed = json.loads(own_shell.run("operation list --open -o json", ExitCode.DONE).stdout)["items"]
    assert [(one["operation_id"], one["links"]) for one in listed] == [(operation_id, ["east-west"])]
    told = own_shell.run(f"operation show {operation_id}", ExitCode.DONE).stdout
    assert "reason: maintenance" in told
    assert max(map(len, told.splitlines())) <= 80
    config = own_shell.folder / "farshore.toml"
    config.write_text(config.read_text().replace('state_dir = "state"', 'state_dir = "elsewhere"'))
    waited = own_shell.run(f"operation wait {operation_id}", ExitCode.ERROR)
    listing = own_shell.run("operation list", ExitCode.DONE).stdout
    assert f"next: `farshore operation resume {operation_id}`" in listing, "the night's first question had no next step"
    assert f"next: `farshore operation resume {operation_id}`" in waited.stdout
    assert waited.stderr.startswith(f"waiting for the end of {operation_id};"), "six seconds without a word"
    assert "resume" not in waited.stderr, "which was said twice"
    own_shell.run(f"operation resume {operation_id} --dry-run", ExitCode.DONE)
    resumed = own_shell.run(f"operation resume {operation_id} --yes -o json", ExitCode.DONE)
    assert WATCHED.search(" ".join(resumed.stderr.split())), "nothing was said for 16 s"
    result = json.loads(resumed.stdout)
    assert (result["operation_id"], result["verified"]) == (operation_id, True)
    assert own_shell.operations == [operation_id]
    events = [entry["event"] for entry in own_shell.shown(operation_id)["entries"]]
    assert (events[0], events[-1], events.count("taken_up")) == ("planned", "finished", 1)
    over = own_shell.run(f"operation resume {operation_id} --yes", ExitCode.REFUSED).stderr
    assert f"{operation_id} has ended: verified" in over
    assert "cut short" not in over, "it was said to be, in its step verify"


@pytest.mark.parametrize("what", ["--link east-west", "--from east --to west"])
def test_a_dry_run_beside_one_that_has_not_ended_has_the_plan_and_the_refusal(own_shell: Shell, what: str) -> None:
    """It showed the plan and exited 0, and the command itself was refused."""
    operation_id = kill_while_it_drains(own_shell)
    own_shell.run(f"switchover {what} --yes", ExitCode.REFUSED)
    for line in (f"switchover {what} --dry-run", f"switchover {what} --out plan.json"):
        plan = json.loads(own_shell.run(f"{line} -o json", ExitCode.REFUSED).stdout)
        refusals = [(one["reason"], one["detail"]) for one in plan["refusals"]]
        assert refusals == [("operation_under_way", operation_id)]
        assert plan["loss"]["certainty"]
    assert not (own_shell.folder / "plan.json").exists()
    told = own_shell.run(f"switchover {what} --dry-run", ExitCode.REFUSED)
    assert "refused; it would be: " in " ".join(told.stdout.split())
    assert f"error: {operation_id} moves east-west" in " ".join(told.stderr.split())
    lost = f"failover {what} --even-if-source-answers --allow-data-loss"
    failover = json.loads(own_shell.run(f"{lost} --dry-run -o json", ExitCode.REFUSED).stdout)
    assert [one["reason"] for one in failover["refusals"]] == ["operation_under_way"]


def test_an_operation_that_is_done_but_for_its_hook_says_so_and_that_nothing_is_stranded(own_shell: Shell) -> None:
    with (own_shell.folder / "farshore.toml").open("a") as config:
        config.write('[failover]\nafter_hook = ["sh", "-c", "echo no, not today; exit 7"]\n')
    result = json.loads(own_shell.run("switchover --yes -o json", ExitCode.FINDINGS).stdout)
    assert "no, not today" in result["hook_error"]
    told = own_shell.run(f"operation show {result['operation_id']}", ExitCode.DONE).stdout
    assert f"{result['operation_id']}: findings" in told
    assert "finding: the after_hook ended with exit code 7: no, not today; all else was done" in " ".join(told.split())
    listed = own_shell.run("operation list", ExitCode.DONE).stdout
    assert "findings" in listed
    assert "stranded" not in told + listed
    assert own_shell.run(f"operation wait {result['operation_id']}", ExitCode.FINDINGS)


def test_a_resume_that_this_file_would_have_refused_is_refused_when_it_is_tried_dry(own_shell: Shell) -> None:
    """It exited 0, and said that the resume goes on."""
    operation_id = kill_while_it_drains(own_shell)
    config = own_shell.folder / "farshore.toml"
    declared = config.read_text()
    config.write_text(declared.replace('topics = ["flights"]', 'topics = ["flights", "more"]'))
    for how in ("--dry-run", "--yes"):
        refused = own_shell.run(f"operation resume {operation_id} {how}", ExitCode.REFUSED)
        assert f"{operation_id} was begun with a file that declares east-west otherwise: topics" in " ".join(
            refused.stderr.split()
        )
    config.write_text(declared)
    own_shell.run(f"operation resume {operation_id} --dry-run", ExitCode.DONE)


def test_a_site_that_does_not_tell_is_no_site_without_open_operations(own_shell: Shell) -> None:
    nothing = own_shell.run("operation list --open -o json", ExitCode.DONE)
    assert json.loads(nothing.stdout) == {"schema_version": 1, "items": [], "sites_not_known": []}
    with (own_shell.folder / "farshore.toml").open("a") as config:
        config.write('[[links]]\nname = "back"\nsource = "west"\ntarget = "east"\ntopics = ["flights"]\n')
    own_shell.east.kill9()
    told = own_shell.run("operation list --open", ExitCode.FINDINGS)
    assert "without those to east: none" in told.stdout
    assert "note: operations to east are not known: " in told.stderr
    assert json.loads(own_shell.run("operation list -o json", ExitCode.FINDINGS).stdout)["sites_not_known"] == ["east"]


def test_a_switchover_that_is_killed_while_it_drains_is_aborted(own_shell: Shell) -> None:
    operation_id = kill_while_it_drains(own_shell)
    would = own_shell.run(f"operation abort {operation_id} --dry-run", ExitCode.DONE)
    assert f"an abort of {operation_id} would find" in would.stdout
    assert "nothing would stay changed" in would.stderr
    planned = json.loads(own_shell.run(f"operation abort {operation_id} --dry-run -o json", ExitCode.DONE).stdout)
    assert role_of_east(own_shell) == ("frozen", 1)
    aborted = own_shell.run(f"operation abort {operation_id} --yes -o json", ExitCode.DONE)
    assert WATCHED.search(" ".join(aborted.stderr.split()))
    assert "link runs: east-west goes on as before: nothing was moved along it" in aborted.stderr
    assert "source thawed: east takes writes again" in aborted.stderr
    assert "nothing stays changed" in aborted.stderr
    done = json.loads(aborted.stdout)
    assert done == planned
    assert [(one["kind"], one["stays"]) for one in done["items"]] == [("link_runs", False), ("source_thawed", False)]
    assert role_of_east(own_shell) == ("active", 3), "set once more, so that no late change follows, and let in again"
    waited = own_shell.run(f"operation wait {operation_id}", ExitCode.REFUSED)
    who = r"(\S+ on \S+, process \d+)"
    by = re.search(rf"begun \S+ by {who}, then aborted by {who}, last heard of", " ".join(waited.stdout.split()))
    assert by is not None, "who aborted it was said to have begun it"
    assert by[1] != by[2]
    own_shell.run("switchover --yes", ExitCode.DONE)


@pytest.mark.parametrize("off_by_ms", [-3_600_000, 3_600_000])
async def test_a_list_takes_no_living_one_for_silent_and_no_dead_one_for_living_by_a_clock_that_is_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], off_by_ms: int
) -> None:
    """Nor does it take six seconds without a word."""
    quick(monkeypatch)
    monkeypatch.setattr("failover.journal.log.HEARTBEAT_S", 0.3)
    monkeypatch.setattr("deploy.cli.operation.now_ms", lambda: now_ms() + off_by_ms)
    monkeypatch.setattr("deploy.cli.operation.LOOK_AGAIN_S", 0.2)
    async with ready(tmp_path) as stage, machine(VICTIM, stage.link) as mine:
        await hold_drain(stage)
        running = asyncio.create_task(operate(SWITCHOVER, mine, ID))
        await eventually(lambda: _is_begun(stage, OperationStep.DRAIN), "the drain")

        async def listed() -> Found:
            (found,) = (await _watched([stage.link.target])).found
            return found

        assert (await listed()).standing().state is OperationState.UNDER_WAY
        assert f"watching for 6 s whether a victim still carries {ID} on" in " ".join(capsys.readouterr().err.split())
        monkeypatch.setattr("failover.journal.log.HEARTBEAT_S", 30.0)

        async def is_dead() -> bool:
            return (await listed()).standing().state is OperationState.CUT_SHORT

        # Behind the last beat of the machine, which hangs from now on.
        await eventually(is_dead, "silence to be taken for what it is")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


@dataclass
class OneLink:
    """As much of a command's context as a wait looks at."""

    link: Link

    def links(self) -> tuple[Link, ...]:
        return (self.link,)


async def test_a_wait_goes_on_when_the_target_does_not_answer_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    quick(monkeypatch)
    monkeypatch.setattr("failover.journal.log.HEARTBEAT_S", 0.1)
    monkeypatch.setattr("deploy.cli.operation.LOOK_AGAIN_S", 0.2)
    limits = replace(STATUS_LIMITS, retry_timeout_ms=300, partition_patience_ms=300, retry_backoff_max_ms=100)
    monkeypatch.setattr("deploy.cli.operation.STATUS_LIMITS", limits)
    west = Faults()
    async with ready(tmp_path) as stage, machine(SPARED, stage.link) as mine:
        await hold_drain(stage)
        with injected(monkeypatch, {stage.brokers[1]: west}):
            running = asyncio.create_task(operate(SWITCHOVER, mine, ID))
            await eventually(lambda: _is_begun(stage, OperationStep.DRAIN), "the drain")
            waiting = asyncio.create_task(_wait(OneLink(stage.link), ID, None))  # type: ignore[arg-type]
            connected = west.asked[ApiKey.API_VERSIONS]

            async def has_looked() -> bool:
                return west.asked[ApiKey.API_VERSIONS] >= connected + 8  # each look has connections of its own

            await eventually(has_looked, "some looks")
            told = " ".join(capsys.readouterr().err.split())
            assert told == f"waiting for the end of {ID}; last heard of a victim, in step drain", "or it seems to hang"
            journal = TopicPartition("__farshore-operations", 0)
            said = ""
            west.leaderless.add(journal)

            async def is_said(text: str) -> bool:
                nonlocal said
                said += capsys.readouterr().err
                return text in said

            await eventually(lambda: is_said("west does not tell now, and is asked again"), "the note")
            assert not waiting.done()
            west.heal()
            await eventually(lambda: is_said("west tells again"), "the second note")
            assert said.count("note:") == 2, "each is said once"
            over = await _wait(OneLink(stage.link), ID, 600)  # type: ignore[arg-type]
            assert over.standing().state is OperationState.UNDER_WAY, "the time that was given is over"
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert (await waiting).standing().state is OperationState.GIVEN_UP
