"""A topic that is paused along the link when its source is lost: no step of a failback lets it be mirrored again."""

from __future__ import annotations

from pathlib import Path

from failover.failback.looking import look_back
from mirror.offsets.topic_pauses import pause_topics
from tests.failover.failback.stage import lost_and_back
from tests.failover.stage import TOPIC


async def test_a_topic_that_is_paused_along_the_link_is_in_the_plan(tmp_path: Path) -> None:
    async with lost_and_back(tmp_path, 1, (0, 0), (0, 0)) as lost:
        ends = (lost.stage.source, lost.stage.target)
        await pause_topics(lost.there, lost.stage.target, "topic-pause-1", [TOPIC])
        plan = await look_back(lost.there, (lost.there, lost.back), ends, "saved")
        assert (plan.stays_paused, plan.paused_topics) == ((TOPIC,), ())
