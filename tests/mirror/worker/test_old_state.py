"""A link whose state is old: another link from its source took its place for a while, and brought what came since."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.client.cluster import Cluster
from broker.client.offsets import log_end_offsets
from broker.client.topics import delete_records
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets.entries import Checkpoint, Writer
from mirror.offsets.intervals import End
from mirror.offsets.operations import resume_link
from mirror.offsets.recovery import OffsetRange, TailBatch
from mirror.offsets.state import load_link_state, read_entries
from mirror.offsets.tail import Tail
from mirror.origins import Registration, SiteIdentity
from mirror.outlook import look_ahead
from mirror.resumption import GapName, ResumePlan, plan_resume
from mirror.worker.occupants import who_came_since, who_may_have_come
from tests.mirror.harness import (
    BEFORE,
    LONG_AGO,
    accept_all,
    contents,
    link_between,
    make_topic,
    running,
    some_records,
    wait_for_records,
    write,
)
from tests.mirror.worker.test_adopting import adopt, fresh, mirror_in_sessions, stop


async def rename_and_mirror(link: Link, source: Cluster, target: Cluster, where: TopicPartition) -> str:
    """Thirty records are the link's own, and ten come under its other name -> that one. Both workers ended long ago."""
    renamed = replace(link, name=f"{link.name}-renamed")
    await make_topic(source, where.topic)
    await mirror_in_sessions(link, source, target, where, LONG_AGO)
    await stop(renamed, BEFORE)
    await adopt(renamed, source, target)
    await write(source, where, some_records(30, 10))
    async with running(renamed, clock=BEFORE):
        await wait_for_records(target, where, 40)
    return renamed.name


@pytest.mark.parametrize("shared", [False, True])
async def test_a_link_that_was_renamed_and_back_repeats_nothing(brokers: tuple[str, str], shared: bool) -> None:
    """Its state is old: what the other name brought is the source's, too."""
    link, where = fresh(brokers, shared_targets=shared)
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        renamed = await rename_and_mirror(link, source, target, where)
        await stop(link)
        (gap,) = (await read_entries(link, target)).open_gaps().values()
        assert f"link {renamed} wrote target offsets" in gap.detail
        assert gap.source_from == gap.source_to == 30
        await adopt(link, source, target)
        await write(source, where, some_records(40, 10))
        async with running(link):
            found = await wait_for_records(target, where, 50)
        assert contents(found) == contents(some_records(0, 50))
        offset_map = (await load_link_state(link, target)).map
        assert [offset_map.to_target(*where, offset) for offset in range(50)] == [record.offset for record in found]


@pytest.mark.parametrize(("start_at", "again"), [(None, 10), (40, 0), (35, 5)])
async def test_behind_what_another_link_brought_it_may_begin_at_an_offset(
    brokers: tuple[str, str], start_at: int | None, again: int
) -> None:
    link, where = fresh(brokers)
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await rename_and_mirror(link, source, target, where)
        await stop(link)
        entries = await read_entries(link, target)
        starts = {} if start_at is None else {(where.topic, where.partition): start_at}
        plan = plan_resume(link, entries, [GapName(*where)], starts)
        assert isinstance(plan, ResumePlan)
        (outlook,) = await look_ahead(link, (source, target), entries, plan.accepts)
        assert outlook.goes_on_at == (start_at or 30)
        await resume_link(link, target, "op", plan.accepts)
        await write(source, where, some_records(40, 3))
        async with running(link):
            found = await wait_for_records(target, where, 43 + again)
        assert contents(found) == contents([*some_records(0, 40), *some_records(40 - again, again + 3)])


async def test_what_the_other_may_have_brought_and_the_target_deleted_is_not_taken_for_mirrored(
    brokers: tuple[str, str],
) -> None:
    link, where = fresh(brokers)
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        renamed = await rename_and_mirror(link, source, target, where)
        await delete_records(target, {where: (await log_end_offsets(target, [where]))[where]})
        await write(source, where, some_records(40, 10))
        await stop(link)
        (gap,) = (await read_entries(link, target)).open_gaps().values()
        assert f"are gone, and link {renamed} may have written them" in gap.detail
        await accept_all(link, target, "op")
        async with running(link):
            found = await wait_for_records(target, where, 50 - gap.source_to)
        assert gap.source_to <= 30
        assert contents(found) == contents(some_records(0, 50)[gap.source_to :])


@pytest.mark.parametrize(
    ("batches", "words"),
    [
        ([TailBatch(5, 5, 9, 0, -1, is_control=True)], ""),
        ([TailBatch(5, 9, 7, 3, 0, is_control=False)], ""),
        ([TailBatch(5, 9, -1, -1, -1, is_control=False), TailBatch(10, 12, 11, 0, 0, is_control=False)], ""),
        ([TailBatch(5, 9, 7, 5, 0, is_control=False)], "this link wrote target offsets 5 to 9, from east"),
        (
            [TailBatch(5, 9, 9, 0, 0, is_control=False), TailBatch(12, 14, 9, 2, 0, is_control=False)],
            "link other wrote target offsets 5 to 14, from east",
        ),
    ],
)
def test_whose_batches_the_state_must_know(batches: list[TailBatch], words: str) -> None:
    """Neither a marker, nor the session's own, nor a local producer's, nor those from another site."""
    link = link_between("east:1", "west:1", ["flights"], name="link")
    checkpoint = Checkpoint("flights", 0, End(5, 5), 5, Writer(7, 3), 0, 5, -1, 0)
    writers = {
        number: Registration(number, name, SiteIdentity(site), frozenset({site}))
        for number, name, site in ((7, "link", "east"), (9, "other", "east"), (11, "third", "north"))
    }
    found = who_came_since(link, checkpoint, batches, writers)
    assert found.startswith(words)
    assert bool(found) is bool(words)


@pytest.mark.parametrize(
    ("name", "site", "topics", "said"),
    [
        ("other", "east", ("flights",), True),
        ("other", "east", None, True),
        ("other", "east", ("orders",), False),
        ("other", "north", ("flights",), False),
        ("link", "east", ("flights",), False),
    ],
)
def test_who_may_have_written_what_is_gone(name: str, site: str, topics: tuple[str, ...] | None, said: bool) -> None:
    """Another link from the same source that may write the topic; what the log still has is nobody's guess."""
    link, there = link_between("east:1", "west:1", ["flights"], name="link"), TopicPartition("flights", 0)
    writers = {9: Registration(9, name, SiteIdentity(site), frozenset({site}), topics)}
    gone, kept = (TailBatch(5, 8, 7, 3, 0, is_control=False), TailBatch(9, 9, 7, 3, 4, is_control=False))
    tail = Tail(9, 10, [gone, kept], gone=OffsetRange(5, 8))
    assert bool(who_may_have_come(link, there, tail, writers)) is said
    assert who_may_have_come(link, there, tail.without_guess(), writers) == ""
    assert (tail.guess, tail.without_guess().batches) == (gone, [kept])
    assert Tail(9, 10, [kept]).without_guess().batches == [kept]
