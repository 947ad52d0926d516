"""A deleted state is told from a link that has mirrored nothing so far; another one that began anew is one, too."""

from __future__ import annotations

from pathlib import Path

from broker.client.topics import delete_topics
from broker.wire.vocabulary import TopicPartition
from failover.losses.statements import Certainty, state_loss
from failover.observing.snapshot import Snapshot
from failover.planning.gates import RefusalReason
from failover.planning.plan import plan_failover
from mirror.link import Link
from mirror.offsets.entries import GapKind
from mirror.offsets.state import read_entries
from tests.failover.stage import GROUP, PARTITIONS, RECORDS, Stage, mirrored, two_sites
from tests.mirror.harness import eventually, make_topic, running, some_records, wait_for_records, write


def reasons(seen: Snapshot) -> list[RefusalReason]:
    return [one.reason for one in plan_failover(seen, allow_data_loss=False, even_if_source_answers=True).refusals]


async def stands_still(stage: Stage) -> bool:
    entries = await read_entries(stage.link, stage.target)
    return {gap.kind for gap in entries.open_gaps().values()} == {GapKind.TARGET_NOT_EMPTY}


async def test_a_state_that_a_worker_has_begun_anew_is_a_lost_map_as_one_that_is_gone(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        assert not (await stage.without_source.look_past_source()).is_map_lost
        await delete_topics(stage.target, [stage.link.state_topic])
        gone = await stage.without_source.look_past_source()
        async with running(stage.link):
            await eventually(lambda: stands_still(stage), "the partitions to stand still")
        anew = await stage.without_source.look_past_source()
        living = await stage.sites.look_past_source()
        for seen in (gone, anew, living):
            assert seen.is_map_lost
            assert RefusalReason.MAP_LOST in reasons(seen)
            assert RefusalReason.NOTHING_MIRRORED not in reasons(seen)
            losses = [state_loss(view, 0) for view in seen.partitions]
            assert [TopicPartition(loss.topic, loss.partition) for loss in losses] == list(PARTITIONS)
            assert {loss.certainty for loss in losses} == {Certainty.UNKNOWN}
        assert [group.group for group in gone.groups] == [group.group for group in living.groups] == [GROUP]


async def test_a_link_that_has_mirrored_nothing_has_lost_no_map(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        other = Link("other", stage.link.source, stage.link.target, ("later",))
        await make_topic(stage.source, "later")
        await make_topic(stage.target, "later")
        await write(stage.target, TopicPartition("later", 0), some_records(0, 3))
        stage.link = other
        seen = await stage.without_source.look_past_source()
        assert (seen.is_map_lost, reasons(seen)) == (False, [RefusalReason.NOTHING_MIRRORED])


async def test_records_of_a_topic_that_is_at_the_source_alone_are_stated_also_without_a_map(tmp_path: Path) -> None:
    """Of what the target has not all that was seen is lost."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            await wait_for_records(stage.target, PARTITIONS[0], RECORDS)
        await delete_topics(stage.target, [stage.link.state_topic, PARTITIONS[0].topic])
        seen = await stage.sites.look_past_source()
        assert not seen.is_map_lost
        assert [state_loss(view, 0).offsets for view in seen.partitions] == [RECORDS, RECORDS]
