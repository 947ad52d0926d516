"""Where a document was asked for, a command that ends with an error has one, too: what was met, what to do, why not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from deploy.cli.refusals import refusals_of
from deploy.cli.root import cli
from deploy.cli.terminal import ExitCode
from failover.errors import (
    BackTailUndecided,
    ExportRefused,
    FreezeNotAllowed,
    GateRefused,
    GroupsRead,
    HookFailed,
    LockedOut,
    NotDrained,
    NotMovable,
    OperationEnded,
    OperationUnderWay,
    OtherFile,
    Overtaken,
    PromotedMeanwhile,
    ReadsMore,
    ReplayRefused,
    SkipsMore,
    StrandedUnknown,
    SwitchoverOpen,
    TailEndUnknown,
    WorldChanged,
)
from failover.planning.gates import GateRefusal, RefusalReason
from tests.deploy.cli.draining import drain_held_up
from tests.deploy.cli.test_failover import Shell, two_sites
from tests.deploy.cli.test_operation import kill_while_it_drains

KINDS: tuple[tuple[GateRefused, RefusalReason], ...] = (
    (BackTailUndecided("west-east", "west"), RefusalReason.BACK_TAIL_UNDECIDED),
    (ExportRefused(), RefusalReason.EXPORT_REFUSED),
    (OtherFile("o", "l", {}), RefusalReason.OTHER_FILE),
    (SwitchoverOpen("failback-1", "switchover-1"), RefusalReason.OPERATION_UNDER_WAY),
    (FreezeNotAllowed(), RefusalReason.FREEZE_NOT_ALLOWED),
    (LockedOut(), RefusalReason.FREEZE_NOT_ALLOWED),
    (HookFailed("freeze_hook", "ended with 1"), RefusalReason.HOOK_FAILED),
    (NotDrained(), RefusalReason.NOT_DRAINED),
    (OperationEnded(), RefusalReason.OPERATION_ENDED),
    (PromotedMeanwhile("o", ["l"], "east"), RefusalReason.PROMOTED_MEANWHILE),
    (ReplayRefused(), RefusalReason.REPLAY_REFUSED),
    (StrandedUnknown(), RefusalReason.STRANDED_UNKNOWN),
    (TailEndUnknown(), RefusalReason.STRANDED_UNKNOWN),
    (WorldChanged(), RefusalReason.WORLD_CHANGED),
    (GroupsRead(["g"], "east"), RefusalReason.GROUP_ACTIVE_AT_SOURCE),
    (NotMovable(["g"]), RefusalReason.GROUP_NOT_MOVABLE),
    (ReadsMore({"g on t-0": 3}, "east"), RefusalReason.GROUP_OFFSET_LOST),
    (SkipsMore({"g on t-0": 3}, "west"), RefusalReason.GROUP_WENT_ON),
    (OperationUnderWay("", operation_id="o"), RefusalReason.OPERATION_UNDER_WAY),
    (Overtaken("east", "west"), RefusalReason.OPERATION_UNDER_WAY),
)
NOBODY_THERE = """
state_dir = "state"
[sites.east]
bootstrap_servers = "127.0.0.1:1"
[sites.west]
bootstrap_servers = "127.0.0.1:2"
[[links]]
name = "east-west"
source = "east"
target = "west"
topics = ["flights"]
"""


@pytest.fixture
def own_shell(tmp_path: Path) -> Iterator[Shell]:
    with two_sites(tmp_path) as shell:
        yield shell


def test_each_kind_of_refusal_is_told_to_programs() -> None:
    assert [[one.reason for one in refusals_of(error)] for error, _ in KINDS] == [[reason] for _, reason in KINDS]
    ours = {kind for kind in GateRefused.__subclasses__() if kind.__module__ == GateRefused.__module__}
    assert {type(error) for error, _ in KINDS} >= ours


def test_another_operation_is_named() -> None:
    held = OperationUnderWay("it moves", "wait", subject="east-west", operation_id="switchover-1")
    assert refusals_of(held) == [GateRefusal(RefusalReason.OPERATION_UNDER_WAY, "east-west", "switchover-1")]
    assert refusals_of(FreezeNotAllowed(), "east", "l") == [GateRefusal(RefusalReason.FREEZE_NOT_ALLOWED, "east")]


@pytest.mark.parametrize(
    ("words", "code", "error", "hint"),
    [
        ("status --link nope", ExitCode.USAGE, "has no link 'nope'", ""),
        ("switchover --from east", ExitCode.USAGE, "--from and --to are given together", ""),
        ("switchover --group=", ExitCode.USAGE, "--group is empty", ""),
        ("switchover --out none/plan.json", ExitCode.USAGE, "no folder none that can be written to", ""),
        ("failover --out farshore.toml/plan.json", ExitCode.USAGE, "no folder farshore.toml", ""),
        ("apply farshore.toml", ExitCode.ERROR, "no plan", "--out"),
    ],
)
def test_errors_and_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, code: ExitCode, error: str, hint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("farshore.toml").write_text(NOBODY_THERE)
    for form, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        ended = CliRunner().invoke(cli, [*words.split(), "-o", form])
        assert ended.exit_code == code
        document = read(ended.stdout)
        assert (document["schema_version"], document["exit_code"], document["refusals"]) == (1, code, [])
        assert error in document["error"]
        assert error in ended.stderr
        assert hint in document["hint"]
    assert CliRunner().invoke(cli, words.split()).stdout == ""


def refused(shell: Shell, line: str) -> dict[str, Any]:
    said = shell.run(f"{line} -o json", ExitCode.REFUSED)
    document: dict[str, Any] = json.loads(said.stdout)
    return document


@pytest.mark.parametrize("what", ["", "--from east --to west"])
def test_a_drain_in_vain_is_told_in_the_document_with_what_to_do(own_shell: Shell, what: str) -> None:
    """It had the plan, and of what was met the one word not_drained."""
    with drain_held_up(own_shell.east.bootstrap):
        said = own_shell.run(f"switchover {what} --yes --timeout 1s -o json", ExitCode.REFUSED)
    document = json.loads(said.stdout)
    assert "not_drained" in [one["reason"] for one in document["refusals"]]
    assert "still not mirrored after 1 s; nothing was changed" in document["error"]
    assert "then try again" in document["hint"]
    told = " ".join(said.stderr.split())
    assert " ".join(document["error"].split()) in told
    assert " ".join(document["hint"].split()) in told


def test_commands_that_are_refused_have_a_document_that_says_so(own_shell: Shell) -> None:
    assert refused(own_shell, "failback")["refusals"] == ["not_promoted", "no_link_back"]
    operation_id = kill_while_it_drains(own_shell)
    document = refused(own_shell, "switchover --yes")
    assert operation_id in document["error"]
    assert operation_id in document["hint"]
    held = {"reason": "operation_under_way", "subject": "east-west", "detail": operation_id}
    assert (document["refusals"], document["exit_code"]) == ([held], ExitCode.REFUSED)
    for line in (f"operation resume {operation_id}", f"operation abort {operation_id}"):
        assert [one["reason"] for one in refused(own_shell, line)["refusals"]] == ["no_consent"]
    own_shell.run(f"operation resume {operation_id} --yes", ExitCode.DONE)
    document = refused(own_shell, f"operation resume {operation_id} --yes")
    assert [one["reason"] for one in document["refusals"]] == ["operation_ended"]
    assert [one["reason"] for one in refused(own_shell, "link resume")["refusals"]] == ["no_consent"]
    assert "link" in json.loads(own_shell.run("link resume --yes -o json", ExitCode.DONE).stdout)
    for line in ("stranded leave", "stranded leave --yes", "stranded leave --dry-run"):
        document = refused(own_shell, line)
        assert "link east-west is not promoted" in document["error"], "it ended as if that had been decided"
        assert "farshore status --link east-west" in document["hint"]
    own_shell.run("operation resume nope -o json", ExitCode.USAGE)
