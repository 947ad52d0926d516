"""A later move along a link that was moved before, whose link back has brought more than is read in ten seconds; on
simulated time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.limits import ClientLimits
from broker.client.offsets import log_end_offsets
from failover.errors import NotDrained
from failover.freezing.choice import UNFROZEN
from failover.freezing.hooks import Hooks
from failover.limits import COUNT_MS
from failover.losses.stranded import CountedNone, StrandedRange
from failover.observing.sites import Sites
from failover.planning.links import plan_link
from failover.running.draining import settle
from failover.running.link_run import LinkMove, LinkRun
from failover.running.steps import OperationStep
from tests.failover.far_sites import FarSites, at_far_sites
from tests.failover.running.test_planned_move import SWITCHOVER
from tests.failover.stage import PARTITIONS, RECORDS
from tests.mirror.harness import running, some_records, wait_for_records, write
from tests.mirror.simulation.loop import SimulatedClock

BATCHES, ANSWER_S = 60, 0.25
"""Of each partition, and how long east takes to answer: one batch after the other, as it is asked here."""
ONE_BY_ONE = ClientLimits(fetch_max_bytes=1, fetch_partition_max_bytes=1)
TIMEOUT_S = 60.0


async def _moved_with_long_way_back(sites: FarSites, act: Callable[[Sites], Awaitable[None]]) -> None:
    """East has from a link back BATCHES of each partition, in which the link was not since it was moved."""
    back = replace(sites.link, name="west-east", source=sites.link.target, target=sites.link.source)
    clock = SimulatedClock(sites.loop)
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(Cluster(sites.link.source, limits=ONE_BY_ONE))
        assert (await sites.fail_over(SWITCHOVER)).verified
        async with running(replace(back, shared_targets=True), clock=clock):
            for at in PARTITIONS:
                for number in range(BATCHES):
                    await write(sites.target, at, some_records(5_000 + number, 1))
                await wait_for_records(source, at, RECORDS + BATCHES)
        await act(Sites(sites.link, source, sites.target, (), clock.now_ms))


def _played(folder: Path, act: Callable[[FarSites, Sites], Awaitable[None]]) -> None:
    at_far_sites(folder, lambda sites: _moved_with_long_way_back(sites, partial(act, sites)))


def test_all_of_it_is_read_before_the_fence_and_none_of_it_again_behind_it(tmp_path: Path) -> None:
    """Each look read from where the link was mirrored to, in ten seconds: the move was refused after its --timeout, for
    "at least 0 records", or ended with exit code 4 for these.
    """

    async def act(world: FarSites, sites: Sites) -> None:
        move = await plan_link(SWITCHOVER, sites, Hooks())

        async def renew() -> None:
            pass

        link = LinkRun(LinkMove(move.plan, sites), "later", TIMEOUT_S, UNFROZEN, renew)
        world.slow_down(ANSWER_S)
        began_s = world.loop.time()
        for step in (OperationStep.DRAIN, OperationStep.FENCE):
            await link.take(step)
        assert world.loop.time() - began_s > len(PARTITIONS) * BATCHES * ANSWER_S > COUNT_MS / 1000
        await link.watch_source()
        assert (link.stranded, link.are_late_records_known, link.is_unwatched) == ((), True, False)
        assert sites.source is not None
        late = PARTITIONS[1]
        end = (await log_end_offsets(sites.source, [late]))[late]
        await write(sites.source, late, some_records(9_000, 2))
        await link.watch_source()
        assert link.stranded == (StrandedRange(*late, end, end + 2, 2),)

    _played(tmp_path, act)


def test_what_cannot_be_read_in_the_time_is_not_said_to_be_there_alone(tmp_path: Path) -> None:
    async def act(world: FarSites, sites: Sites) -> None:
        world.slow_down(ANSWER_S)
        began_s = world.loop.time()
        with pytest.raises(NotDrained) as refused:
            await settle(sites, 12.0, CountedNone())
        assert world.loop.time() - began_s < 12.0 + COUNT_MS / 1000 + 20 * ANSWER_S
        assert str(refused.value).startswith(
            "it is not known whether east alone has records of east-west (those of flights-0 ["
        )
        assert "a longer --timeout" in refused.value.hint

    _played(tmp_path, act)
