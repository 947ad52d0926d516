"""`farshore failover` to a site of which something does not answer: refused by name, left by name, and moved later."""

from __future__ import annotations

import asyncio
import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from deploy.cli.next_steps import next_steps
from deploy.cli.terminal import ExitCode
from failover.journal.values import Event
from failover.running.verification import DifferenceKind
from tests.chaos_runs.warm_commands import Said, warm_commands
from tests.deploy.cli.test_failover import CONFIG
from tests.failover.machines import quick
from tests.failover.observing.test_target_in_part import OTHER, stage_with
from tests.failover.running.test_read_on import FAILOVER as INTENT
from tests.failover.running.test_read_on import Told, die_behind_verify, taken_up
from tests.failover.stage import GROUP, PARTITIONS

FAILOVER = "failover --allow-data-loss --even-if-source-answers"


async def test_what_does_not_answer_at_the_target_is_left_by_name_and_moved_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage_with(tmp_path, monkeypatch) as (stage, west):
        east_at, west_at = stage.link.source.bootstrap_servers, stage.link.target.bootstrap_servers
        config = CONFIG.format(east=east_at, west=west_at).replace('["flights"]', '["flights", "quiet"]')
        (tmp_path / "farshore.toml").write_text(config)
        carried = await stage.group_at(stage.target)

        async def run(line: str, expect: int) -> Said:
            arguments = ["--config", str(tmp_path / "farshore.toml"), *line.split()]
            said = await asyncio.to_thread(warm_commands().run, arguments, tmp_path)
            assert said.code == expect, f"{line}: {said.code}\n{said.out}\n{said.err}"
            return said

        west.leaderless.add(PARTITIONS[0])
        west.groups |= {(api, OTHER): ErrorCode.COORDINATOR_NOT_AVAILABLE for api in (ApiKey.OFFSET_FETCH,)}
        refused = await run(f"{FAILOVER} --yes -o json", ExitCode.REFUSED)
        assert "--leave-partition flights:0 --leave-group others" in refused.err
        assert "flights:0 does not answer at west" in " ".join(refused.err.split())
        plan = json.loads(refused.out)
        assert [(one["reason"], one["subject"]) for one in plan["refusals"]] == [
            ("partition_unanswered", "flights:0"),
            ("group_unanswered", OTHER),
        ]
        await run(f"{FAILOVER} --leave-partition flights --yes", ExitCode.USAGE)
        consented = f"{FAILOVER} --leave-partition flights:0 --leave-group {OTHER}"
        said = await run(f"{consented} --yes -o json", ExitCode.FINDINGS)
        result = json.loads(said.out)
        assert result["verified"]
        assert [(one["topic"], one["partition"], one["groups"]) for one in result["left_partitions"]] == [
            ("flights", 0, [GROUP])
        ]
        assert result["unanswered_groups"] == [OTHER]
        assert f"applications may start there, but not: {GROUP}, {OTHER}; " in " ".join(said.err.split())
        shown = await run(f"operation show {result['operation_id']}", ExitCode.DONE)
        kept_back = f"left as they were at west, or to be looked at before they start there: {GROUP}, {OTHER}"
        assert kept_back in " ".join(shown.out.split())
        (later,) = [step["command"] for step in result["next"] if "--group" in step["command"]]
        named = f"farshore failover --link east-west --group {GROUP} --group {OTHER}"
        assert later == f"{named} --allow-data-loss --even-if-source-answers"
        west.heal()
        await run(f"{later.removeprefix('farshore ')} --yes", ExitCode.DONE)
        assert await stage.group_at(stage.target) == carried


async def test_what_heals_behind_the_word_leaves_its_groups_where_they_were_and_the_next_step_moves_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command again was the only way that was named: all applications were to be stopped for it."""
    quick(monkeypatch)
    async with stage_with(tmp_path, monkeypatch) as (stage, west):
        east_at, west_at = stage.link.source.bootstrap_servers, stage.link.target.bootstrap_servers
        config = CONFIG.format(east=east_at, west=west_at).replace('["flights"]', '["flights", "quiet"]')
        (tmp_path / "farshore.toml").write_text(config)
        carried = await stage.group_at(stage.target)
        west.leaderless.add(PARTITIONS[0])
        told = Told()
        left = replace(INTENT, left_partitions=("flights:0",))
        await die_behind_verify(stage, monkeypatch, left, 1, told, Event.GROUPS_VERIFIED)
        assert [stand.left_groups for stand in told.stands] == [(GROUP,)]
        west.heal()
        result = await taken_up(stage, told)
        assert result is not None
        assert [one.kind for one in result.differences] == [DifferenceKind.GROUP_NOT_MOVED]
        (step,) = next_steps(result, stage.link, (), {})
        named = f"farshore failover --link east-west --group {GROUP}"
        assert step.command == f"{named} --allow-data-loss --even-if-source-answers"

        arguments = shlex.split(step.command)[1:]
        config_at = ["--config", str(tmp_path / "farshore.toml")]
        consents = ["--yes", "-o", "json"]
        said = await asyncio.to_thread(warm_commands().run, [*config_at, *arguments, *consents], tmp_path)
        assert said.code == ExitCode.DONE, said.err
        document = json.loads(said.out)
        assert {move["group"] for move in document["moves"]} == {GROUP}
        assert {(move["partition"], move["target_offset"]) for move in document["moves"]} == {
            (at.partition, offset) for at, offset in carried.items()
        }
        assert await stage.group_at(stage.target) == carried
