"""What is said of a source that is gone, held against its log: seen beside the records, whatever became of these."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from broker.client.configs import alter_topic_configs
from broker.wire.vocabulary import ConfigOperation, TopicPartition
from failover.losses.stated_losses import stated_losses
from failover.losses.statements import Certainty, PartitionLoss
from failover.observing.sites import Sites
from failover.planning.plan import plan_failover
from mirror.api import load_observation
from mirror.offsets.entries import GapKind
from mirror.offsets.state import read_entries
from tests.failover.stage import PARTITIONS, RECORDS, TOPIC, Stage, mirrored, two_sites
from tests.mirror.harness import DRIFT_STAYS, eventually, make_topic, running, some_records, write

STRANDED = 3_000
TOO_LONG = "flights" + "-" * 239
"""With the source's name before it, it is too long for a topic: it stays where it is."""


async def until_seen(stage: Stage, ends: dict[TopicPartition, int]) -> None:
    async def seen() -> bool:
        found = (await load_observation(stage.link, stage.target)).ends
        return all(where in found and found[where].end == end for where, end in ends.items())

    await eventually(seen, f"{ends} to be seen")


async def losses_of(sites: Sites) -> dict[TopicPartition, PartitionLoss]:
    """As a failover states them."""
    losses = await stated_losses(sites, await sites.look_past_source())
    return {TopicPartition(loss.topic, loss.partition): loss for loss in losses}


async def test_a_partition_that_stands_still_is_stated_by_what_was_seen_of_its_end(tmp_path: Path) -> None:
    """The old bound was where the log ended when its last record was fetched."""
    async with two_sites(tmp_path) as stage:
        stopped, moving = PARTITIONS
        async with mirrored(stage, DRIFT_STAYS):
            limit = ("max.message.bytes", ConfigOperation.SET, "5000")
            assert not await alter_topic_configs(stage.target, {TOPIC: [limit]})
            await write(stage.source, stopped, [some_records(5_000, 1)[0]._replace(value=b"x" * 9_000)])

            async def stands() -> bool:
                gaps = (await read_entries(stage.link, stage.target)).open_gaps()
                return gaps.keys() == {stopped} and gaps[stopped].kind is GapKind.REFUSED_BATCH

            await eventually(stands, "the large record to be refused")
            await write(stage.source, stopped, some_records(6_000, STRANDED))
            await until_seen(stage, {stopped: RECORDS + 1 + STRANDED, moving: RECORDS})
        plan = plan_failover(
            await stage.without_source.look_past_source(), allow_data_loss=True, even_if_source_answers=False
        )
        losses = {TopicPartition(loss.topic, loss.partition): loss for loss in plan.losses}
        assert (losses[stopped].certainty, losses[stopped].offsets) == (Certainty.AT_LEAST, 1 + STRANDED)
        assert losses[moving].offsets == 0
        assert plan.loss.offsets == 1 + STRANDED
        assert plan.loss.likely_offsets is not None
        assert plan.loss.likely_offsets >= 1 + STRANDED
        last = plan.snapshot.last_look
        assert last is not None
        assert plan.loss.seen_at_ms == last.at_ms == losses[stopped].seen_at_ms
        true = await losses_of(stage.sites)
        assert (true[stopped].certainty, true[stopped].records) == (Certainty.EXACT, 1 + STRANDED)


async def test_what_was_born_late_and_never_mirrored_is_not_missing(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        stage.link = replace(stage.link, topics=("flights.*",), topic_names="prefixed")
        born = [TopicPartition(TOO_LONG, number) for number in (0, 1)]
        async with running(stage.link):
            await until_seen(stage, dict.fromkeys(PARTITIONS, RECORDS))
            await make_topic(stage.source, TOO_LONG, 2)
            await write(stage.source, born[1], some_records(0, 7))
            await until_seen(stage, {born[0]: 0, born[1]: 7})
        losses = await losses_of(stage.without_source)
        assert [losses[where].offsets for where in born] == [0, 7]
        assert losses.keys() == {*PARTITIONS, *born}
        assert {where.topic for where in losses} == {TOPIC, TOO_LONG}
