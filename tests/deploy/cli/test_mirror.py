"""The mirror's commands, as a person or a script runs them, against two real brokers."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tomllib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from broker.base.children import die_with_parent
from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets
from broker.client.log import append
from broker.client.model import CommittedOffset
from broker.client.site import Site
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from deploy.cli.root import cli
from deploy.cli.terminal import ExitCode
from mirror.api import Link, promote_link
from tests.interop.servers import FarshoreBroker, wait_until
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[3]

CONFIG = """
[sites.east]
bootstrap_servers = "{east}"
[sites.west]
bootstrap_servers = "{west}"
[[links]]
name = "east-west"
source = "east"
target = "west"
topics = ["flights", "orders-.*"]
topic_names = "same"
groups = [".*"]
"""


@dataclass
class Shell:
    """Runs `farshore --config FILE ...`."""

    config: Path

    def run(self, line: str, code: int = ExitCode.DONE) -> Result:
        result = CliRunner().invoke(cli, ["--config", str(self.config), *line.split()])
        assert result.exit_code == code, result.output
        return result

    def json(self, line: str, code: int = ExitCode.DONE) -> dict[str, Any]:
        document = json.loads(self.run(f"{line} -o json", code).stdout)
        assert document["schema_version"] == 1
        assert isinstance(document, dict)
        return document


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """Two sites of each test's own: what a link did, and its topics, must not depend on the order of tests."""
    with FarshoreBroker(tmp_path / "east") as east, FarshoreBroker(tmp_path / "west") as west:
        config = tmp_path / "farshore.toml"
        config.write_text(CONFIG.format(east=east.bootstrap, west=west.bootstrap))
        yield Shell(config)


def test_a_link_is_described_when_its_source_is_lost(tmp_path: Path) -> None:
    with FarshoreBroker(tmp_path / "west") as west:
        config = tmp_path / "farshore.toml"
        config.write_text(CONFIG.format(east=f"127.0.0.1:{free_port()}", west=west.bootstrap))
        described = Shell(config).run("link describe -o yaml")
    document = yaml.safe_load(described.stdout)
    assert (document["source_answers"], document["condition"]) == (False, "never_ran")
    assert document["mirrored"] is None
    assert "site east does not answer" in described.stderr


def test_a_topic_from_creation_to_deletion(shell: Shell) -> None:
    topic = f"made-{uuid.uuid4().hex[:6]}"
    create = f"topic create --site east --topic {topic} --partitions 2 --config retention.ms=-1"
    shell.run(create)
    assert "TOPIC_ALREADY_EXISTS" in shell.run(create, ExitCode.ERROR).stderr
    shell.run(f"{create} --if-not-exists")
    listed = shell.json("topic list --site east")["items"]
    assert {"topic": topic, "partitions": 2, "replication_factor": 1, "is_internal": False} in listed
    described = shell.json(f"topic describe --site east --topic {topic}")
    assert described["configs"] == {"retention.ms": "-1"}
    assert len(described["partitions"]) == 2
    shell.run(f"topic delete --site east --topic {topic} --dry-run")
    refused = shell.run(f"topic delete --site east --topic {topic}", ExitCode.REFUSED)
    assert "--yes" in refused.stderr
    assert topic in refused.stderr
    shell.run(f"topic delete --site east --topic {topic} --yes")
    missing = shell.run(f"topic describe --site east --topic {topic}", ExitCode.ERROR)
    assert missing.stderr.startswith("error: ")
    assert "farshore topic list" in missing.stderr


def test_usage_errors_exit_with_2(shell: Shell) -> None:
    assert "east" in shell.run("topic list --site nowhere", ExitCode.USAGE).stderr
    shell.run("topic create --site east --topic t --config retention.ms", ExitCode.USAGE)
    shell.run("link describe --link other", ExitCode.USAGE)
    shell.run("offsets translate --topic flights --partition 0", ExitCode.USAGE)


def test_links_are_listed_and_described_with_their_plan(shell: Shell) -> None:
    (link,) = shell.json("link list")["items"]
    assert link["topics"] == ["flights", "orders-.*"]
    shell.run("topic create --site east --topic orders-eu --partitions 3 --config segment.ms=60000")
    described = yaml.safe_load(shell.run("link describe -o yaml").stdout)
    (wanted,) = [topic for topic in described["topics_to_create"] if topic["name"] == "orders-eu"]
    assert wanted["partitions"] == 3
    assert wanted["configs"]["segment.ms"] == "60000"
    assert described["condition"] == "never_ran"
    assert "orders-.*" in shell.run("link list").stdout


def test_a_link_that_never_ran(shell: Shell) -> None:
    assert "never ran" in shell.run("link resume --yes", ExitCode.ERROR).stderr
    failed = shell.run("offsets translate --topic flights --partition 0 --offset 5", ExitCode.ERROR)
    assert "mirrored nothing" in failed.stderr
    (status,) = shell.json("status", ExitCode.FINDINGS)["items"]
    assert status["condition"] == "never_ran"
    assert status["source_answers"] is True
    told = shell.run("status", ExitCode.FINDINGS).stdout
    assert "east-west" in told
    assert "next: farshore mirror run --link east-west" in told
    late = shell.run("status --until healthy --timeout 10ms", ExitCode.FINDINGS).stderr
    assert "error: not healthy after 10 ms: east-west: never_ran" in late
    shell.run("status --until healthy --watch", ExitCode.USAGE)
    late = shell.run("status --until lag<5s --timeout 10ms", ExitCode.FINDINGS).stderr
    assert "never_ran" in late, "nothing is behind, but there is no worker, either"


async def fill(bootstrap: str) -> None:
    """100 records in each of two partitions, and a group in the middle of them."""
    async with Cluster(Site("east", bootstrap)) as east:
        now_ms = east.clock.now_ms()
        for where in (TopicPartition("flights", 0), TopicPartition("flights", 1)):
            for _ in range(4):
                await append(east, where, encode_batch([Record(i, now_ms, b"k", b"v") for i in range(25)]))
            await commit_offsets(east, "app", {where: CommittedOffset(40, "half")})


def test_a_running_link_from_start_to_promotion_and_back(shell: Shell) -> None:
    shell.run("topic create --site east --topic flights --partitions 2")
    bootstrap = tomllib.loads(shell.config.read_text())["sites"]
    asyncio.run(fill(bootstrap["east"]["bootstrap_servers"]))
    waited = shell.run("status --until healthy --timeout 3s", ExitCode.FINDINGS)
    assert "waiting until healthy: east-west: never_ran" in waited.stderr
    command = [sys.executable, "-m", "deploy.cli", "--config", str(shell.config), "mirror", "run"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, preexec_fn=die_with_parent) as mirror:
        try:
            shell.run("status --until healthy --timeout 60s")
            wait_until(lambda: group_at_west(shell) == [40, 40], 60, "the group to be carried over")
            (status,) = shell.json("status")["items"]
            assert (status["condition"], status["lag_records"], status["groups"]) == ("running", 0, 1)
            (carried, _) = shell.json("group describe --link east-west --group app")["partitions"]
            assert (carried["state"], carried["source_offset"], carried["target_offset"]) == (
                "carried",
                40,
                carried["written_target_offset"],
            )
            translated = shell.json("offsets translate --topic flights --partition 1 --offset 99")
            back = f"offsets translate --topic flights --partition 1 --offset {translated['target_offset']} --reverse"
            assert shell.json(back)["source_offset"] == 99
            beyond = shell.run("offsets translate --topic flights --partition 1 --offset 101", ExitCode.ERROR)
            assert "is not mirrored" in beyond.stderr
            assert "nothing to resume" in shell.run("link resume").stderr
            described = shell.json("link describe")
            assert [topic["source_topic"] for topic in described["mirrored"]] == ["flights"]
            asyncio.run(promote(bootstrap))
            assert mirror.stderr is not None
            while b"link resume" not in mirror.stderr.readline():
                assert mirror.poll() is None, mirror.stderr.read()
            assert shell.json("link describe")["condition"] == "promoted"
            assert "--yes" in shell.run("link resume", ExitCode.REFUSED).stderr
            shell.run("link resume --yes")
            shell.run("status --until healthy --timeout 60s")
            assert shell.json("link describe")["condition"] == "running"
            asyncio.run(fill(bootstrap["east"]["bootstrap_servers"]))
            wait_until(lambda: lag_records(shell) == 0, 60, "the resumed link to mirror on")
            mirror.terminate()
            assert mirror.wait(60) == ExitCode.DONE
        finally:
            mirror.kill()


def lag_records(shell: Shell) -> int:
    (status,) = json.loads(CliRunner().invoke(cli, ["--config", str(shell.config), "status", "-o", "json"]).stdout)[
        "items"
    ]
    return int(status["lag_records"])


def group_at_west(shell: Shell) -> list[int]:
    """Records from the group's offsets to the ends of what was mirrored, as the group's own lag tells."""
    groups = shell.json("group list --site west")["items"]
    if [group["group"] for group in groups] != ["app"]:
        return []
    partitions = shell.json("group describe --site west --group app")["partitions"]
    return [100 - row["lag_records"] for row in partitions]


async def promote(sites: dict[str, dict[str, str]]) -> None:
    east, west = (Site(name, sites[name]["bootstrap_servers"]) for name in ("east", "west"))
    async with Cluster(west) as target:
        await promote_link(Link("east-west", east, west, ("flights", "orders-.*")), target, "operation-1")


def test_groups(shell: Shell) -> None:
    assert shell.run("group describe --group app", ExitCode.USAGE).stderr.count("--site and --link")
    assert "has no offset in a topic" in shell.run("group describe --link east-west --group no", ExitCode.ERROR).stderr
    missing = shell.run("group describe --site west --group nobody", ExitCode.ERROR)
    assert "GROUP_ID_NOT_FOUND" in missing.stderr


def test_a_site_that_does_not_answer(shell: Shell, tmp_path: Path, unused_tcp_port: int) -> None:
    lost = f"127.0.0.1:{unused_tcp_port}"
    config = tmp_path / "farshore.toml"
    config.write_text(CONFIG.format(east=lost, west="127.0.0.1:1"))
    failed = Shell(config).run("topic list --site east", ExitCode.ERROR)
    assert lost in failed.stderr
    assert "hint: " in failed.stderr
    assert "Traceback" not in failed.output
