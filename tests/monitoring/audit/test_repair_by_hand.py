"""What a refusal of a repair tells to do by hand is done: it ends with an equal copy, and groups in place."""

from __future__ import annotations

from pathlib import Path

from broker.client.groups import commit_offsets
from broker.client.model import CommittedOffset
from broker.client.topics import delete_topics
from mirror.offsets.operations import pause_link, resume_link
from mirror.offsets.state import load_link_state, read_entries
from monitoring.audit.repair import RepairBlocker
from tests.mirror.harness import accept_all, contents, eventually, read_all, running, wait_for_records, write
from tests.monitoring.audit.test_repairing import WHERE, Stage, numbered, opened

READ_TO = 35


async def test_a_compacted_topic_is_deleted_at_the_target_and_taken_up_by_its_gap(tmp_path: Path) -> None:
    """Its groups were ahead of their place in the new copy, and would skip records there: an earlier session's marker
    lay before it. The pause keeps the link from writing their old offsets again when the topic is gone.
    """
    async with opened(tmp_path, cleanup_policy="compact") as stage:
        async with running(stage.link):
            await wait_for_records(stage.target, WHERE, 30)
        await write(stage.source, WHERE, numbered(30, 10))
        await commit_offsets(stage.source, "analysts", {WHERE: CommittedOffset(READ_TO)})
        async with running(stage.link):
            await wait_for_records(stage.target, WHERE, 40)
            old = await in_place(stage)
            stage.tamper()
            assert contents(await read_all(stage.target, WHERE)) != contents(await read_all(stage.source, WHERE))
            assert (await stage.planned(await stage.request())).blockers == (RepairBlocker.COMPACTED,)

            await pause_link(stage.link, stage.target, "op")
        assert not await delete_topics(stage.target, [WHERE.topic])  # no mirror goes on that has not heard of the pause
        async with running(stage.link):
            await resume_link(stage.link, stage.target, "op")

            async def stands_still() -> bool:
                return bool((await read_entries(stage.link, stage.target)).open_gaps())

            await eventually(stands_still, "the mirror sees it")
            await accept_all(stage.link, stage.target, "op")
            await wait_for_records(stage.target, WHERE, 40)
            assert await in_place(stage) < old
            await stage.is_equal()


async def in_place(stage: Stage) -> int:
    """Wait until the group is where the map has its next record -> there."""

    async def placed() -> bool:
        there = await stage.group_at_target("analysts")
        return there is not None and there == (await load_link_state(stage.link, stage.target)).map.to_target(
            *WHERE, READ_TO
        )

    await eventually(placed, "the group in its place")
    found = await stage.group_at_target("analysts")
    assert found is not None
    return found
