"""A watch over sites where nothing listens."""

from __future__ import annotations

from broker.base.clock import SystemClock
from broker.client.site import Site
from mirror.link import Link
from monitoring.metrics.observation import Board
from monitoring.metrics.watch import LinkWatch
from tests.ports import free_port


async def test_sites_that_are_away_are_said_and_end_nothing() -> None:
    east, west = (Site(name, f"127.0.0.1:{free_port()}") for name in ("east", "west"))
    watch = LinkWatch(Link("east-west", east, west, ("flights",)), Board(), SystemClock())
    try:
        for _ in range(2):
            seen = await watch.look()
            assert (seen.answered, seen.up, seen.error, seen.lags) == (False, False, "ClusterUnreachable", ())
    finally:
        await watch.close()
