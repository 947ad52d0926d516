"""`farshore switchover` and `farshore failover` as people and scripts run them: exit codes, consent, documents."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from broker.client.cluster import Cluster
from broker.client.site import Site
from broker.client.topics import list_topics
from broker.wire.records import Record
from broker.wire.vocabulary import TopicPartition
from deploy.cli.terminal import ExitCode
from failover.journal.log import load_operations
from failover.journal.standing import OperationStanding, standing_of
from tests.chaos_runs.warm_commands import Begun, warm_commands
from tests.forking import FARSHORE, ForkedProcess, forking, start_farshore
from tests.interop.servers import FarshoreBroker, wait_until
from tests.mirror.harness import read_all, write

ROOT = Path(__file__).parents[3]
DEADLINE_S = 180.0
FLIGHTS = TopicPartition("flights", 0)
CONFIG = """
state_dir = "state"
[sites.east]
bootstrap_servers = "{east}"
[sites.west]
bootstrap_servers = "{west}"
[[links]]
name = "east-west"
source = "east"
target = "west"
topics = ["flights"]
topic_names = "same"
groups = [".*"]
"""


@dataclass
class Shell:
    """Runs `farshore` in a folder with two sites and a running mirror."""

    folder: Path
    east: FarshoreBroker
    west: FarshoreBroker
    services: list[ForkedProcess] = field(default_factory=list)

    def begin(self, line: str) -> None:
        """Start a service; it ends with the shell."""
        self.services.append(start_farshore(self.argv(line)[len(FARSHORE) :], self.folder, self.folder / "service.log"))

    def close(self) -> None:
        for service in self.services:
            service.terminate()
        for service in self.services:
            service.wait(DEADLINE_S)

    def argv(self, line: str) -> list[str]:
        return [sys.executable, "-m", "deploy.cli", "--config", str(self.folder / "farshore.toml"), *line.split()]

    def start(self, line: str) -> Begun:
        return warm_commands().begin(self.argv(line)[len(FARSHORE) :], self.folder)

    def ask(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run it to its end, in a process that need not import everything first: half a second for each of hundreds."""
        said = warm_commands().run(self.argv(line)[len(FARSHORE) :], self.folder)
        return subprocess.CompletedProcess(line, said.code, said.out, said.err)

    def run(self, line: str, expect: int) -> subprocess.CompletedProcess[str]:
        done = self.ask(line)
        assert done.returncode == expect, f"{line}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def answered(self, line: str, answer: bytes) -> int:
        """Run at a terminal and type the answer -> the exit code."""
        keyboard, terminal = pty.openpty()
        try:
            with open(os.devnull, "wb") as nothing:
                files = (terminal, nothing.fileno(), nothing.fileno())
                process = forking().start(self.argv(line)[len(FARSHORE) :], self.folder, os.environ, files)
            os.write(keyboard, answer)
            return process.wait(DEADLINE_S)
        finally:
            os.close(keyboard)
            os.close(terminal)

    @property
    def operations(self) -> list[str]:
        return [standing.operation_id for standing in self.standings()]

    def standings(self) -> list[OperationStanding]:
        """Looked at from here: a process would come too late for a step that lasts two seconds."""

        async def load() -> list[OperationStanding]:
            async with Cluster(Site("west", self.west.bootstrap)) as cluster:
                return [
                    standing_of(log, round(time.time() * 1000)) for log in (await load_operations(cluster)).values()
                ]

        return asyncio.run(load())

    def shown(self, operation_id: str) -> Any:
        return json.loads(self.run(f"operation show {operation_id} -o json", ExitCode.DONE).stdout)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """Sites for the tests that leave the link as it is."""
    with two_sites(tmp_path_factory.mktemp("shell")) as shell:
        yield shell


@pytest.fixture
def own_shell(tmp_path: Path) -> Iterator[Shell]:
    """Sites for a test that moves the link."""
    with two_sites(tmp_path) as shell:
        yield shell


@contextmanager
def two_sites(folder: Path) -> Iterator[Shell]:
    """Two brokers and a mirror that has carried the topic."""
    with FarshoreBroker(folder / "east") as east, FarshoreBroker(folder / "west") as west:
        (folder / "farshore.toml").write_text(CONFIG.format(east=east.bootstrap, west=west.bootstrap))
        shell = Shell(folder, east, west)
        shell.run("topic create --site east --topic flights --partitions 1 --config retention.ms=-1", ExitCode.DONE)
        shell.begin("mirror run")
        try:
            wait_until(lambda: _mirrored(shell), DEADLINE_S, "the mirror to carry the topic")
            yield shell
        finally:
            shell.close()


def _mirrored(shell: Shell) -> bool:
    plan = shell.ask("switchover --dry-run -o json")
    return plan.returncode == ExitCode.DONE and json.loads(plan.stdout)["losses"] != []


def _states_no_loss(shell: Shell) -> bool:
    plan = json.loads(shell.run("switchover --dry-run -o json", ExitCode.DONE).stdout)
    return bool(plan["loss"]["offsets"] == 0)


def append_records(site: FarshoreBroker, value: str, count: int) -> None:
    async def append_all() -> None:
        async with Cluster(Site("site", site.bootstrap)) as cluster:
            for _ in range(count):
                await write(cluster, FLIGHTS, [Record(0, 1_700_000_000_000, None, value.encode())])

    asyncio.run(append_all())


def values_at(site: FarshoreBroker) -> list[str]:
    """None where there is no such topic yet."""

    async def read() -> list[str]:
        async with Cluster(Site("site", site.bootstrap)) as cluster:
            if FLIGHTS.topic not in await list_topics(cluster):
                return []
            return [(record.value or b"").decode() for record in await read_all(cluster, FLIGHTS)]

    return asyncio.run(read())


def test_a_wrong_use_is_exit_code_2(shell: Shell) -> None:
    shell.run("switchover --to-datetime 2013-06-01T00:00:00Z", ExitCode.USAGE)


def test_a_dry_run_prints_a_plan_and_changes_nothing(shell: Shell) -> None:
    before = shell.operations
    plan = json.loads(shell.run("switchover --dry-run -o json", ExitCode.DONE).stdout)
    assert plan["operation"] == "switchover"
    assert plan["steps"] == ["freeze", "drain", "fence", "move_groups", "hand_over", "verify"]
    assert plan["refusals"] == []
    assert shell.operations == before


def test_a_refusal_is_exit_code_3_with_its_reason_and_hint(shell: Shell) -> None:
    before = shell.operations
    refused = shell.run("failover --allow-data-loss --yes", ExitCode.REFUSED)
    assert "error: the source site east answers" in refused.stderr
    assert "hint: run `farshore switchover`" in refused.stderr
    assert refused.stdout == ""
    told = json.loads(shell.run("failover --allow-data-loss --yes -o json", ExitCode.REFUSED).stdout)
    assert [refusal["reason"] for refusal in told["refusals"]] == ["source_answers"]
    dry = json.loads(shell.run("failover --allow-data-loss --dry-run -o json", ExitCode.REFUSED).stdout)
    assert [refusal["reason"] for refusal in dry["refusals"]] == ["source_answers"]
    assert shell.operations == before


def test_a_drill_is_ready_where_all_is_carried_and_names_what_is_not(shell: Shell) -> None:
    def ready(line: str) -> str:
        """Asked until only how east was started is found: a busy machine's worker may see the ends too late."""
        answers: list[subprocess.CompletedProcess[str]] = []

        def is_ready() -> bool:
            answers.append(shell.ask(line))
            (link,) = json.loads(shell.ask("drill -o json").stdout)["items"]
            return [one["kind"] for one in link["findings"]] == ["returns_active"]

        wait_until(is_ready, DEADLINE_S, f"{line} without findings")
        return answers[-1].stdout

    before = shell.operations
    ready("drill --from east --to west -o json")
    (found,) = json.loads(ready("drill -o json"))["items"]
    assert (found["link"], found["is_ready"], found["findings"][0]["subject"]) == ("east-west", False, "east")
    assert found["findings"][0]["next_step"].endswith("clients reach it: farshore site standby --site east")
    assert (found["source_answers"], found["lag_records"], found["loss"]["offsets"]) == (True, 0, 0)
    assert found["ends_age_seconds"] < 10
    assert "if east died now" in (told := ready("drill --link east-west"))
    assert max(map(len, told.splitlines())) <= 120
    assert "there is no such link" in shell.run("drill --from west", ExitCode.USAGE).stderr
    assert shell.operations == before


def test_without_a_terminal_the_flag_is_named(shell: Shell) -> None:
    wait_until(lambda: _states_no_loss(shell), DEADLINE_S, "the mirror to have what the tests before wrote")
    before = shell.operations
    refused = shell.run("switchover -o json", ExitCode.REFUSED)
    assert "--yes" in refused.stderr
    document = json.loads(refused.stdout)
    assert [refusal["reason"] for refusal in document["refusals"]] == ["no_consent"]
    assert document["loss"].pop("stated_at") == document["snapshot"]["taken_at"]
    assert document["loss"] == {
        "offsets": 0,
        "records": 0,
        "partitions_with_loss": 0,
        "certainty": "exact",
        "seen_at": None,
        "unseen_partitions": 0,
        "likely_offsets": None,
        "seen_seconds": None,
        "unanswered_at": None,
        "found_dead_at": None,
        "fastest_per_s": None,
        "unclear_offsets": 0,
        "open_offsets": 0,
        "pace_seconds": None,
        "pace_at": None,
        "ceased_per_s": None,
        "ceased_partitions": 0,
        "is_source_there": True,
    } | dict.fromkeys(("lacked_offsets", "lacked_records", "uncompared_partitions", "unasked_links"), 0)
    assert shell.operations == before


def test_a_no_at_the_terminal_changes_nothing(shell: Shell) -> None:
    before = shell.operations
    assert shell.answered("switchover", b"n\n") == ExitCode.REFUSED
    assert shell.operations == before


def test_the_name_of_a_group_or_partition_that_nobody_knows_is_a_wrong_use_and_an_empty_one_is(shell: Shell) -> None:
    before = shell.operations
    for option in ("--group", "--leave-group", "--set-back"):
        for more in ("--yes", "--dry-run"):
            wrong = shell.run(f"switchover {option} nope {more} -o json", ExitCode.USAGE)
            assert "neither east nor west knows the group nope" in wrong.stderr
            assert "farshore group list" in wrong.stderr
            (refusal,) = json.loads(wrong.stdout)["refusals"]
            assert (refusal["reason"], refusal["subject"]) == ("group_not_found", "nope")
    for more in ("--yes", "--dry-run"):
        lost = "failover --allow-data-loss --even-if-source-answers --leave-partition flights:99"
        wrong = shell.run(f"{lost} {more} -o json", ExitCode.USAGE)
        assert "no mirrored partition flights:99" in wrong.stderr
        assert "farshore status --all" in wrong.stderr
        (refusal,) = json.loads(wrong.stdout)["refusals"]
        assert (refusal["reason"], refusal["subject"]) == ("partition_not_found", "flights:99")
    shell.run("switchover --group one --set-back other --yes", ExitCode.USAGE)
    for option in ("--group", "--leave-group"):
        wrong = shell.run(f"switchover {option}= --yes", ExitCode.USAGE)
        assert f"{option} is empty" in wrong.stderr
    assert shell.operations == before


def test_a_datetime_without_a_zone_is_refused(shell: Shell) -> None:
    before = shell.operations
    line = "failover --to-datetime 2013-06-01T00:00:00 --allow-data-loss --even-if-source-answers --yes"
    refused = shell.run(line, ExitCode.USAGE)
    assert "names no time zone" in refused.stderr
    for text in ("", "1960-01-01T00:00:00Z"):
        shell.run(f"failover --to-datetime={text} --dry-run", ExitCode.USAGE)
    assert shell.operations == before


def role_of_east(shell: Shell) -> tuple[str, int]:
    (row,) = json.loads(shell.run("site role --site east -o json", ExitCode.DONE).stdout)["items"]
    return row["role"], row["epoch"]


def is_draining(shell: Shell, before: list[str]) -> bool:
    return any(one.step == "drain" for one in shell.standings() if one.operation_id not in before)


def test_a_switchover_that_is_verified_is_exit_code_0_with_its_document(own_shell: Shell) -> None:
    result = json.loads(own_shell.run("switchover --yes -o json", ExitCode.DONE).stdout)
    assert result["verified"] is True
    assert result["differences"] == []
    assert (result["stranded"], result["source_role"]["role"]) == ([], "standby")
    assert [(loss["certainty"], loss["records"]) for loss in result["losses"]] == [("exact", 0)]
    assert own_shell.operations == [result["operation_id"]]
    shown = own_shell.shown(result["operation_id"])
    assert (shown["state"], shown["source"], shown["target"], shown["links"]) == (
        "verified",
        "east",
        "west",
        ["east-west"],
    )
    assert [step["step"] for step in shown["steps"]] == [
        "freeze",
        "drain",
        "fence",
        "move_groups",
        "hand_over",
        "verify",
    ]
    own_shell.run(f"operation wait {result['operation_id']} --timeout 5s", ExitCode.DONE)
    assert "has ended" in own_shell.run(f"operation resume {result['operation_id']} --yes", ExitCode.REFUSED).stderr
    again = own_shell.run("switchover --yes --link east-west", ExitCode.REFUSED)
    assert f"already moved, by {result['operation_id']}" in " ".join(again.stderr.split())
    assert f"farshore operation show {result['operation_id']}" in again.stderr
    assert "farshore link resume" in again.stderr
    assert "no client writes" not in again.stderr, "nothing will be frozen"
    follow_to_the_end(own_shell, result["next"])


def follow_to_the_end(shell: Shell, steps: list[dict[str, str]]) -> None:
    """Do what a switchover says is next: records go back, then the applications, and the link runs as before."""
    assert shell.west.bootstrap in steps[0]["what"]
    append_records(shell.west, "west", 3)
    for step in steps:
        if step["toml"]:
            file = shell.folder / "farshore.toml"
            file.write_text(f"{file.read_text()}\n{step['toml']}\n")
        command = step["command"].removeprefix("farshore ")
        if command.startswith("mirror run"):
            shell.begin(command)
            wait_until(lambda: values_at(shell.east) == ["west"] * 3, DEADLINE_S, "west's records to be at east")
        elif command:
            shell.run(f"{command} --yes", ExitCode.DONE)
    append_records(shell.east, "east", 2)
    wait_until(lambda: values_at(shell.west) == ["west"] * 3 + ["east"] * 2, DEADLINE_S, "east's records to be at west")
    assert values_at(shell.east) == ["west"] * 3 + ["east"] * 2


def is_watched(shell: Shell) -> bool:
    """What is likely is told of a source that was looked at twice."""
    (drill,) = json.loads(shell.ask("drill -o json").stdout)["items"]
    return bool(drill["loss"]["pace_seconds"])


def test_a_source_that_is_gone_is_named_and_a_failover_works(own_shell: Shell) -> None:
    wait_until(lambda: is_watched(own_shell), DEADLINE_S, "east to be looked at twice")
    own_shell.east.kill9()
    (found,) = json.loads(own_shell.run("drill -o json", ExitCode.FINDINGS).stdout)["items"]
    assert "site_lost" in {finding["kind"] for finding in found["findings"]}
    refused = own_shell.run("switchover --yes", ExitCode.REFUSED)
    assert "the source site east does not answer" in refused.stderr
    without_consent = own_shell.run("failover --yes", ExitCode.REFUSED)
    assert "--allow-data-loss" in without_consent.stderr
    ran = own_shell.run("failover --allow-data-loss --yes -o json", ExitCode.DONE)
    assert ran.stderr.startswith("calling east and west"), "nothing was heard of it for seconds"
    result = json.loads(ran.stdout)
    assert [loss["certainty"] for loss in result["losses"]] == ["at_least"]
    assert result["losses"][0]["seen_at"] is not None
    assert (result["loss"]["records"], result["loss"]["certainty"]) == (None, "at_least")
    assert result["loss"]["seen_at"] == result["losses"][0]["seen_at"]
    assert (result["loss"]["offsets"], result["loss"]["likely_offsets"] >= 0) == (0, True)
    assert result["summary"].startswith("lost: likely 0 ")
    assert "What it wrote after that look cannot be known from here" in result["summary"]
    assert [step["command"] for step in result["next"]] == [
        "",
        "",
        "farshore stranded list --link east-west",
        "",
        "farshore mirror run --link west-east",
        "farshore failback --link east-west",
    ]
    assert "`farshore site standby --site east --topic flights`" in result["next"][1]["what"]
