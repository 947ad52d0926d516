"""Topics that were deleted at the site which took over: a failback is refused before it changes anything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.topics import delete_topics
from broker.wire.vocabulary import TopicPartition
from failover.failback.looking import look_back
from failover.failback.plan import FailbackPlan, FailbackRefusal, FailbackStep
from failover.journal.standing import OperationState, standing_of
from mirror.offsets.operations import promote_link
from tests.failover.failback.returning import go_back, is_run, log_of
from tests.failover.failback.stage import Lost, lost_and_back
from tests.failover.machines import HEIR, quick
from tests.failover.stage import TOPIC, mirrored, now_ms, two_sites
from tests.mirror.harness import eventually, make_topic, running, some_records, wait_for_records, write

MORE = "gates"
GONE = {FailbackRefusal.TOPICS_GONE, FailbackRefusal.NOTHING_TO_BRING}


async def look(lost: Lost) -> FailbackPlan:
    ends = (lost.stage.source, lost.stage.target)
    return await look_back(lost.there, (lost.there, lost.back), ends, "saved")


async def delete(cluster: Cluster, topic: str = TOPIC) -> None:
    assert await delete_topics(cluster, [topic]) == {}


async def test_what_is_gone_at_the_other_site_is_named_and_what_is_gone_at_both_is_not(tmp_path: Path) -> None:
    """Three steps were taken, and it ended with "nothing was ever mirrored along" the link back."""
    async with lost_and_back(tmp_path, 1, (0, 0), (0, 0)) as lost:
        before = await look(lost)
        assert (before.topics_gone, GONE & {*before.refusals}) == ((), set())
        await delete(lost.stage.target)
        plan = await look(lost)
        assert (plan.topics_gone, GONE & {*plan.refusals}) == ((TOPIC,), {FailbackRefusal.TOPICS_GONE})
        await delete(lost.stage.source)
        plan = await look(lost)
        assert (plan.topics_gone, GONE & {*plan.refusals}) == ((), {FailbackRefusal.NOTHING_TO_BRING})


async def test_behind_its_deletion_at_both_the_other_topics_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is the way on which the refusal names."""
    quick(monkeypatch)
    async with two_sites(tmp_path) as stage:
        there = replace(stage.link, topics=(TOPIC, MORE), shared_targets=True)
        back = replace(there, name="back", source=there.target, target=there.source)
        there = replace(there, reverse_links=(back,))
        stage.link, lost = there, Lost(stage, there, replace(back, reverse_links=(replace(there, reverse_links=()),)))
        await make_topic(stage.source, MORE)
        await write(stage.source, TopicPartition(MORE, 0), some_records(1, 5))
        async with mirrored(stage):
            await wait_for_records(stage.target, TopicPartition(MORE, 0), 5)
        await promote_link(there, stage.target, "failover-1")
        await delete(stage.target, MORE)
        async with running(lost.back):
            await eventually(lambda: is_run(lost), "the worker of the link back")
            assert (await look(lost)).topics_gone == (MORE,)
            await delete(stage.source, MORE)
            came_back = await go_back(HEIR, lost, tmp_path)
        assert came_back.steps_done[-1] is FailbackStep.RESUME
        assert standing_of(await log_of(lost), now_ms()).state is OperationState.VERIFIED
