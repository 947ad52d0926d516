"""A site of three processes on a real ZooKeeper loses all power: nobody lived, whatever ZooKeeper still has of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from broker.client.cluster import Cluster
from broker.client.site import Site
from broker.client.site_role import set_site_role, site_standing, site_standings
from broker.wire.site_role import SiteRole, SiteStanding
from tests.interop.brokers import NODES, ClusterBroker, cluster_of_brokers
from tests.interop.servers import ZooKeeperServer


def kill_and_launch(brokers: Iterable[ClusterBroker], zookeeper: ZooKeeperServer | None = None) -> None:
    killed = list(brokers)
    for broker in killed:
        broker.kill9()
    if zookeeper is not None:
        zookeeper.kill9()
        zookeeper.start()
    for broker in killed:
        broker.launch()
    for broker in killed:
        broker.wait_ready()


def east(brokers: Mapping[int, ClusterBroker]) -> Cluster:
    return Cluster(Site("east", ",".join(broker.bootstrap for broker in brokers.values())))


async def test_a_site_that_lost_all_power_starts_frozen_and_one_that_lost_two_of_three_brokers_goes_on(
    tmp_path: Path,
) -> None:
    held = "site_start_frozen = true\n"
    with (
        ZooKeeperServer(tmp_path / "zookeeper") as zookeeper,
        cluster_of_brokers(tmp_path / "east", zookeeper.address, settings=held) as brokers,
    ):
        async with east(brokers) as site:
            thawed = await set_site_role(site, SiteRole.ACTIVE, "a test", await site_standing(site))
        kill_and_launch([brokers[2], brokers[3]])
        async with east(brokers) as site:
            assert await site_standings(site) == dict.fromkeys(NODES, thawed)
        kill_and_launch(brokers.values(), zookeeper)
        async with east(brokers) as site:
            told = await site_standings(site)
        assert told.keys() == set(NODES)
        (standing,) = set(told.values())
        assert isinstance(standing, SiteStanding)
        assert (standing.role, standing.epoch) == (SiteRole.FROZEN, thawed.epoch + 1)
