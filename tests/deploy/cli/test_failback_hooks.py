"""What the operator's own programs say to a failback: one that refuses it, and one that fails behind it."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from broker.base.documents import to_document
from broker.client.cluster import Cluster
from broker.client.groups import committed_offsets
from broker.client.site import Site
from deploy.cli.found_lines import _FOUND
from deploy.cli.terminal import ExitCode
from failover.errors import OtherFile
from failover.failback.operation import check_hooks_of
from failover.failback.plan import FailbackPlan, FailbackStep
from failover.failback.way_back import Hands, SwitchoverEnd, WayBack
from failover.freezing.hooks import Hooks
from failover.journal.log import OperationJournal
from failover.journal.values import Event, JournalEntry, OperationLog
from failover.running.result import FINDINGS, is_all_but_told
from mirror.link import Link
from tests.deploy.cli.test_failback import (
    GROUPS,
    check_is_back,
    command,
    look_at_west,
    lose_and_go_on,
    wait_for_worker,
)
from tests.deploy.cli.test_failback_operation import words
from tests.deploy.cli.test_next_steps import MOVED
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


@pytest.mark.parametrize(
    ("steps", "noted", "asks"),
    [
        ((FailbackStep.EXPORT, FailbackStep.SWITCH_OVER, FailbackStep.RESUME), (), True),
        ((FailbackStep.RESUME,), (), False),
        ((FailbackStep.SWITCH_OVER,), ((Event.STARTED, "before_hook"),), True),
        ((FailbackStep.SWITCH_OVER,), ((Event.STARTED, "before_hook"), (Event.DONE, "before_hook")), False),
        ((FailbackStep.SWITCH_OVER,), ((Event.STARTED, "switch_over"),), False),
    ],
)
def test_a_before_hook_is_asked_once_and_only_where_clients_are_to_move(
    steps: tuple[FailbackStep, ...], noted: tuple[tuple[Event, str], ...], *, asks: bool
) -> None:
    """It was asked anew by a failback that only lets the link run, behind whose findings the clients are home."""

    async def ask() -> None:
        raise AssertionError

    link = Link("east-west", Site("east", "east:1"), Site("west", "west:1"), ("flights",))
    plan = FailbackPlan(link.name, "west-east", "east", "west", steps, (), 0, "", ())
    ends = (Cluster(link.source), Cluster(link.target))
    entries = tuple(
        JournalEntry(at, 0, "failback-1", event, {"step": step}, "") for at, (event, step) in enumerate(noted)
    )
    way = WayBack(link, link, ends, plan, Hands(no_switchover, 1.0, before=ask))
    assert way.asks(OperationLog("failback-1", entries)) is asks


@pytest.mark.parametrize(
    ("noted", "begun", "refused"),
    [
        ({"after": ["tell"], "before": []}, (), True),
        ({"after": [], "before": ["may-we"]}, (), True),
        ({"after": [], "before": ["may-we"]}, ((Event.DONE, "before_hook"),), False),
        ({"after": ["tell"]}, ((Event.STARTED, "switch_over"),), False),
        (None, (), False),
    ],
)
def test_one_that_is_taken_up_by_a_file_without_its_hooks_is_refused_until_clients_move(
    noted: dict[str, list[str]] | None, begun: tuple[tuple[Event, str], ...], *, refused: bool
) -> None:
    """Nobody was asked, nor told, and it ended with 0."""
    first = JournalEntry(0, 0, "failback-1", Event.PLANNED, {"hooks": noted} if noted is not None else {}, "")
    rest = (JournalEntry(1 + at, 0, "failback-1", event, {"step": step}, "") for at, (event, step) in enumerate(begun))
    with pytest.raises(OtherFile) if refused else nullcontext():
        check_hooks_of(OperationLog("failback-1", (first, *rest)), Hooks())


async def no_switchover(_journal: OperationJournal) -> SwitchoverEnd:
    raise AssertionError


def test_a_link_runs_behind_a_failed_hook_only_where_the_clients_site_is_closed() -> None:
    """Of Apache Kafka without a freeze nothing keeps clients from where they were, whom nobody told to come."""
    failed = replace(MOVED, hook_error="the after_hook ended with exit code 7")
    closed = replace(failed, denied_principals=("User:shop",))
    read_on = replace(closed, is_unwatched=True)
    told = [is_all_but_told(to_document(one)) for one in (MOVED, failed, closed, read_on)]
    assert told == [False, False, True, False]


def test_each_finding_of_a_result_has_words() -> None:
    assert set(FINDINGS) == set(_FOUND)
