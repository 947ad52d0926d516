"""A watch over sites where nothing listens."""

from __future__ import annotations

import shutil
from pathlib import Path

from broker.base.clock import SystemClock
from broker.client.site import Site
from mirror.link import Link
from monitoring.metrics.observation import Board
from monitoring.metrics.watch import LinkWatch
from tests.broker.running import running_server
from tests.broker.wire_client import connect
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


async def test_partitions_that_nobody_leads_are_counted_at_both_sites(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as client:
        await client.create_topic("gates", partitions=3)
    shutil.rmtree(tmp_path / "gates-1")
    async with running_server(tmp_path) as server:
        east, west = (Site(name, server.address) for name in ("east", "west"))
        watch = LinkWatch(Link("east-west", east, west, ("none",)), Board(), SystemClock())
        try:
            assert (await watch.look()).partitions_offline == {"east": 1, "west": 1}
        finally:
            await watch.close()
