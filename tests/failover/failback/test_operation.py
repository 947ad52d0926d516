"""A failback whose machine dies, in any step or at any request, and that another machine takes up, ends the same."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from failover.errors import OtherFile
from failover.failback.plan import FailbackStep
from failover.failback.way_back import TO_SET
from failover.journal.log import load_operations
from failover.journal.standing import standing_of
from failover.journal.values import Event
from tests.failover.failback.returning import (
    ID,
    at_death,
    die_in_step,
    expected,
    go_back,
    group_at_east,
    log_of,
    ready,
    stands,
)
from tests.failover.failback.stage import Lost
from tests.failover.machines import HEIR, Death, mortal
from tests.failover.stage import GROUP, now_ms

STEPS = ("export", "leave", "carry", "set_groups", "switch_over", "resume")
SEEDS = range(4)
REQUESTS = 700
"""That a machine sends in the course of a whole failback, about."""


async def take_up(lost: Lost, folder: Path) -> None:
    """On a machine with a folder of its own."""
    log = (await load_operations(lost.stage.target)).get(ID)
    if log is None or not log.is_ended:
        await go_back(HEIR, lost, folder / "another machine")


async def test_one_that_is_not_interrupted_ends_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ready(tmp_path, monkeypatch) as lost:
        wanted = await expected(lost)
        with mortal(monkeypatch, Death()) as death:
            await at_death(lost, tmp_path)
        assert await stands(lost) == wanted
        log = await log_of(lost)
        assert [entry.detail["step"] for entry in log.entries if entry.event == Event.DONE] == list(STEPS)
        assert 0.6 * REQUESTS < death.requests < 1.6 * REQUESTS, death.requests


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("when", [Event.STARTED, Event.DONE])
async def test_killed_in_each_step_and_taken_up_elsewhere_it_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, when: Event
) -> None:
    async with ready(tmp_path, monkeypatch) as lost:
        wanted = await expected(lost)
        await die_in_step(lost, tmp_path, monkeypatch, step, when)
        log = await log_of(lost)
        assert (standing_of(log, now_ms() + 60_000).step, log.is_ended) == (step, False)
        await take_up(lost, tmp_path)
        assert await stands(lost) == wanted
        events = [entry.event for entry in (await log_of(lost)).entries]
        assert (events.count(Event.TAKEN_UP), events[-1]) == (1, Event.FINISHED)


async def test_which_groups_were_set_back_is_told_at_its_end_however_often_it_is_taken_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who took it up told of none: behind the step nothing but the journal knows."""
    async with ready(tmp_path, monkeypatch) as lost:
        for _ in range(2):
            await die_in_step(lost, tmp_path, monkeypatch, "switch_over")
        came_back = await go_back(HEIR, lost, tmp_path / "another machine")
        (one,) = came_back.groups_set_back
        assert (one.group, one.partition) == (GROUP, 0)
        assert one.from_offset >= 53, "a pass of the link back may have carried it on, behind the tail"
        assert one.to_offset < one.from_offset


async def test_a_group_that_was_set_back_is_told_where_the_machine_died_before_it_could_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that took it up found it where it was to be, and told of none."""
    async with ready(tmp_path, monkeypatch) as lost:
        await die_in_step(lost, tmp_path, monkeypatch, "set_groups", Event.DONE)
        log = await log_of(lost)
        assert "set_groups" not in [entry.detail["step"] for entry in log.entries if entry.event == Event.DONE]
        came_back = await go_back(HEIR, lost, tmp_path / "another machine")
        (one,) = came_back.groups_set_back
        assert (one.group, one.partition) == (GROUP, 0)
        assert one.from_offset >= 53 > one.to_offset


async def test_one_that_was_about_to_be_set_back_and_was_not_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ready(tmp_path, monkeypatch) as lost:
        await die_in_step(lost, tmp_path, monkeypatch, "set_groups", saying=TO_SET)
        (noted,) = [entry.detail[TO_SET] for entry in (await log_of(lost)).entries if TO_SET in entry.detail]
        (to_set,) = noted
        assert await group_at_east(lost) >= to_set["from_offset"]
        came_back = await go_back(HEIR, lost, tmp_path / "another machine")
        (one,) = came_back.groups_set_back
        assert (one.group, one.partition, one.to_offset) == (GROUP, 0, to_set["to_offset"])


@pytest.mark.parametrize("seed", SEEDS)
async def test_killed_at_any_request_and_taken_up_elsewhere_it_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    await die_and_take_up(tmp_path, monkeypatch, random.Random(seed), len(SEEDS), seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
async def test_killed_at_any_request_many_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    await die_and_take_up(tmp_path, monkeypatch, random.Random(seed), 60, seed - 100)


async def die_and_take_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch, rng: random.Random, shares: int, share: int
) -> None:
    """The end comes somewhere in this share of what a failback asks for."""
    async with ready(folder, monkeypatch) as lost:
        wanted = await expected(lost)
        at = 1 + round(REQUESTS * (share + rng.random()) / shares)
        with mortal(monkeypatch, Death(at, answered=rng.random() < 0.5)):
            await at_death(lost, folder)
        await take_up(lost, folder)
        assert await stands(lost) == wanted


async def test_it_is_not_taken_up_with_a_file_that_selects_other_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ready(tmp_path, monkeypatch) as lost:
        await die_in_step(lost, tmp_path, monkeypatch, "carry")
        lost.back = replace(lost.back, groups=("others",))
        with pytest.raises(OtherFile, match="groups"):
            await take_up(lost, tmp_path)
        assert [entry.event for entry in (await log_of(lost)).entries].count(Event.TAKEN_UP) == 0


def test_the_steps_are_all_but_that_of_a_link_back_that_stands() -> None:
    assert {*STEPS, FailbackStep.RESUME_BACK} == {*FailbackStep}
