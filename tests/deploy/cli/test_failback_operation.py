"""A failback as other operators see it, on machines of their own: one at a time, seen, taken up, aborted."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from deploy.cli.root import cli
from deploy.cli.terminal import ExitCode
from tests.deploy.cli.test_failback import (
    NEWER,
    STRANDED,
    check_is_back,
    command,
    look_at_west,
    lose_and_go_on,
    wait_for_worker,
    write_at_west,
)
from tests.deploy.cli.test_stranded import Operator
from tests.forking import ForkedProcess
from tests.interop.servers import FarshoreBroker, wait_until

REASON = "the disk is replaced"


@pytest.fixture
def operators(tmp_path: Path) -> Iterator[tuple[Operator, Operator]]:
    """The second one has a folder of its own, as on another machine."""
    (other := tmp_path / "another").mkdir()
    with FarshoreBroker(tmp_path / "east") as east, FarshoreBroker(tmp_path / "west") as west:
        ends = (east.bootstrap, west.bootstrap)
        yield Operator(tmp_path, *ends), Operator(other, *ends)


@contextmanager
def waiting(operators: tuple[Operator, Operator]) -> Iterator[tuple[str, ForkedProcess]]:
    """A failback that waits for the link back, whose worker has just died; killed at the end -> its id, its process."""
    operator, other = operators
    asyncio.run(lose_and_go_on(operator))
    with command(operator, "mirror", "run", "--link", "west-east"):
        wait_for_worker(operator)
    asyncio.run(write_at_west(operator, 2))
    words = ("failback", "--link", "east-west", "--yes", "--timeout", "5m", "--export-to", "saved", "--reason", REASON)
    with command(operator, *words) as process:
        wait_until(lambda: "carry" in [step["step"] for step in shown(other)], 120.0, "the failback to wait")
        yield listed(other)[0]["operation_id"], process


def listed(operator: Operator) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(operator.run("operation list --open -o json").stdout)["items"]
    return found


def shown(operator: Operator) -> list[dict[str, Any]]:
    return [step for one in listed(operator) for step in one["steps"]]


def words(text: str) -> str:
    return " ".join(text.split())


def test_another_operator_is_told_who_comes_back_and_another_machine_takes_it_up(
    operators: tuple[Operator, Operator],
) -> None:
    """Who gave it at the same moment was told nothing; and of one whose machine died nobody could know."""
    operator, other = operators
    with waiting(operators) as (operation_id, _):
        (one,) = listed(other)
        assert (one["operation"], one["state"], one["links"]) == ("failback", "under_way", ["east-west"])
        assert one["reason"] == REASON
        for line in (
            "failback --link east-west --yes",
            "switchover --link west-east --yes",
            "failover --link west-east --allow-data-loss --even-if-source-answers --yes",
            "failover --link east-west --allow-data-loss --even-if-source-answers --yes",
            "link resume --link east-west --stranded leave --yes",
            f"operation resume {operation_id} --yes",
            f"operation abort {operation_id} --yes",
        ):
            refused = words(other.run(line, ExitCode.REFUSED).stderr)
            assert f"{operation_id} moves east-west: " in refused, line
            assert "in its step carry" in refused, line
            assert f"`farshore operation wait {operation_id}` says how it ends" in refused, line
    at_west, expected = asyncio.run(look_at_west(operator.link))
    with command(other, "mirror", "run", "--link", "west-east"):
        wait_for_worker(operator)
        resumed = other.run(f"operation resume {operation_id} --yes -o json")
    result = json.loads(resumed.stdout)
    assert f"still carries {operation_id} on" in words(resumed.stderr)
    assert result["operation_id"] == operation_id
    assert result["steps_done"] == ["carry", "set_groups", "switch_over", "resume"]
    told = json.loads(operator.run(f"operation wait {operation_id} -o json").stdout)
    assert told["state"] == "verified"
    entries = told["entries"]
    folder = next(entry["detail"]["export_to"] for entry in entries if entry["detail"].get("step") == "export")
    assert Path(folder).is_absolute(), "whoever reads the journal stands in another folder"
    saved = json.loads((Path(folder) / "manifest.json").read_text())
    assert [one["records"] for one in saved["ranges"]] == [STRANDED], "whoever looks for the files is told where"
    inner = json.loads(operator.run(f"operation show {result['switchover']['operation_id']} -o json").stdout)
    assert inner["entries"][0]["detail"]["within"] == operation_id
    assert inner["reason"] == REASON, "whoever finds the switchover alone is told why, too"
    asyncio.run(check_is_back(operator, at_west, expected))
    assert len(at_west) >= NEWER
    ended = words(other.run(f"operation resume {operation_id} --yes", ExitCode.REFUSED).stderr)
    assert f"{operation_id} has ended: verified" in ended


def test_a_dry_run_beside_one_that_is_carried_on_has_the_plan_and_the_refusal(
    operators: tuple[Operator, Operator],
) -> None:
    """It showed the plan and exited 0, and the command itself was refused."""
    _, other = operators
    with waiting(operators) as (operation_id, _):
        other.run("failback --link east-west --yes", ExitCode.REFUSED)
        dry = other.run("failback --link east-west --dry-run -o json", ExitCode.REFUSED)
        told = words(other.run("failback --link east-west --dry-run", ExitCode.REFUSED).stderr)
    plan = json.loads(dry.stdout)
    assert "operation_under_way" in plan["refusals"]
    assert (plan["under_way"], plan["link_back"]) == (operation_id, "west-east")
    assert operation_id in told
    assert f"`farshore operation wait {operation_id}` says how it ends" in told


def test_given_again_on_another_machine_it_goes_on_with_the_one_that_was_cut_short(
    operators: tuple[Operator, Operator],
) -> None:
    operator, other = operators
    with waiting(operators) as (operation_id, _):
        pass
    at_west, expected = asyncio.run(look_at_west(operator.link))
    with command(other, "mirror", "run", "--link", "west-east"):
        wait_for_worker(operator)
        done = other.run("failback --link east-west --yes")
    assert f"goes on with {operation_id}, which was cut short" in words(done.stderr)
    assert listed(operator) == []
    asyncio.run(check_is_back(operator, at_west, expected))


def test_aborted_it_says_what_stays_and_another_one_brings_all_back(operators: tuple[Operator, Operator]) -> None:
    operator, other = operators
    with waiting(operators) as (operation_id, _):
        pass
    at_west, expected = asyncio.run(look_at_west(operator.link))
    for option in ("--dry-run", "--yes"):
        aborted = other.run(f"operation abort {operation_id} {option} -o json", ExitCode.FINDINGS)
        assert [(one["kind"], one["subject"], one["command"]) for one in json.loads(aborted.stdout)["items"]] == [
            ("tail_left", "east", "farshore stranded list --link east-west")
        ]
        assert f"still carries {operation_id} on" in words(aborted.stderr)
    assert listed(operator) == []
    with command(operator, "mirror", "run", "--link", "west-east"):
        wait_until(lambda: refusals(operator) == [], 60.0, "the worker to be heard again")
        operator.run("failback --link east-west --yes")
    asyncio.run(check_is_back(operator, at_west, expected))


def refusals(operator: Operator) -> list[str]:
    line = "failback --link east-west --dry-run -o json"
    done = CliRunner().invoke(cli, ["--config", str(operator.config), *line.split()])
    found: list[str] = json.loads(done.stdout)["refusals"]
    return found


def test_it_is_not_taken_up_along_another_link_back_than_it_began_with(operators: tuple[Operator, Operator]) -> None:
    """The heir was told to add a second link beside the one that runs, or to run one that the target then refuses."""
    operator, other = operators
    with waiting(operators) as (operation_id, _):
        pass
    declared = other.config.read_text()
    assert 'name = "west-east"' in declared
    other.config.write_text(declared.replace('name = "west-east"', 'name = "back"'))
    for line in (f"operation resume {operation_id} --dry-run", "failback --link east-west --yes"):
        refused = words(other.run(line, ExitCode.REFUSED).stderr)
        assert f"{operation_id} was begun with a file that has the link west-east, which this one has not" in refused
        assert "farshore mirror run" not in refused, line
    (one,) = listed(operator)
    assert one["state"] == "cut_short"
    assert '"taken_up"' not in operator.run(f"operation show {operation_id} -o json").stdout


def test_interrupted_it_says_how_it_stands_and_nobody_waits_for_its_machine(
    operators: tuple[Operator, Operator],
) -> None:
    operator, other = operators
    with waiting(operators) as (operation_id, process):
        process.send_signal(signal.SIGINT)
        assert process.wait(60.0) == ExitCode.INTERRUPTED
    said = words((operator.folder / "failback.log").read_text())
    assert f"interrupted: {operation_id} was cut short in its step carry" in said
    assert f"next: farshore operation resume {operation_id}" in said
    shown = json.loads(other.run(f"operation show {operation_id} -o json").stdout)
    assert (shown["state"], shown["entries"][-1]["event"]) == ("cut_short", "cut_short")


def test_a_step_that_fails_cuts_it_short_and_the_ways_on_are_said(operators: tuple[Operator, Operator]) -> None:
    operator, other = operators
    asyncio.run(lose_and_go_on(operator))
    with command(operator, "mirror", "run", "--link", "west-east"):
        wait_for_worker(operator)
    asyncio.run(write_at_west(operator, 2))
    refused = words(operator.run("failback --link east-west --yes --timeout 1s", ExitCode.REFUSED).stderr)
    (one,) = listed(other)
    operation_id = one["operation_id"]
    assert (one["state"], one["steps"][-1]["step"]) == ("cut_short", "carry")
    assert "link west-east brought nothing for 1 s" in refused
    assert f"`farshore operation resume {operation_id}`, goes on with it" in refused
    assert f"`farshore operation abort {operation_id}` gives it up" in refused
