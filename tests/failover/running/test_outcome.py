"""What a result says of its source is what the look behind the fence found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.client.cluster import Cluster
from broker.client.site import Site
from failover.observing.contact import BrokerAnswer, SiteFinding
from failover.observing.sites import Sites
from failover.observing.snapshot import Snapshot
from failover.planning.plan import plan_failover, plan_switchover
from failover.running.link_run import LinkMove, LinkRun
from failover.running.outcome import SourceEnd, result_of
from mirror.link import Link
from tests.failover.stage import now_ms

LINK = Link("east-west", Site("east", "127.0.0.1:1"), Site("west", "127.0.0.1:2"), ("flights",))
ALIVE = Snapshot(LINK.name, "east", "west", 0, SiteFinding.ALIVE, "running", "", (), ())


@pytest.mark.parametrize(
    ("found", "seen_by", "is_open"),
    [
        (SiteFinding.ALIVE, (), True),
        (SiteFinding.PARTLY_THERE, (), True),
        (SiteFinding.UNREACHABLE, (LINK.name,), True),
        (SiteFinding.DEAD, (), False),
    ],
)
async def test_a_source_that_answered_the_plan_is_told_as_it_was_at_the_fence(
    found: SiteFinding, seen_by: tuple[str, ...], *, is_open: bool
) -> None:
    """One that died was said to be open, and of one that a worker alone saw the result did not say who."""

    async def renew() -> None: ...

    plan = plan_failover(ALIVE, allow_data_loss=True, even_if_source_answers=True)
    sites = Sites(LINK, Cluster(LINK.source), Cluster(LINK.target), (), now_ms)
    run = LinkRun(LinkMove(plan, sites), "failover-1", 1.0, plan.freezing, renew)
    run.snapshot = replace(ALIVE, source_finding=found, seen_by=seen_by)
    result = result_of("failover-1", run, 1.0, SourceEnd(None, (), "", "", (), ()))
    assert (result.source_finding, result.seen_by, result.is_source_open) == (found, seen_by, is_open)


@pytest.mark.parametrize("found", SiteFinding)
async def test_behind_the_fence_nothing_is_asked_of_a_source_that_is_gone_by_then(found: SiteFinding) -> None:
    """One that only workers saw was waited for in vain, and another cluster asked in its place."""

    async def renew() -> None: ...

    sites = Sites(LINK, Cluster(LINK.source), Cluster(LINK.target), (), now_ms)
    lossy = plan_failover(ALIVE, allow_data_loss=True, even_if_source_answers=True)
    for plan in (lossy, plan_switchover(ALIVE)):
        run = LinkRun(LinkMove(plan, sites), "move-1", 1.0, plan.freezing, renew)
        run.snapshot = replace(ALIVE, source_finding=found)
        assert run.watches_source == (found in (SiteFinding.ALIVE, SiteFinding.PARTLY_THERE))
        assert run.is_unwatched == (plan is not lossy and not run.watches_source)


@pytest.mark.parametrize(("found", "addresses"), [(SiteFinding.DEAD, ("east:1",)), (SiteFinding.PARTLY_THERE, ())])
async def test_a_dead_source_whose_addresses_take_connections_is_a_finding(
    found: SiteFinding, addresses: tuple[str, ...]
) -> None:
    """A proxy with nobody behind it, or a broker that has too many: then it takes writes."""

    async def renew() -> None: ...

    plan = plan_failover(ALIVE, allow_data_loss=True, even_if_source_answers=True)
    run = LinkRun(LinkMove(plan, Sites(LINK, None, Cluster(LINK.target), (), now_ms)), "o", 1.0, plan.freezing, renew)
    evidence = (BrokerAnswer("east:1", 0, 4.5, "closed", taken=True), BrokerAnswer("east:2", 0, 4.5, "refused"))
    run.snapshot = replace(ALIVE, source_finding=found, evidence=evidence)
    result = result_of("o", run, 1.0, SourceEnd(None, (), "", "", (), ()))
    assert (result.closing_addresses, result.is_source_open) == (addresses, False)
    assert result.has_findings == bool(addresses)
