"""A file that declares a link otherwise than its worker ran it, and a topic that is not the one mirrored to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.groups import commit_offsets
from broker.client.model import CommittedOffset
from broker.client.topics import delete_topics
from broker.wire.vocabulary import TopicPartition
from failover.losses.statements import Certainty
from failover.planning.gates import RefusalReason
from failover.planning.moves import MoveKind
from failover.planning.plan import OperationPlan, plan_failover, plan_switchover
from mirror.link import Link
from tests.failover.stage import GROUP, PARTITIONS, TOPIC, Stage, mirrored, two_sites
from tests.mirror.harness import eventually, make_topic, some_records, wait_for_records, write

ORDERS = TopicPartition("orders", 0)


def refused(plan: OperationPlan) -> list[tuple[RefusalReason, str]]:
    return [(one.reason, one.detail) for one in plan.refusals if one.subject == plan.snapshot.link]


async def failover_of(stage: Stage, *, is_dead: bool) -> OperationPlan:
    sites = stage.without_source if is_dead else stage.sites
    seen = await sites.look_past_source()
    return plan_failover(seen, allow_data_loss=True, even_if_source_answers=True)


async def leave_out_orders(stage: Stage) -> Link:
    """What the worker ran has two topics; it has died, and five records of one were written since. -> that link."""
    await make_topic(stage.source, ORDERS.topic)
    await write(stage.source, ORDERS, some_records(0, 30))
    here = stage.link
    stage.link = replace(here, topics=(TOPIC, ORDERS.topic))
    async with mirrored(stage):
        await wait_for_records(stage.target, ORDERS, 30)
    await write(stage.source, ORDERS, some_records(500, 5))
    ran, stage.link = stage.link, here
    return ran


async def test_a_file_that_leaves_out_a_mirrored_topic_moves_nothing(tmp_path: Path) -> None:
    """Nobody asked the source where that topic's log ends, and its records counted as complete."""
    async with two_sites(tmp_path) as stage:
        ran = await leave_out_orders(stage)
        wanted = [(RefusalReason.DECLARED_OTHERWISE, "topics: orders")]
        plans = [
            plan_switchover(await stage.sites.look()),
            await failover_of(stage, is_dead=False),
            await failover_of(stage, is_dead=True),
        ]
        assert [refused(plan) for plan in plans] == [wanted] * 3
        (loss,) = [loss for loss in plans[0].losses if loss.topic == ORDERS.topic]
        assert loss.certainty is Certainty.AT_LEAST, "nobody asked where it ends"
        stage.link = ran
        plan = plan_switchover(await stage.sites.look())
        assert refused(plan) == []
        (loss,) = [loss for loss in plan.losses if loss.topic == ORDERS.topic]
        assert loss.offsets == 5


async def test_a_file_with_more_topics_than_the_worker_had_is_no_other(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        stage.link = replace(stage.link, topics=(TOPIC, "to-come"))
        assert refused(plan_switchover(await stage.sites.look())) == []
        assert refused(await failover_of(stage, is_dead=True)) == []


async def test_a_worker_that_took_a_topic_off_has_left_it(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        await leave_out_orders(stage)
        async with mirrored(stage):
            await eventually(lambda: is_said(stage), "the worker to have said what it carries now")
        assert refused(plan_switchover(await stage.sites.look())) == []


async def is_said(stage: Stage) -> bool:
    return refused(plan_switchover(await stage.sites.look())) == []


@pytest.mark.parametrize("is_dead", [False, True])
async def test_a_file_that_calls_the_topics_otherwise_moves_nothing(tmp_path: Path, is_dead: bool) -> None:
    """The group's offsets in a topic of that name were taken for the mirror's last sync."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        other = f"east.{TOPIC}"
        await make_topic(stage.target, other, len(PARTITIONS))
        there = [TopicPartition(other, at.partition) for at in PARTITIONS]
        for at in there:
            await write(stage.target, at, some_records(90_000, 80))
        await commit_offsets(stage.target, GROUP, dict.fromkeys(there, CommittedOffset(60)))
        stage.link = replace(stage.link, topic_names="prefixed")
        assert refused(await failover_of(stage, is_dead=is_dead)) == [
            (RefusalReason.DECLARED_OTHERWISE, "topic_names: same")
        ]


async def test_what_stands_in_a_topic_that_was_made_anew_is_not_kept_as_the_last_sync(tmp_path: Path) -> None:
    """The state says that 50 records of each partition are there, of the topic that was deleted."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        assert await delete_topics(stage.target, [TOPIC]) == {}
        await make_topic(stage.target, TOPIC, len(PARTITIONS))
        for at in PARTITIONS:
            await write(stage.target, at, some_records(90_000, 80))
        await commit_offsets(stage.target, GROUP, dict.fromkeys(PARTITIONS, CommittedOffset(60)))
        plan = await failover_of(stage, is_dead=True)
        assert not any(view.trusted for view in plan.snapshot.partitions)
        assert {move.kind for move in plan.moves} == {MoveKind.UNKNOWN}
        assert (RefusalReason.GROUP_NOT_MOVABLE, GROUP) in [(one.reason, one.subject) for one in plan.refusals]
