"""Whether a failover may lose nothing is judged by what reading the source finds, and not by offsets alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.topics import delete_topics
from broker.wire.vocabulary import TopicPartition
from failover.errors import GateRefused
from failover.freezing.hooks import Hooks
from failover.losses.stated_losses import counted, losses_by_now, stated_losses
from failover.losses.statements import Certainty, PartitionLoss
from failover.planning.gates import RefusalReason
from failover.planning.plan import plan_failover
from failover.running.link_run import LinkMove
from failover.running.taking_up import resume
from tests.failover.failback.stage import transaction
from tests.failover.machines import HEIR, machine, quick
from tests.failover.on_its_way import hold_drain
from tests.failover.running.test_taking_up import FAILOVER, ID, die_in, ready
from tests.failover.stage import PARTITIONS, TOPIC, Stage, mirrored, two_sites
from tests.mirror.harness import make_topic, some_records, wait_for_records, write

OTHER = TopicPartition("trips", 0)
UNCONSENTED = replace(FAILOVER, allow_data_loss=False)


async def planned(stage: Stage, *, answers: bool = True) -> LinkMove:
    """Of a failover that nobody let lose anything."""
    plan = plan_failover(await stage.sites.look(), allow_data_loss=False, even_if_source_answers=answers)
    return LinkMove(plan, stage.sites)


def reasons(move: LinkMove) -> list[RefusalReason]:
    return [one.reason for one in move.plan.refusals]


@pytest.mark.parametrize("is_shown", [True, False])
async def test_offsets_without_a_record_are_no_loss(tmp_path: Path, is_shown: bool) -> None:
    """A dry run said "0 records", exactly, and that the data loss was not allowed."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        async with transaction(stage.link.source.bootstrap_servers) as producer:
            await producer.send_and_wait(TOPIC, b"x", partition=0)
            await producer.abort_transaction()
        move = await planned(stage)
        assert reasons(move) == [RefusalReason.DATA_LOSS_NOT_ALLOWED], "by offsets alone"
        move = await counted(move, always=is_shown)
        assert (reasons(move), move.plan.loss.certainty, move.plan.loss.records) == ([], Certainty.EXACT, 0)
        await write(stage.source, PARTITIONS[0], some_records(5_000, 1))
        move = await counted(await planned(stage, answers=False), always=is_shown)
        assert reasons(move) == [RefusalReason.SOURCE_ANSWERS, RefusalReason.DATA_LOSS_NOT_ALLOWED]


@pytest.mark.parametrize("is_shown", [True, False])
async def test_a_topic_that_the_source_deleted_loses_nothing_with_it(tmp_path: Path, is_shown: bool) -> None:
    """The failover was refused for "at least 0" records of it, or ended with exit code 4 for them."""
    async with two_sites(tmp_path) as stage:
        stage.link = replace(stage.link, topics=(TOPIC, OTHER.topic))
        await make_topic(stage.source, OTHER.topic)
        await write(stage.source, OTHER, some_records(1, 5))
        async with mirrored(stage):
            await wait_for_records(stage.target, OTHER, 5)
        assert await delete_topics(stage.source, [OTHER.topic]) == {}
        move = await counted(await planned(stage), always=is_shown)
        assert (reasons(move), move.plan.loss.certainty, move.plan.loss.offsets) == ([], Certainty.EXACT, 0)
        snapshot = await stage.sites.look()
        assert all(loss.is_none for loss in await stated_losses(stage.sites, snapshot))
        await make_topic(stage.source, OTHER.topic)
        await write(stage.source, OTHER, some_records(9, 2))
        (found,) = [loss for loss in await stated_losses(stage.sites, snapshot) if loss.topic == OTHER.topic]
        assert _span(found) == (Certainty.EXACT, 2, 0, 2), "made anew since it was looked at"


async def test_of_a_topic_that_was_made_anew_behind_the_look_all_is_lost(tmp_path: Path) -> None:
    """Its end was held against how far the former one was mirrored: 3 were said to be lost, exactly, of 8."""
    async with two_sites(tmp_path) as stage:
        stage.link = replace(stage.link, topics=(TOPIC, OTHER.topic))
        await make_topic(stage.source, OTHER.topic)
        await write(stage.source, OTHER, some_records(1, 5))
        async with mirrored(stage):
            await wait_for_records(stage.target, OTHER, 5)
        snapshot = await stage.sites.look()
        assert await delete_topics(stage.source, [OTHER.topic]) == {}
        await make_topic(stage.source, OTHER.topic)
        await write(stage.source, OTHER, some_records(70_000, 8))
        found = {loss.topic: loss for loss in await losses_by_now(stage.sites, snapshot)}
        assert _span(found[OTHER.topic]) == (Certainty.EXACT, 8, 0, 8)
        assert found[TOPIC].is_none


def _span(loss: PartitionLoss) -> tuple[object, ...]:
    return loss.certainty, loss.records, loss.first_offset, loss.end_offset


async def test_one_that_is_taken_up_is_judged_by_what_came_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It went on, and its end said that what nobody had let it lose was lost."""
    quick(monkeypatch)
    async with ready(tmp_path) as stage:
        await die_in(stage, monkeypatch, "fence", UNCONSENTED)
        await hold_drain(stage)
        async with machine(HEIR, stage.link) as sites:
            with pytest.raises(GateRefused, match=r"data_loss_not_allowed \(east\)"):
                await resume(await stage.log(ID), sites, Hooks(), "an heir")
