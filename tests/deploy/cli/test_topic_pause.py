"""`farshore topic pause` and `resume`, beside a mirror that runs: who says so, and what it keeps from being done."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.cli.terminal import ExitCode
from tests.deploy.cli.test_failover import DEADLINE_S, Shell, append_records, two_sites, values_at
from tests.interop.servers import wait_until


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with two_sites(tmp_path) as shell:
        yield shell


def status(shell: Shell) -> Any:
    return json.loads(shell.ask("status --link east-west -o json").stdout)["items"][0]


def test_a_paused_topic_is_told_by_all_who_look_and_no_switchover_calls_it_verified(shell: Shell) -> None:
    for line, told in (
        ("topic pause --topic gates", "mirrors no topic gates"),
        ("topic pause --topic __farshore-canary-east-west", "mirrors no topic __farshore-canary-east-west"),
        ("topic resume --topic flights", "topic flights is not paused"),
    ):
        assert told in shell.run(line, ExitCode.ERROR).stderr
    append_records(shell.east, "before", 2)
    wait_until(lambda: values_at(shell.west) == ["before"] * 2, DEADLINE_S, "what was written before the pause")

    told = shell.run("topic pause --link east-west --topic flights,flights", ExitCode.DONE).stderr
    assert "farshore topic resume --link east-west --topic flights" in told
    wait_until(
        lambda: [one["reason"] for one in status(shell)["holds"]] == ["paused"], DEADLINE_S, "the mirror to see it"
    )
    append_records(shell.east, "after", 3)
    seen = status(shell)
    assert (seen["topics_paused"], seen["lag_records"], seen["condition"]) == (["flights"], 3, "running")
    assert [one["kind"] for one in seen["findings"]] == ["topic_paused"]
    drill = json.loads(shell.run("drill -o json", ExitCode.FINDINGS).stdout)
    assert "topic_paused" in json.dumps(drill)
    refused = shell.run("switchover --yes", ExitCode.REFUSED).stderr
    assert "the topic flights is paused, so what is missing of it would not come" in refused
    assert "farshore topic resume --topic flights" in refused
    lost = shell.run("failover --dry-run --even-if-source-answers --allow-data-loss", ExitCode.DONE)
    assert "paused topics, of which nothing more was mirrored: flights" in lost.stdout
    assert values_at(shell.west) == ["before"] * 2

    shell.run("topic resume --topic flights", ExitCode.DONE)
    wait_until(
        lambda: values_at(shell.west) == ["before"] * 2 + ["after"] * 3, DEADLINE_S, "what was written meanwhile"
    )
    wait_until(lambda: status(shell)["findings"] == [], DEADLINE_S, "no finding to be left")
    result = json.loads(shell.run("switchover --yes -o json", ExitCode.DONE).stdout)
    assert result["verified"] is True
