"""What farshore itself keeps at a target, and how many disks that has: a drill tells where it could have more."""

from __future__ import annotations

from pathlib import Path

from broker.client.cluster import Cluster
from broker.client.site import Site
from failover.drilling.own_topics import look_for_few_replicas, of_few_replicas
from failover.journal.log import claim
from failover.journal.topic import OPERATIONS_TOPIC
from mirror.link import PRODUCERS_TOPIC, Link
from mirror.offsets.state_writer import make_own_topics
from tests.broker.running_cluster import running_cluster, until


async def test_topics_of_a_bad_day_are_named_when_the_site_is_whole_again(tmp_path: Path) -> None:
    """The journal of a failover was kept on the one disk that was there that day, for good, and nobody said so."""
    async with running_cluster(tmp_path, 1) as brokers:
        site = Site("west", str(brokers.servers[1].address))
        link = Link("east-west", Site("east", "e:1"), site, ("flights",))
        async with Cluster(site) as target:
            await make_own_topics(target, link)
            await claim(target, ("east", "west"), lambda _: None)
            assert await look_for_few_replicas(link, target) == ()
        await brokers.start(2, 3)
        async with Cluster(site) as target:

            async def are_told() -> bool:
                found = await look_for_few_replicas(link, target)
                return {one.wanted for one in found} == {3}

            await until(are_told)
            found = await look_for_few_replicas(link, target)
    assert [one.topic for one in found] == sorted([link.state_topic, OPERATIONS_TOPIC, PRODUCERS_TOPIC])
    findings = list(of_few_replicas(found, "west"))
    assert {one.kind for one in findings} == {"few_replicas"}
    assert [one.subject for one in findings] == [one.topic for one in found]
    assert all("has 1 replica at west" in one.detail for one in findings)
    assert all("kafka-reassign-partitions.sh --bootstrap-server" in one.next_step for one in findings)


async def test_topics_of_a_whole_site_have_what_they_want(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, 1, 2, 3, 4) as brokers:
        site = Site("west", str(brokers.servers[1].address))
        link = Link("east-west", Site("east", "e:1"), site, ("flights",))
        async with Cluster(site) as target:
            await make_own_topics(target, link)
            await claim(target, ("east", "west"), lambda _: None)
            assert await look_for_few_replicas(link, target) == ()
