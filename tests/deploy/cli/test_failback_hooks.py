"""What the operator's own programs say to a failback: one that refuses it, and one that fails behind it."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.groups import committed_offsets
from deploy.cli.found_lines import _FOUND
from deploy.cli.terminal import ExitCode
from failover.running.result import FINDINGS
from tests.deploy.cli.test_failback import (
    GROUPS,
    check_is_back,
    command,
    look_at_west,
    lose_and_go_on,
    wait_for_worker,
)
from tests.deploy.cli.test_failback_operation import words
from tests.deploy.cli.test_stranded import WHERE, Operator
from tests.interop.servers import FarshoreBroker

FAILBACK = "failback --link east-west --yes -o json"


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    with FarshoreBroker(tmp_path / "east") as east, FarshoreBroker(tmp_path / "west") as west:
        yield Operator(tmp_path, east.bootstrap, west.bootstrap)


def hooked(operator: Operator, name: str, code: int) -> Path:
    """The file that the hook writes down in how it was called, once for each time."""
    told, program = operator.folder / "told", operator.folder / f"hook-{code}"
    program.write_text(f'#!/bin/sh\necho "$FARSHORE_VERB $FARSHORE_LINK $FARSHORE_TARGET" >> {told}\nexit {code}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    text = operator.config.read_text().partition("[failover]")[0]
    operator.config.write_text(f'{text}\n[failover]\n{name} = ["{program}"]\n')
    return told


async def offsets_at_east(operator: Operator) -> dict[str, int]:
    async with Cluster(operator.link.source) as east:
        return {group: (await committed_offsets(east, group))[WHERE].offset for group in GROUPS}


def test_a_before_hook_that_says_no_has_a_failback_change_nothing(operator: Operator) -> None:
    """It was asked right before the switchover, behind all that a failback does to the old site, and a tail was left
    and groups were set back when it was said that nothing was changed.
    """
    asyncio.run(lose_and_go_on(operator))
    told = hooked(operator, "before_hook", 1)
    with command(operator, "mirror", "run", "--link", "west-east"):
        wait_for_worker(operator)
        old = asyncio.run(offsets_at_east(operator))["old"]
        refused = words(operator.run(FAILBACK, ExitCode.REFUSED).stderr)
        assert "the before_hook ended with exit code 1" in refused
        assert "nothing was changed" in refused
        assert "cut short" not in refused
        assert told.read_text() == "failback west-east east\n"
        assert asyncio.run(offsets_at_east(operator))["old"] == old
        (tail,) = json.loads(operator.run("stranded list --link east-west -o json").stdout)["tails"]
        assert not tail["left"]
        assert json.loads(operator.run("operation list --open -o json").stdout)["items"] == []
        at_west, expected = asyncio.run(look_at_west(operator.link))
        hooked(operator, "before_hook", 0)
        operator.run(FAILBACK)
        assert told.read_text().splitlines()[1:] == ["failback west-east east"], "and once is enough"
    asyncio.run(check_is_back(operator, at_west, expected))


def test_an_after_hook_that_fails_lets_the_link_run_all_the_same(operator: Operator) -> None:
    """Both links stayed promoted, so that nothing came to west any more, as a program failed that tells somebody; and
    nothing said so.
    """
    asyncio.run(lose_and_go_on(operator))
    told = hooked(operator, "after_hook", 7)
    with command(operator, "mirror", "run", "--link", "west-east"):
        wait_for_worker(operator)
        at_west, expected = asyncio.run(look_at_west(operator.link))
        done = operator.run(FAILBACK, ExitCode.FINDINGS)
    result = json.loads(done.stdout)
    assert told.read_text() == "switchover west-east east\n"
    assert "the after_hook ended with exit code 7" in words(done.stderr)
    assert "stays promoted" not in words(done.stderr)
    assert result["steps_done"][-1] == "resume"
    assert "do by hand what the after_hook was to do" in result["next"][0]["what"]
    shown = json.loads(operator.run(f"operation show {result['operation_id']} -o json").stdout)
    assert shown["state"] == "findings"
    asyncio.run(check_is_back(operator, at_west, expected))


def test_each_finding_of_a_result_has_words() -> None:
    assert set(FINDINGS) == set(_FOUND)
