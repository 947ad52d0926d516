"""What comes to the source after the fence is named by content, also where a link brings the target's records back."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.topics import delete_topics
from broker.wire.vocabulary import TopicPartition
from failover.failback.stranding import leave_at_source, look_for_stranded, resume_settled
from failover.journal.log import load_operations
from failover.journal.values import Event
from failover.losses.stranded import StrandedRange, stranded_ranges
from failover.planning.plan import plan_switchover
from failover.running.steps import OperationStep
from mirror.offsets.operations import promote_link
from tests.failover.stage import PARTITIONS, RECORDS, TOPIC, Stage, mirrored, two_sites
from tests.mirror.harness import eventually, make_topic, read_all, running, some_records, wait_for_records, write

LATE, BROUGHT = 3, (4, 2)
"""Records that a producer writes at the source behind the fence; and per partition those the link back brings."""


async def _is_fenced(stage: Stage) -> bool:
    logs = (await load_operations(stage.target)).values()
    return any(e.event == Event.DONE and e.detail["step"] == OperationStep.FENCE for log in logs for e in log.entries)


async def _only_at_source(stage: Stage, where: TopicPartition) -> list[tuple[object, ...]]:
    there = {tuple(record)[1:] for record in await read_all(stage.target, where)}
    return [tuple(record)[1:] for record in await read_all(stage.source, where) if tuple(record)[1:] not in there]


async def _named(stage: Stage, found: tuple[StrandedRange, ...], where: TopicPartition) -> list[tuple[object, ...]]:
    """By content, of the source's records in the ranges but for those that the target has, too."""
    lacking = await _only_at_source(stage, where)
    return [
        tuple(record)[1:]
        for record in await read_all(stage.source, where)
        for one in found
        if (one.topic, one.partition) == where and one.first_offset <= record.offset < one.end_offset
        if tuple(record)[1:] in lacking
    ]


@pytest.mark.parametrize("is_late", [True, False])
@pytest.mark.parametrize("runs_back", [True, False])
async def test_behind_the_fence_only_what_the_target_lacks_is_stranded(
    tmp_path: Path, is_late: bool, runs_back: bool
) -> None:
    async with two_sites(tmp_path) as stage:
        there = replace(stage.link, shared_targets=True)
        back = replace(there, name=f"{there.name}-back", source=there.target, target=there.source)
        stage.link = replace(there, reverse_links=(back,))
        back = replace(back, reverse_links=(there,))

        async def go_on() -> None:
            await eventually(lambda: _is_fenced(stage), "the fence")
            if is_late:
                await write(stage.source, PARTITIONS[0], some_records(7_000, LATE))
            if not runs_back:
                return
            for at, count in zip(PARTITIONS, BROUGHT, strict=True):
                await write(stage.target, at, some_records(8_000, count))
            for at, count in zip(PARTITIONS, (BROUGHT[0] + LATE * is_late, BROUGHT[1]), strict=True):
                await wait_for_records(stage.source, at, RECORDS + count)

        async with mirrored(stage):
            plan = plan_switchover(await stage.sites.look())
            if runs_back:
                async with running(back):
                    going = asyncio.create_task(go_on())
                    result = await stage.run(plan, stage.sites)
                    await going
            else:
                going = asyncio.create_task(go_on())
                result = await stage.run(plan, stage.sites)
                await going
        assert result.verified, result.differences
        assert [(TopicPartition(one.topic, one.partition), one.records) for one in result.stranded] == (
            [(PARTITIONS[0], LATE)] if is_late else []
        )
        assert result.has_findings is is_late
        for where in PARTITIONS:
            assert await _named(stage, result.stranded, where) == await _only_at_source(stage, where)


@pytest.mark.parametrize("written", [0, 3])
async def test_of_a_topic_that_was_made_anew_all_is_only_there(tmp_path: Path, written: int) -> None:
    """Behind the look at the fence: it was held against how far the former one was mirrored, and was nothing."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        seen = await stage.sites.look()
        assert await delete_topics(stage.source, [TOPIC]) == {}
        await make_topic(stage.source, TOPIC, len(PARTITIONS))
        if written:
            await write(stage.source, PARTITIONS[0], some_records(70_000, written))
        found = await stranded_ranges(stage.link, stage.source, stage.target, seen)
        assert found == ((StrandedRange(*PARTITIONS[0], 0, written, written),) if written else ())
        assert await _named(stage, found, PARTITIONS[0]) == await _only_at_source(stage, PARTITIONS[0])


async def test_what_was_left_of_a_former_topic_says_nothing_of_the_one_that_was_made_anew(tmp_path: Path) -> None:
    """The link had gone on behind what was left of the former one: its offsets hid the new one's records."""
    other = TopicPartition("trips", 0)
    async with two_sites(tmp_path) as stage:
        stage.link = replace(stage.link, topics=(TOPIC, other.topic))
        async with mirrored(stage):
            pass
        await make_topic(stage.source, other.topic)
        await write(stage.source, other, some_records(1, 50))
        await promote_link(stage.link, stage.target, "failover-1")
        left = (await look_for_stranded(stage.link, stage.source, stage.target)).undecided
        await leave_at_source(stage.link, stage.target, left, "by a person")
        assert await resume_settled(stage.link, stage.source, stage.target, "back") == ()
        await write(stage.source, other, some_records(100, 2))
        async with running(stage.link):
            await wait_for_records(stage.target, other, 2)
        seen = await stage.sites.look()
        assert await delete_topics(stage.source, [other.topic]) == {}
        await make_topic(stage.source, other.topic)
        await write(stage.source, other, some_records(70_000, 30))
        found = await stranded_ranges(stage.link, stage.source, stage.target, seen)
        assert found == (StrandedRange(*other, 0, 30, 30),)
