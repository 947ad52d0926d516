"""A link that was drained while another one of its operation took long: what was seen of it then may be old."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from failover.observing.sites import DrainStands
from failover.planning.intent import Intent
from failover.planning.plan import plan_switchover
from failover.running.link_run import LinkMove, LinkRun
from failover.running.steps import Operation, OperationStep
from mirror.offsets.source_ends import load_observation
from tests.failover.machines import Lease, operate, quick
from tests.failover.site_stage import FLIGHTS, ORDERS, both_mirrored, two_links
from tests.failover.stage import PARTITIONS, RECORDS, mirrored, two_sites
from tests.mirror.harness import running, some_records, write

SWITCHOVER = Intent(Operation.SWITCHOVER, (), "east", "west", is_site=True, freezes=False, drain_timeout_s=10.0)


async def test_what_came_to_a_link_behind_its_drain_is_not_said_to_have_come_after_the_fence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker died while the others were drained. It was fenced by the look of before, and verified; what producers
    had written for a minute by then was only at the source.
    """
    quick(monkeypatch)
    monkeypatch.setattr("failover.running.link_run.DRAINED_HOLDS_S", 0.2)
    async with two_links(tmp_path) as stage:
        async with both_mirrored(stage):
            pass
        await write(stage.source, ORDERS[0], some_records(9000, 5))
        drained = asyncio.Event()

        def tell(stands: DrainStands) -> None:
            if stands.link == stage.flights.name and stands.is_over:
                drained.set()

        sites = [replace(one, tell_drain=tell) for one in stage.sites]
        async with asyncio.TaskGroup() as tasks:
            async with running(stage.flights):
                moving = tasks.create_task(operate(SWITCHOVER, sites, "switchover-1"))
                await asyncio.wait_for(drained.wait(), 20.0)
            await write(stage.source, FLIGHTS[0], some_records(8000, 3))
            async with running(stage.orders):
                flights, orders = await moving
        assert orders.verified
        assert flights.failure is not None, flights.stranded
        assert flights.failure.is_given_up
        assert "3 offsets in 1 partitions were still not mirrored" in flights.failure.error
        assert [(await stage.state_of(link))[0] for link in stage.links] == ["running", "promoted"]


async def test_where_the_logs_ended_at_the_fence_is_asked_again_of_a_link_that_was_drained_before_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the look of its drain what had come before the fence would have come since, as a later look tells it."""
    quick(monkeypatch)
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            move = LinkMove(plan_switchover(await stage.sites.look()), stage.sites)
            run = LinkRun(move, "switchover-1", 20.0, move.plan.freezing, Lease().renew)
            await run.take(OperationStep.DRAIN)
        await write(stage.source, PARTITIONS[0], some_records(70_000, 2))
        monkeypatch.setattr("failover.running.link_run.QUIET_S", 0.0)
        await run.take(OperationStep.FENCE)
        ends = (await load_observation(stage.link, stage.target)).fence_ends["switchover-1"]
        assert [(ends[at].end, ends[at].is_told) for at in PARTITIONS] == [(RECORDS + 2, True), (RECORDS, True)]
