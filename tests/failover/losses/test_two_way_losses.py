"""A topic that both sites write is lost at one of them: what the link back had brought there is not stated as lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.offsets import log_end_offsets
from broker.wire.vocabulary import TopicPartition
from failover.losses.stated_losses import counted, stated_losses
from failover.losses.statements import Certainty, PartitionLoss, total_loss
from failover.observing.sites import Sites
from failover.planning.gates import RefusalReason
from failover.planning.plan import plan_failover
from failover.running.link_run import LinkMove
from mirror.api import load_observation
from mirror.offsets.entries import NO_TOPIC_IDS
from mirror.offsets.topic_pauses import pause_topics
from mirror.worker.events import Event
from tests.failover.stage import PARTITIONS, RECORDS, TOPIC, Stage, two_sites
from tests.mirror.harness import Told, eventually, link_between, running, some_records, wait_for_records, write

AT = PARTITIONS[0]
CAME_BACK = 300
"""Records of the west that come to the east behind all that the link to the west has passed."""
LOST = 20


async def losses_of(sites: Sites) -> dict[TopicPartition, PartitionLoss]:
    losses = await stated_losses(sites, await sites.look_past_source())
    total = total_loss(losses)
    assert total.offsets == sum(loss.offsets or 0 for loss in losses)
    assert total.unclear_offsets == sum(loss.unclear_offsets for loss in losses)
    return {TopicPartition(loss.topic, loss.partition): loss for loss in losses}


async def until_seen(stage: Stage, returned: int = 0) -> None:
    """The ends of the east as they are, and how far the link back has come there: behind so many of the west's."""
    ends = await log_end_offsets(stage.source, PARTITIONS)

    async def is_kept() -> bool:
        found = await load_observation(stage.link, stage.target)
        is_seen = {at: found.ends[at].end for at in found.ends} == ends and found.returns.keys() == {*PARTITIONS}
        return is_seen and (found.returns[AT].read_from(ends[AT], NO_TOPIC_IDS) or 0) >= returned

    await eventually(is_kept, f"{ends} to be kept")


async def write_at_west(stage: Stage, start: int) -> None:
    """CAME_BACK records, and wait until the link back has brought them."""
    before = (await log_end_offsets(stage.source, [AT]))[AT]
    await write(stage.target, AT, some_records(start, CAME_BACK))

    async def came() -> bool:
        return (await log_end_offsets(stage.source, [AT]))[AT] >= before + CAME_BACK

    await eventually(came, "the link back to bring what was written")


@pytest.mark.parametrize("is_declared", [True, False])
async def test_what_a_link_back_brought_is_not_stated_as_lost(tmp_path: Path, is_declared: bool) -> None:
    """Also where each link was started from a file that does not know the other, and the registry is lost."""
    async with two_sites(tmp_path) as stage:
        there = stage.link
        back = link_between(stage.link.target.bootstrap_servers, stage.link.source.bootstrap_servers, [TOPIC])
        back = replace(back, name="west-east", source=there.target, target=there.source)
        if is_declared:
            stage.link = replace(there, reverse_links=(back,), shared_targets=True)
            back = replace(back, reverse_links=(there,), shared_targets=True)
        async with running(back) as told_back:
            await told_back.wait_for(Event.STARTED)
            async with running(stage.link) as told:
                for at in PARTITIONS:
                    await wait_for_records(stage.target, at, RECORDS)
                await write_at_west(stage, 10_000)
                await until_seen(stage, CAME_BACK)
                await pause_topics(stage.link, stage.target, "pause", [TOPIC])
                await until_held(told)
                await write_at_west(stage, 20_000)
                await write(stage.source, AT, some_records(30_000, LOST))
                await until_seen(stage)
        loss = (await losses_of(stage.without_source))[AT]
        assert loss.certainty is Certainty.AT_LEAST
        assert loss.offsets is not None
        assert 0 < loss.offsets <= LOST, loss
        assert loss.offsets + loss.unclear_offsets >= CAME_BACK + LOST
        assert loss.records is None
        counted = (await losses_of(stage.sites))[AT]
        assert (counted.certainty, counted.offsets, counted.records) == (Certainty.EXACT, LOST, LOST)
        assert counted.unclear_offsets == 0


async def until_held(told: Told) -> None:
    async def is_held() -> bool:
        held = {(fields["topic"], fields["partition"]) for fields in told.of(Event.PARTITION_HELD)}
        return held >= set(PARTITIONS)

    await eventually(is_held, "the pause to be seen")


async def test_what_was_never_at_the_target_is_lost_whatever_comes_back(tmp_path: Path) -> None:
    """A topic that the target never had: nothing of it can have come from there."""
    async with two_sites(tmp_path) as stage:
        back = link_between(stage.link.target.bootstrap_servers, stage.link.source.bootstrap_servers, [TOPIC])
        back = replace(back, source=stage.link.target, target=stage.link.source)
        stage.link = replace(stage.link, reverse_links=(back,), shared_targets=True)
        async with running(stage.link) as told:
            await told.wait_for(Event.STARTED)
            for at in PARTITIONS:
                await wait_for_records(stage.target, at, RECORDS)
            await pause_topics(stage.link, stage.target, "pause", [TOPIC])
            await until_held(told)
            await write(stage.source, AT, some_records(30_000, LOST))
            await until_seen(stage)
        loss = (await losses_of(stage.without_source))[AT]
        assert loss.offsets is not None
        assert 0 < loss.offsets + loss.unclear_offsets == LOST
        assert loss.unclear_offsets < LOST, "no more than the markers of its fences"


async def test_a_failovers_own_fence_is_not_taken_for_what_came_back(tmp_path: Path) -> None:
    """The result said "1 offset may be lost or hold what a link back had brought" of what its plan had as lost."""
    async with two_sites(tmp_path) as stage:
        back = link_between(stage.link.target.bootstrap_servers, stage.link.source.bootstrap_servers, [TOPIC])
        back = replace(back, source=stage.link.target, target=stage.link.source)
        stage.link = replace(stage.link, reverse_links=(back,), shared_targets=True)
        async with running(stage.link) as told:
            await told.wait_for(Event.STARTED)
            for at in PARTITIONS:
                await wait_for_records(stage.target, at, RECORDS)
            await pause_topics(stage.link, stage.target, "pause", [TOPIC])
            await until_held(told)
            await write(stage.source, AT, some_records(30_000, LOST))
            await until_seen(stage)
        sites = stage.without_source
        plan = plan_failover(await sites.look_past_source(), allow_data_loss=True, even_if_source_answers=False)
        result = await stage.run(plan, sites)
    assert (result.loss.offsets, result.loss.unclear_offsets) == (plan.loss.offsets, plan.loss.unclear_offsets)
    assert plan.loss.offsets


@pytest.mark.parametrize("is_shown", [True, False])
async def test_what_a_link_back_brings_while_a_loss_is_judged_makes_no_bound_of_it(
    tmp_path: Path, is_shown: bool
) -> None:
    """Of a topic that both sites write half of the failovers without a loss were refused for "at least 0" records."""
    async with two_sites(tmp_path) as stage:
        there = stage.link
        back = link_between(stage.link.target.bootstrap_servers, stage.link.source.bootstrap_servers, [TOPIC])
        back = replace(back, name="west-east", source=there.target, target=there.source, shared_targets=True)
        stage.link = replace(there, reverse_links=(back,), shared_targets=True)
        async with running(replace(back, reverse_links=(there,))) as told_back:
            await told_back.wait_for(Event.STARTED)
            async with running(stage.link):
                for at in PARTITIONS:
                    await wait_for_records(stage.target, at, RECORDS)
                await eventually(lambda: _has_all(stage), "all of the source to be mirrored")
            snapshot = await stage.sites.look()
            await write_at_west(stage, 10_000)
            plan = plan_failover(snapshot, allow_data_loss=False, even_if_source_answers=True)
            move = await counted(LinkMove(plan, stage.sites), always=is_shown)
            assert (move.plan.refusals, move.plan.loss.certainty) == ((), Certainty.EXACT)
            await write(stage.source, AT, some_records(30_000, 1))
            move = await counted(LinkMove(plan, stage.sites), always=is_shown)
            assert [one.reason for one in move.plan.refusals] == [RefusalReason.DATA_LOSS_NOT_ALLOWED]
            assert move.plan.loss.certainty is Certainty.AT_LEAST


async def _has_all(stage: Stage) -> bool:
    plan = plan_failover(await stage.sites.look(), allow_data_loss=False, even_if_source_answers=True)
    return plan.loss.offsets == 0
