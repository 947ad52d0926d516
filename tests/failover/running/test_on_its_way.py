"""A source that is closed to its clients, and has records that its replicas have not got yet: nobody is shown them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.topics import delete_topics
from broker.wire.site_role import SiteStanding
from broker.wire.vocabulary import TopicPartition
from failover.errors import NotDrained
from failover.freezing.choice import Freezing
from failover.running.draining import drain
from mirror.api import load_partial_state
from tests.broker.cluster.test_three_replicas import NODES
from tests.failover.freezing.test_silent_roles import three_brokers
from tests.failover.on_its_way import hold_drain, replicate
from tests.failover.stage import PARTITIONS, RECORDS, TOPIC, mirrored, two_sites
from tests.mirror.harness import eventually, make_topic, some_records, write

CLOSED = Freezing(SiteStanding(), freezes=True)


async def test_a_record_that_is_on_its_way_to_replicas_is_waited_for(tmp_path: Path) -> None:
    """It came before the freeze, and was acknowledged behind it: looked for in half a second it was not to be seen, and
    the link was fenced without it.
    """
    async with two_sites(tmp_path) as stage, mirrored(stage):
        await hold_drain(stage)
        with pytest.raises(NotDrained) as refused:
            await drain(stage.sites, 1.5, CLOSED)
        assert f"{TOPIC}:0 at east had records after 2 s that were not at all replicas in sync" in str(refused.value)
        replicate(stage.brokers[0].require_partition(*PARTITIONS[0]))
        seen = await drain(stage.sites, 20.0, CLOSED)
        ends = {(view.topic, view.partition): view.source_end for view in seen.partitions}
        assert ends[PARTITIONS[0]] == RECORDS + 1


async def test_a_topic_that_is_gone_has_nothing_on_its_way(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        await delete_topics(stage.source, [TOPIC])

        async def is_mirrored() -> bool:
            return bool((await load_partial_state(stage.link, stage.target)).entries.checkpoints)

        await eventually(is_mirrored, "what was mirrored to be known")
        assert {view.source_end for view in (await drain(stage.sites, 10.0, CLOSED)).partitions} == {RECORDS}


async def test_a_topic_that_was_just_made_and_most_brokers_do_not_know_of_is_waited_for(tmp_path: Path) -> None:
    """Brokers are told of a topic one after the other, and its leader takes records as soon as it is told itself."""
    async with three_brokers(tmp_path) as there:
        stage, east = there.stage, there.east
        stage = replace(stage, link=replace(stage.link, topics=(TOPIC, "born")))
        await make_topic(stage.source, "born", 1)
        born = TopicPartition("born", 0)
        await write(stage.source, born, some_records(0, 1))
        leader = await east.led("born")
        views = {node: east.broker(node).view for node in NODES if node != leader}
        kept = {node: view.topics.pop("born") for node, view in views.items()}
        untold = replace(stage.link.source, bootstrap_servers=east.servers[min(views)].address)
        async with Cluster(untold, client_id="farshore-test") as source:
            sites = replace(stage.sites, source=source)
            with pytest.raises(NotDrained, match="born:0"):
                await drain(sites, 1.0, CLOSED)
            for node, view in views.items():
                view.topics["born"] = kept[node]
            async with mirrored(stage):
                seen = await drain(sites, 20.0, CLOSED)
        assert {view.topic: view.source_end for view in seen.partitions}["born"] == 1
