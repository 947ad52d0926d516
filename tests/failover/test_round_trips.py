"""What a move costs over a distance: a command that looks again reads on from where it stood, and asks side by side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from broker.client.cluster import Cluster
from broker.client.site import Site
from failover.sites import Sites
from failover.snapshot import Snapshot
from tests.failover.stage import mirrored, now_ms, two_sites
from tests.failover.test_contact import Far, served

LOOK_MAX = 9
"""Round trips of a look that is not the first: at 100 ms each it takes less than a second."""


def untimed(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, taken_at_ms=0)


async def test_a_look_that_is_not_the_first_takes_few_round_trips_and_sees_the_same(tmp_path: Path) -> None:
    """It read the link's state twice from its beginning, one request after the other: 17."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        bootstrap = stage.link.target.bootstrap_servers
        far = Far(bootstrap)
        async with served(far) as address, Cluster(Site("west", address, {bootstrap: address})) as target:
            sites = Sites(stage.link, stage.source, target, (), now_ms)
            first = await sites.look()
            far.round_trips = 0
            second = await sites.look()
            of_second = far.round_trips
        fresh = await Sites(stage.link, stage.source, stage.target, (), now_ms).look()
    assert of_second <= LOOK_MAX
    assert untimed(first) == untimed(second) == untimed(fresh)
    assert len(second.groups) == 1
