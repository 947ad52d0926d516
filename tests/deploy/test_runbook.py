"""docs/runbook.md, typed as it is written, in its order, on one world: there and back as planned, then after a loss."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.cli.terminal import ExitCode
from tests.deploy.cli.test_failover import CONFIG, DEADLINE_S, Shell, append_records, values_at
from tests.interop.servers import FarshoreBroker, wait_until

ROOT = Path(__file__).parents[2]
BACK = """
[[links]]
name = "west-east"
source = "west"
target = "east"
topics = ["flights"]
topic_names = "same"
groups = [".*"]
"""


def written(section: str) -> list[str]:
    """The commands of a section for one link, in its order; those for a whole site stand behind them."""
    text = (ROOT / "docs" / "runbook.md").read_text()
    (found,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    one_link = re.split(r"^(?:A whole site|All links)", found, flags=re.MULTILINE)[0]
    return [" ".join(words.split()) for words in re.findall(r"`farshore ([^`]+)`", one_link)]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with FarshoreBroker(tmp_path / "east") as east, FarshoreBroker(tmp_path / "west") as west:
        (tmp_path / "farshore.toml").write_text(CONFIG.format(east=east.bootstrap, west=west.bootstrap) + BACK)
        shell = Shell(tmp_path, east, west)
        shell.run("topic create --site east --topic flights --partitions 1 --config retention.ms=-1", ExitCode.DONE)
        try:
            yield shell
        finally:
            shell.close()


def test_there_and_back_as_planned_and_then_after_a_loss(shell: Shell) -> None:
    append_records(shell.east, "first", 4)
    shell.begin("mirror run --link east-west")
    arrive(shell.west, ["first"] * 4)
    at_west = ["first"] * 4

    drill, dry_run, listed, resume = written("Planned")
    move(shell, drill, dry_run)
    shell.run(listed, ExitCode.DONE)
    append_records(shell.west, "west", 3)
    at_west += ["west"] * 3
    shell.begin("mirror run --link west-east")
    arrive(shell.east, at_west)
    along = [words.replace("east-west", "west-east") for words in (drill, dry_run)]
    move(shell, *along)
    shell.run(f"{resume} --yes", ExitCode.DONE)
    append_records(shell.east, "east again", 2)
    at_west += ["east again"] * 2
    arrive(shell.west, at_west)

    dry_run, failover, standby = written("Unplanned")
    shell.east.kill9()
    shell.run(dry_run, ExitCode.DONE)
    shell.run(f"{failover} --yes", ExitCode.DONE)
    append_records(shell.west, "west alone", 5)
    at_west += ["west alone"] * 5
    shell.east.start()
    shell.run(f"{standby} --yes", ExitCode.DONE)

    listed, run_back, dry_run, failback, run_there = written("Failback")[:5]
    shell.run(listed, ExitCode.DONE)
    shell.begin(run_back)
    wait_until(lambda: is_allowed(shell, dry_run), DEADLINE_S, "nothing to speak against the failback")
    shell.run(f"{failback} --yes", ExitCode.DONE)
    assert values_at(shell.east) == at_west
    append_records(shell.east, "at home", 2)
    shell.begin(run_there)
    arrive(shell.west, [*at_west, "at home", "at home"])


def move(shell: Shell, drill: str, dry_run: str) -> None:
    wait_until(lambda: is_allowed(shell, drill), DEADLINE_S, "a drill without findings")
    shell.run(dry_run, ExitCode.DONE)
    shell.run(f"{dry_run.removesuffix(' --dry-run')} --yes", ExitCode.DONE)


def is_allowed(shell: Shell, line: str) -> bool:
    process = shell.start(line)
    process.communicate(timeout=DEADLINE_S)
    return process.returncode == ExitCode.DONE


def arrive(site: FarshoreBroker, values: list[str]) -> None:
    wait_until(lambda: values_at(site) == values, DEADLINE_S, f"{len(values)} records to be there")
