"""The map of a link that went on behind a tail which was left: no record of that tail is said to be at the target."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.client.offsets import log_end_offsets
from broker.wire.vocabulary import TopicPartition
from failover.failback.stranding import leave_at_source
from failover.observing.observe import observe
from mirror.errors import OffsetNotMirrored
from mirror.offsets.operations import resume_link
from mirror.offsets.runs import next_landed
from mirror.offsets.state import load_link_state
from mirror.translation import translate_offset
from tests.failover.failback.stage import Lost, lost_and_back
from tests.failover.stage import PARTITIONS, RECORDS, now_ms
from tests.mirror.harness import contents, eventually, read_all, running, some_records, write

AT = PARTITIONS[0]
TAIL_RECORDS = 4


async def left_and_resumed(lost: Lost) -> None:
    found = await lost.stranded()
    await leave_at_source(lost.there, lost.stage.target, found.undecided, "test")
    await resume_link(lost.there, lost.stage.target, "failback-1")


async def until_behind(lost: Lost, at: TopicPartition, source_next: int) -> None:
    """Until the link stands there, and right behind all that was written at the target."""

    async def stands() -> bool:
        log_end = (await log_end_offsets(lost.stage.target, [at]))[at]
        checkpoint = (await load_link_state(lost.there, lost.stage.target)).entries.checkpoints[at]
        return tuple(checkpoint.end) == (source_next, log_end)

    await eventually(stands, "the link to go along with the target's log")


@pytest.mark.parametrize("is_stepped", [False, True])
async def test_what_others_write_behind_it_is_not_taken_for_the_tail(tmp_path: Path, is_stepped: bool) -> None:
    """A planned move compared the last record of the tail with a stranger, and was not verified, however often."""
    async with lost_and_back(tmp_path, 41, (TAIL_RECORDS, 0), (1, 0)) as lost:
        stage, tail_end = lost.stage, RECORDS + TAIL_RECORDS
        await left_and_resumed(lost)
        async with running(lost.there):
            await until_behind(lost, AT, tail_end)
            await write(stage.target, AT, some_records(70_000, 2 * TAIL_RECORDS))
            if is_stepped:
                await until_behind(lost, AT, tail_end)
            await write(stage.source, AT, some_records(80_000, 1))
            await until_behind(lost, AT, tail_end + 1)
            if not is_stepped:
                await write(stage.target, AT, some_records(90_000, 2 * TAIL_RECORDS))
                await until_behind(lost, AT, tail_end + 1)
        await judge(lost)
        async with running(lost.there):  # by another session, from the state alone
            await write(stage.target, AT, some_records(95_000, 3))
            await until_behind(lost, AT, tail_end + 1)
        await judge(lost)


async def test_the_last_record_that_was_mirrored_is_the_one_before_the_tail(tmp_path: Path) -> None:
    async with lost_and_back(tmp_path, 42, (TAIL_RECORDS, 0), (1, 0)) as lost:
        await left_and_resumed(lost)
        async with running(lost.there):
            await until_behind(lost, AT, RECORDS + TAIL_RECORDS)
            await write(lost.stage.target, AT, some_records(70_000, 2 * TAIL_RECORDS))
            await until_behind(lost, AT, RECORDS + TAIL_RECORDS)
        await judge(lost)
        snapshot = await observe(lost.there, lost.stage.source, lost.stage.target, (), now_ms())
        (view,) = [view for view in snapshot.partitions if (view.topic, view.partition) == AT]
        assert view.last_mirrored is not None
        assert view.last_mirrored[0] == RECORDS - 1


async def judge(lost: Lost) -> None:
    """Each record that the map says was brought is the one at the target that it says."""
    there = {record.offset: record for record in await read_all(lost.stage.target, AT)}
    here = {record.offset: record for record in await read_all(lost.stage.source, AT)}
    state = await load_link_state(lost.there, lost.stage.target)
    found, start = state.map.find(*AT), 0
    assert found is not None
    while (run := next_landed(found, start)) is not None:
        sources, start = range(run.source, run.source + run.length), run.target + run.length
        assert contents(here[at] for at in sources) == contents(there[at] for at in range(run.target, start))
    for offset in range(RECORDS, RECORDS + TAIL_RECORDS):
        with pytest.raises(OffsetNotMirrored, match="left"):
            translate_offset(lost.there, state, *AT, offset, reverse=False)
