"""Two operators at once, one along the link and one along the link back: each journal stands at its own target."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.site_role import site_standing
from failover.errors import NotDrained, OperationUnderWay
from failover.freezing.hooks import Hooks
from failover.journal.standing import OperationState, standing_of
from failover.planning.intent import Intent
from failover.planning.links import plan_link
from failover.running.result import OperationResult
from failover.running.steps import Operation
from failover.running.taking_up import begin
from mirror.link import Link
from tests.failover.machines import HEIR, VICTIM, machine, quick
from tests.failover.running.test_taking_up import die_in, ready
from tests.failover.stage import PARTITIONS, RECORDS, Stage, mirrored, now_ms, two_sites
from tests.mirror.harness import running, some_records, wait_for_records, write

LATER_S = (0.0, 0.01, 0.05)


def back_of(link: Link) -> Link:
    return replace(link, name="west-east", source=link.target, target=link.source)


def intent_of(link: Link) -> Intent:
    return Intent(Operation.SWITCHOVER, (link.name,), link.source.name, link.target.name, drain_timeout_s=5.0)


async def move(who: str, link: Link, name: str, after_s: float = 0.0) -> tuple[OperationResult, ...]:
    async with machine(who, link) as sites:
        planned = await plan_link(intent_of(link), sites[0], Hooks())
        assert planned.plan.refusals == (), planned.plan.refusals
        await asyncio.sleep(after_s)
        return await begin([planned], intent_of(link), name, who, {})


@asynccontextmanager
async def both_ways(stage: Stage) -> AsyncIterator[None]:
    """Both links run, and have brought records."""
    async with running(back_of(stage.link)):
        for at in PARTITIONS:
            await write(stage.target, at, some_records(9_000, 5))
            await wait_for_records(stage.source, at, RECORDS + 5)
        yield


async def state_at(stage: Stage, name: str) -> str:
    async with machine(HEIR, back_of(stage.link)) as sites:
        found = await sites[0].readers.operations.read(sites[0].target)
        return standing_of(found[name], now_ms()).state.value


@pytest.mark.parametrize("later_s", LATER_S)
async def test_no_two_are_verified_and_no_site_is_left_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later_s: float
) -> None:
    """Both were told "verified", or one was cut short; both links were promoted, so that nothing was mirrored."""
    quick(monkeypatch)
    async with two_sites(tmp_path) as stage, mirrored(stage), both_ways(stage):
        found = await asyncio.gather(
            move(VICTIM, stage.link, "there"),
            move(HEIR, back_of(stage.link), "back", later_s),
            return_exceptions=True,
        )
        moved = [one for one in found if not isinstance(one, BaseException)]
        refused = [one for one in found if isinstance(one, BaseException)]
        assert len(moved) <= 1
        # On a busy machine the later one may give up behind its drain: before the fence, with nothing changed.
        assert all(isinstance(one, OperationUnderWay | NotDrained) for one in refused), refused
        standing = [await site_standing(site) for site in (stage.source, stage.target)]
        active = [one for one in standing if one is not None and one.takes_writes]
        assert len(active) == 2 - len(moved), standing
        if isinstance(found[1], BaseException):
            assert await state_at(stage, "back") == OperationState.GIVEN_UP


async def test_one_that_was_cut_short_is_ended_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    async with ready(tmp_path) as stage:
        await die_in(stage, monkeypatch, "move_groups")
        back = back_of(stage.link)
        async with both_ways(stage), machine(HEIR, back) as sites:
            planned = await plan_link(intent_of(back), sites[0], Hooks())
            with pytest.raises(OperationUnderWay, match=r"step move_groups.*nothing was changed"):
                await begin([planned], intent_of(back), "back", "an heir", {})
