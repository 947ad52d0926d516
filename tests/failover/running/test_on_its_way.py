"""A source that has records which its replicas have not got yet: nobody is shown them."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.client.topics import delete_topics
from broker.wire.site_role import SiteStanding
from failover.errors import NotDrained
from failover.freezing.choice import UNFROZEN, Freezing
from failover.running.draining import drain
from mirror.api import load_partial_state
from tests.failover.on_its_way import hold_drain, replicate
from tests.failover.stage import PARTITIONS, RECORDS, TOPIC, mirrored, two_sites
from tests.mirror.harness import eventually

CLOSED = Freezing(SiteStanding(), freezes=True)


@pytest.mark.parametrize("freezing", [CLOSED, UNFROZEN])
async def test_a_record_that_is_on_its_way_to_replicas_is_waited_for(tmp_path: Path, freezing: Freezing) -> None:
    """It came before the freeze, and was acknowledged behind it: it was not to be seen, however quiet the source was,
    and the link was fenced without it.
    """
    async with two_sites(tmp_path) as stage, mirrored(stage):
        await hold_drain(stage)
        with pytest.raises(NotDrained) as refused:
            await drain(stage.sites, 1.5, freezing)
        assert f"{TOPIC}:0 at east had records after 2 s that not all replicas in sync have" in str(refused.value)
        assert (
            "min.insync.replicas=N`, with as many as are left, and one more record there, have all"
            in refused.value.hint
        )
        replicate(stage.brokers[0].require_partition(*PARTITIONS[0]))
        seen = await drain(stage.sites, 20.0, freezing)
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
        assert {
            view.source_end for view in (await drain(stage.sites, 10.0, CLOSED, await stage.sites.look())).partitions
        } == {RECORDS}
