"""`--out` and `farshore apply`: a plan that is looked at first, and carried out by another command, or refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.client.fanout import both
from broker.client.groups import delete_groups
from broker.client.topics import delete_topics
from deploy.cli.terminal import ExitCode
from tests.chaos_runs.warm_commands import Said, warm_commands
from tests.deploy.cli.test_failover import CONFIG, Shell, append_records, two_sites, values_at
from tests.failover.observing.test_target_in_part import OTHER, stage_with
from tests.mirror.harness import make_topic


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


@pytest.mark.parametrize(
    ("options", "gone"),
    [
        ("--leave-partition late:0", "late-0"),
        (f"--group {OTHER}", f"{OTHER} at west"),
    ],
    ids=["partition", "group"],
)
async def test_what_a_plan_names_and_is_gone_since_is_a_change_and_no_typing_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, gone: str
) -> None:
    """It ended with 2, and asked for another name in a file that nobody may edit."""
    async with stage_with(tmp_path, monkeypatch) as (stage, _):
        east, west = stage.link.source.bootstrap_servers, stage.link.target.bootstrap_servers
        config = CONFIG.format(east=east, west=west).replace('["flights"]', '["flights", "quiet", "late"]')
        (tmp_path / "farshore.toml").write_text(config)
        await make_topic(stage.source, "late", 1)

        async def run(line: str) -> Said:
            arguments = ["--config", str(tmp_path / "farshore.toml"), *line.split()]
            return await asyncio.to_thread(warm_commands().run, arguments, tmp_path)

        failover = f"failover --allow-data-loss --even-if-source-answers {options}"
        planned = await run(f"{failover} --out plan.json")
        assert planned.code == ExitCode.DONE, planned.err
        if "--group" in options:
            await both(delete_groups(stage.source, [OTHER]), delete_groups(stage.target, [OTHER]))
        else:
            await delete_topics(stage.source, ["late"])
        refused = await run("apply plan.json --yes")
        told = " ".join(refused.err.split())
        assert refused.code == ExitCode.REFUSED, told
        assert "the plan holds no more" in told
        assert f"{gone}: there -> gone" in told
        assert (await run(f"{failover} --yes")).code == ExitCode.USAGE, "who types it by now mistypes it"
