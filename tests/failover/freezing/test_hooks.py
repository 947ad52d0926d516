"""The operator's own programs around a move: who says no before it, who hangs, and who fails when all is done."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.base.documents import HIDDEN, to_document
from broker.client.errors import ClusterUnreachable
from broker.client.site_role import site_standing
from failover.errors import HookFailed
from failover.freezing import hooks as hooks_module
from failover.freezing.choice import UNFROZEN, read_roles
from failover.freezing.hooks import Hooks, run_hook
from failover.journal.log import OperationJournal, load_operations
from failover.journal.standing import OperationState, standing_of
from failover.journal.values import Event, JournalEntry
from failover.planning.plan import OperationPlan, plan_failover, plan_switchover
from failover.running.result import OperationResult
from failover.running.steps import Operation
from failover.running.taking_up import resume
from tests.failover.machines import HEIR, machine, operate, quick
from tests.failover.running.test_taking_up import ID, SWITCHOVER, ready
from tests.failover.stage import Stage, commit_group, mirrored, now_ms, two_sites

NOTES = """
import json, os, sys
with open(sys.argv[1], "w") as file:
    json.dump({name: value for name, value in os.environ.items() if name.startswith("FARSHORE_")}, file)
"""
HANGS = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
with open(sys.argv[1] + ".new", "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(600)
"""
RUNS = "import sys; print('ran', end='', file=open(sys.argv[1], 'a')); raise SystemExit(int(sys.argv[2]))"
VERBS = [Operation.SWITCHOVER, Operation.FAILOVER]


def python(code: str, *arguments: object) -> tuple[str, ...]:
    return (sys.executable, "-c", code, *map(str, arguments))


async def planned(stage: Stage, verb: Operation, hooks: Hooks) -> OperationPlan:
    roles = await read_roles(stage.link, stage.source, stage.target)
    freezing = replace(roles, freezes=True, hooks=hooks)
    snapshot = await stage.sites.look()
    if verb is Operation.SWITCHOVER:
        return plan_switchover(snapshot, freezing=freezing)
    return plan_failover(snapshot, allow_data_loss=True, even_if_source_answers=True, freezing=freezing)


async def run(stage: Stage, verb: Operation, hooks: Hooks) -> OperationResult:
    return await stage.run(await planned(stage, verb, hooks), stage.sites)


async def world(stage: Stage) -> object:
    """All that an operation may change."""
    snapshot = await stage.sites.look()
    roles = [await site_standing(site) for site in (stage.source, stage.target)]
    groups = [await stage.group_at(site) for site in (stage.source, stage.target)]
    return snapshot.link_state, snapshot.operation_id, roles, groups, [view.target_end for view in snapshot.partitions]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", ["fails", "hangs", "is not there"])
async def test_a_before_hook_that_does_not_say_yes_leaves_everything_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: Operation, kind: str
) -> None:
    monkeypatch.setattr(hooks_module, "HOOK_S", 2.0)
    command, said = {
        "fails": (python("print('change freeze'); raise SystemExit(7)"), "exit code 7: change freeze"),
        "hangs": (python(HANGS, tmp_path / "pids"), "had not ended after 2 s"),
        "is not there": (("/no/such/program",), "cannot be started"),
    }[kind]
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        await commit_group(stage.source, 33, 44)
        before = await world(stage)
        after = python(NOTES, tmp_path / "after")
        with pytest.raises(HookFailed, match=f"before_hook .*{said}"):
            await run(stage, verb, Hooks(before=command, after=after))
        assert await world(stage) == before
        assert not (tmp_path / "after").exists(), "nothing was done that it could tell of"
        (log,) = (await load_operations(stage.target)).values()
        standing = standing_of(log, now_ms())
        assert (standing.state, [step.step for step in standing.steps]) == (OperationState.GIVEN_UP, ["before_hook"])
        assert "before_hook" in standing.error
        again = await run(stage, verb, Hooks())
        assert again.verified, again.differences


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", ["fails", "hangs"])
async def test_an_after_hook_that_fails_is_a_finding_of_what_is_done_and_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: Operation, kind: str
) -> None:
    monkeypatch.setattr(hooks_module, "HOOK_S", 2.0)
    command = python(HANGS, tmp_path / "pids") if kind == "hangs" else python("raise SystemExit('nobody answers')")
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        await commit_group(stage.source, 33, 44)
        result = await run(stage, verb, Hooks(after=command))
        assert (result.verified, result.has_findings) == (True, True)
        assert ("nobody answers" if kind == "fails" else "had not ended") in result.hook_error
        assert (await stage.sites.look()).link_state == "promoted"
        for at in await stage.group_at(stage.source):
            assert await stage.next_record(stage.target, at) == await stage.next_record(stage.source, at)
        assert standing_of(await stage.log(result.operation_id), now_ms()).state is OperationState.FINDINGS


@pytest.mark.parametrize("fails", [False, True])
async def test_who_takes_an_operation_up_runs_an_after_hook_again_that_failed_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    """It was cut short behind the hook, before the end was written down."""
    quick(monkeypatch)
    ran = tmp_path / "ran"
    hooks = Hooks(after=python(RUNS, ran, int(fails)))

    real = OperationJournal.record_all

    async def record_all(self: OperationJournal, noted: list[tuple[str, Mapping[str, Any]]]) -> list[JournalEntry]:
        if any(event == Event.FINISHED for event, _ in noted):
            raise ClusterUnreachable("west is gone")
        return await real(self, noted)

    async with ready(tmp_path) as stage:
        async with machine("farshore-first", stage.link) as sites:
            with monkeypatch.context() as patched:
                patched.setattr(OperationJournal, "record_all", record_all)
                with pytest.raises(ClusterUnreachable):
                    await operate(SWITCHOVER, sites, ID, hooks)
        async with machine(HEIR, stage.link) as sites:
            (result,) = await resume(await stage.log(ID), sites, hooks, "an heir")
    assert (result.verified, bool(result.hook_error)) == (True, fails)
    assert ran.read_text() == "ran" * (2 if fails else 1)


@pytest.mark.parametrize("verb", VERBS)
async def test_both_are_told_what_it_is_about_and_the_second_how_it_ended(tmp_path: Path, verb: Operation) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        before, after = tmp_path / "before", tmp_path / "after"
        result = await run(stage, verb, Hooks(before=python(NOTES, before), after=python(NOTES, after)))
        assert (result.verified, result.hook_error) == (True, "")
        told = {
            "FARSHORE_OPERATION": result.operation_id,
            "FARSHORE_VERB": verb.value,
            "FARSHORE_LINK": stage.link.name,
            "FARSHORE_SOURCE": "east",
            "FARSHORE_SOURCE_BOOTSTRAP_SERVERS": stage.link.source.bootstrap_servers,
            "FARSHORE_TARGET": "west",
            "FARSHORE_TARGET_BOOTSTRAP_SERVERS": stage.link.target.bootstrap_servers,
        }
        assert told.items() <= json.loads(before.read_text()).items()
        assert told.items() <= json.loads(after.read_text()).items()
        verified = [json.loads(path.read_text())["FARSHORE_VERIFIED"] for path in (before, after)]
        assert verified == ["", "true"]


async def test_the_freeze_hook_runs_where_nothing_else_is_frozen_and_is_told_no_verb(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        noted = tmp_path / "noted"
        roles = await read_roles(stage.link, stage.source, stage.target)
        freezing = replace(roles, freezes=False, hooks=Hooks(freeze=python(NOTES, noted)))
        plan = plan_switchover(await stage.sites.look(), freezing=freezing)
        assert (await stage.run(plan, stage.sites)).verified
        told = json.loads(noted.read_text())
        assert told["FARSHORE_LINK"] == stage.link.name
        assert not told.keys() & {"FARSHORE_VERB", "FARSHORE_VERIFIED"}


async def test_a_hook_that_hangs_is_ended_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks_module, "HOOK_S", 2.0)
    noted = tmp_path / "pids"
    with pytest.raises(HookFailed, match="had not ended after 2 s"):
        await run_hook("before_hook", python(HANGS, noted), {})
    for pid in map(int, noted.read_text().split()):
        state = Path(f"/proc/{pid}/stat")
        assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z", f"{pid} of {os.getpid()}"


def test_what_a_hook_is_given_stands_in_no_journal_and_no_plan() -> None:
    """Both had the whole command line, a token in it, where `config show` hides it; anybody at the target read it."""
    hooks = Hooks(before=("curl", "--header", "Authorization: Bearer 4711"), after=("tell",))
    shown = to_document(replace(UNFROZEN, hooks=hooks))["hooks"]
    assert shown == {"freeze": [], "thaw": [], "before": ["curl", HIDDEN, HIDDEN], "after": ["tell"]}
    assert hooks.of_step().after == ("tell",)
