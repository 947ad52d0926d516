"""A source that is closed to its clients, and has records that its replicas have not got yet: nobody is shown them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.broker import Broker
from broker.client.topics import delete_topics
from broker.handlers import produce
from broker.topics.partition import Partition
from broker.wire.site_role import SiteStanding
from failover.errors import NotDrained
from failover.freezing.choice import Freezing
from failover.running.draining import drain
from mirror.api import load_partial_state
from tests.broker.handlers.test_replicated import context
from tests.broker.wire_client import batch_of, produce_request
from tests.failover.stage import PARTITIONS, RECORDS, TOPIC, mirrored, two_sites
from tests.mirror.harness import eventually

CLOSED = Freezing(SiteStanding(), freezes=True)


def replicate(partition: Partition, *node_ids: int) -> None:
    """From now on these are its replicas, and in sync; those beside the broker itself ask for nothing."""
    partition.take_state(replace(partition.state, replicas=node_ids, isr=node_ids), now_ms=0)


async def append(broker: Broker) -> None:
    await produce.handle(broker, produce_request(TOPIC, batch_of("late"), acks=1), context(11))


async def test_a_record_that_is_on_its_way_to_replicas_is_waited_for(tmp_path: Path) -> None:
    """It came before the freeze, and was acknowledged behind it: looked for in half a second it was not to be seen, and
    the link was fenced without it.
    """
    async with two_sites(tmp_path) as stage, mirrored(stage):
        broker = stage.brokers[0]
        partition = broker.require_partition(*PARTITIONS[0])
        own = partition.state.replicas[0]
        replicate(partition, own, own + 1, own + 2)
        await append(broker)
        with pytest.raises(NotDrained) as refused:
            await drain(stage.sites, 1.5, CLOSED)
        assert f"{TOPIC}:0 at east had records after 2 s that were not at all replicas in sync" in str(refused.value)
        replicate(partition, own)
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
