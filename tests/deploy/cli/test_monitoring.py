"""The commands' manners where nothing answers: one line, a hint, the right exit code; nothing heavy for --help."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from broker.client.site import Site
from deploy.cli.audit import audit_group
from deploy.cli.canary import canary_group
from deploy.cli.chaos import chaos_group
from deploy.cli.monitor import monitor_group
from mirror.link import Link
from monitoring.audit.run import AuditOutcome, AuditRequest
from monitoring.errors import SparkFailed
from tests.ports import free_port

ROOT = Path(__file__).parents[3]
SPARKS_OWN_S = 60.0
"""How long Spark itself asks for a master."""


@dataclass
class Context:
    """`ctx.obj` of a configuration with one link between two sites where nothing listens."""

    state_dir: Path
    east_west: Link

    def site(self, name: str) -> Site:
        return self.sites()[name]

    def sites(self) -> Mapping[str, Site]:
        return {"east": self.east_west.source, "west": self.east_west.target}

    def link(self, name: str | None) -> Link:
        return self.east_west

    def links(self) -> tuple[Link, ...]:
        return (self.east_west,)


@pytest.fixture
def context(tmp_path: Path) -> Context:
    east, west = (Site(name, f"127.0.0.1:{free_port()}") for name in ("east", "west"))
    return Context(tmp_path, Link("east-west", east, west, ("flights",)))


@pytest.mark.parametrize(
    ("group", "arguments"),
    [
        (canary_group, ["run", "--duration", "1s"]),
        (audit_group, ["run", "-o", "json"]),
    ],
)
def test_a_lost_site_is_one_line_and_exit_1(group: click.Group, arguments: list[str], context: Context) -> None:
    result = CliRunner().invoke(group, arguments, obj=context)
    assert result.exit_code == 1
    assert result.stdout == ""
    lines = result.stderr.strip().splitlines()
    assert [line.split(":")[0] for line in lines[-2:]] == ["error", "hint"]
    assert not any("Traceback" in line or ": " in line for line in lines[:-2]), "only the steps on the way"


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "-o", "xml"],
        ["run", "--conf", "spark.x"],
        ["run", "--conf", "x=1"],
    ],
)
def test_usage_errors_are_exit_2(arguments: list[str], context: Context) -> None:
    assert CliRunner().invoke(audit_group, arguments, obj=context).exit_code == 2


def test_a_listen_address_that_is_none(context: Context) -> None:
    result = CliRunner().invoke(monitor_group, ["run", "--listen", "nowhere"], obj=context)
    assert result.exit_code == 2
    assert "for example 127.0.0.1:9092" in result.stderr


def test_a_run_id_cannot_leave_its_folder(context: Context, tmp_path: Path) -> None:
    result = CliRunner().invoke(audit_group, ["run", "--run-id", "../x"], obj=context)
    assert result.exit_code == 1
    assert "cannot name a run" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "site east does not answer"),
        (["--master", "spark://127.0.0.1:{port}"], "no Spark master answers at spark://127.0.0.1:{port}"),
        (["--master", "spark://127.0.0.1:{port},localhost:{port}"], "no Spark master answers"),
        (["--jars", "no/such.jar"], "there is no jar no/such.jar"),
    ],
)
def test_what_does_not_answer_is_said_by_its_name_and_soon(context: Context, arguments: list[str], words: str) -> None:
    port = free_port()
    given = [argument.format(port=port) for argument in arguments]
    started_s = time.monotonic()
    result = CliRunner().invoke(audit_group, ["run", *given], obj=context)
    assert result.exit_code == 1
    assert words.format(port=port) in result.stderr
    assert time.monotonic() - started_s < SPARKS_OWN_S


def test_settings_of_spark_reach_it(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    async def noted(request: AuditRequest, report: object) -> AuditOutcome:
        asked.append(request)
        raise SparkFailed("noted", "")

    monkeypatch.setattr("deploy.cli.audit.run_audit", noted)
    arguments = ["run", "--conf", "spark.a=b=c", "--conf", "spark.d=", "--driver-memory", "4g", "--master", "local[1]"]
    arguments += ["--packages", "org:a:1,org:b:2", "--packages", "org:c:3", "--jars", "a.jar, b.jar"]
    assert CliRunner().invoke(audit_group, arguments, obj=context).exit_code == 1
    (request,) = asked
    assert request.options == {"spark.a": "b=c", "spark.d": "", "spark.driver.memory": "4g"}
    assert (request.packages, request.jars) == (("org:a:1", "org:b:2", "org:c:3"), ("a.jar", "b.jar"))
    assert request.master == "local[1]"


def test_importing_the_commands_is_cheap() -> None:
    heavy = "pyspark matplotlib"
    modules = "deploy.cli.canary, deploy.cli.monitor, deploy.cli.audit"
    code = f"import sys, {modules}; print(*[name for name in {heavy!r}.split() if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == ""


def test_cleaning_says_which_sites_it_could_not_look_at(context: Context) -> None:
    result = CliRunner().invoke(chaos_group, ["clean", "--yes", "-o", "json"], obj=context)
    assert result.exit_code == 1
    assert json.loads(result.stdout)["items"] == []
    assert "not looked at, because it does not answer: east, west" in result.stderr
