"""The mirror's commands, as a person or a script runs them, against two real brokers."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from deploy.cli import cli
from mirror.terminal import ExitCode
from tests.interop.servers import FarshoreBroker

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

    def json(self, line: str) -> dict[str, object]:
        document = json.loads(self.run(f"{line} -o json").stdout)
        assert document["schema_version"] == 1
        assert isinstance(document, dict)
        return document


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    folder = tmp_path_factory.mktemp("cli")
    with FarshoreBroker(folder / "east") as east, FarshoreBroker(folder / "west") as west:
        config = folder / "farshore.toml"
        config.write_text(CONFIG.format(east=east.bootstrap, west=west.bootstrap))
        yield Shell(config)


def test_a_topic_from_creation_to_deletion(shell: Shell) -> None:
    topic = f"made-{uuid.uuid4().hex[:6]}"
    create = f"topic create --site east --topic {topic} --partitions 2 --config retention.ms=-1"
    shell.run(create)
    assert "TOPIC_ALREADY_EXISTS" in shell.run(create, ExitCode.ERROR).stderr
    shell.run(f"{create} --if-not-exists")
    listed = shell.json("topic list --site east")["items"]
    assert {"topic": topic, "partitions": 2, "replication_factor": 1, "is_internal": False} in listed  # type: ignore[operator]
    described = shell.json(f"topic describe --site east --topic {topic}")
    assert described["configs"] == {"retention.ms": "-1"}
    assert len(described["partitions"]) == 2  # type: ignore[arg-type]
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
    (link,) = shell.json("link list")["items"]  # type: ignore[misc]
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
    (status,) = shell.json("status")["items"]  # type: ignore[misc]
    assert status["condition"] == "never_ran"
    assert status["source_answers"] is True
    assert "east-west" in shell.run("status").stdout


def test_groups(shell: Shell) -> None:
    assert shell.json("group list --site west")["items"] == []
    assert "none" in shell.run("group list --site west").stdout
    missing = shell.run("group describe --site west --group nobody", ExitCode.ERROR)
    assert "GROUP_ID_NOT_FOUND" in missing.stderr


def test_a_site_that_does_not_answer(shell: Shell, tmp_path: Path, unused_tcp_port: int) -> None:
    lost = f"127.0.0.1:{unused_tcp_port}"
    config = tmp_path / "farshore.toml"
    config.write_text(CONFIG.format(east=lost, west=lost))
    failed = Shell(config).run("topic list --site east", ExitCode.ERROR)
    assert lost in failed.stderr
    assert "hint: " in failed.stderr
    assert "Traceback" not in failed.output
