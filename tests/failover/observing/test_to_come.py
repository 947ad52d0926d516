"""Topics that the source has and the target is still to get: empty ones, too, whose producers move with the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.client.topics import describe_topics
from failover.drilling.drill import AuditNote
from failover.drilling.looks import drill_link
from failover.errors import NotDrained
from failover.running.draining import drain
from mirror.heartbeat import HeartbeatWatch
from tests.failover.stage import TOPIC, mirrored, two_sites
from tests.mirror.harness import link_between, make_topic

BORN = "flights-born"


async def test_a_drain_waits_for_a_topic_without_records_that_the_target_has_not(tmp_path: Path) -> None:
    """The promoted link never makes it: its producers would fail at the target, or make it with other partitions."""
    async with two_sites(tmp_path) as stage:
        stage.link = link_between(
            stage.link.source.bootstrap_servers, stage.link.target.bootstrap_servers, [f"{TOPIC}.*"], groups=(".*",)
        )
        async with mirrored(stage):
            pass
        await make_topic(stage.source, BORN, 12)
        with pytest.raises(NotDrained, match=rf"{BORN}:0, .* and others of east were still not at west after 1 s"):
            await drain(stage.sites, 1)
        watch = HeartbeatWatch(stage.target.clock)
        drilled = await drill_link(stage.link, watch, AuditNote(), stage.sites.now_ms)
        assert set(drilled.partitions_not_mirrored) == {f"{BORN}-{number}" for number in range(12)}
        async with mirrored(stage):
            await drain(stage.sites, 30)
            assert len((await describe_topics(stage.target, [BORN]))[BORN].partitions) == 12
