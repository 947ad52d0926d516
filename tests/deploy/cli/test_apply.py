"""`--out` and `farshore apply`: a plan that is looked at first, and carried out by another command, or refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.cli.terminal import ExitCode
from tests.deploy.cli.test_failover import Shell, append_records, two_sites, values_at


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with two_sites(tmp_path) as shell:
        yield shell


def test_a_plan_is_carried_out_while_it_holds_and_refused_by_name_where_it_does_not(shell: Shell) -> None:
    refused = shell.run("failover --yes --out never.json", ExitCode.REFUSED)
    assert "farshore apply" not in refused.stderr
    assert not (shell.folder / "never.json").exists()
    told = shell.run("switchover --reason maintenance --out plan.json", ExitCode.DONE)
    assert "next: farshore apply plan.json" in told.stderr
    assert shell.operations == []
    written = json.loads((shell.folder / "plan.json").read_text())
    assert (written["intent"]["operation"], written["plans"][0]["operation"]) == ("switchover", "switchover")
    append_records(shell.east, "more", 3)
    shell.run("apply plan.json --dry-run", ExitCode.DONE)

    shell.run("link pause --link east-west", ExitCode.DONE)
    shell.run("link resume --link east-west --yes", ExitCode.DONE)
    refused = shell.run("apply plan.json --yes", ExitCode.REFUSED)
    assert "the plan holds no more: link_state east-west: running -> running " in refused.stderr
    assert "nothing was changed" in refused.stderr
    assert shell.operations == []

    before = (shell.folder / "plan.json").read_bytes()
    there = shell.run("switchover --reason maintenance --out plan.json", ExitCode.REFUSED)
    assert "plan.json is there already" in there.stderr
    assert (shell.folder / "plan.json").read_bytes() == before
    shell.run("switchover --reason maintenance --out plan.json --yes", ExitCode.DONE)
    assert "--yes" in shell.run("apply plan.json", ExitCode.REFUSED).stderr
    result = json.loads(shell.run("apply plan.json --yes -o json", ExitCode.DONE).stdout)
    assert result["verified"] is True
    assert values_at(shell.west) == ["more"] * 3
    shown = shell.shown(result["operation_id"])
    assert (shown["reason"], len(shown["entries"][0]["detail"]["plan_digest"])) == ("maintenance", 64)
    assert "link_state" in shell.run("apply plan.json --yes", ExitCode.REFUSED).stderr
    (shell.folder / "plan.json").write_text("{}")
    assert "holds no plan" in shell.run("apply plan.json --yes", ExitCode.ERROR).stderr
