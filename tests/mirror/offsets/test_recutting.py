"""Cutting a link anew, on a broker: cut short at any write it leaves one deal, and each way on from there is open."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

from broker.client.cluster import Cluster
from broker.client.errors import ClientError, KafkaError
from broker.client.model import Topic
from broker.client.offsets import log_end_offsets
from broker.client.topics import NewTopic, create_topics, describe_topics
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition
from mirror.errors import LinkInvalid, LinkNotCut, LinkPromoted
from mirror.link import Link, Pin
from mirror.offsets import recutting, state
from mirror.offsets.cutting import agree_on_units, refuse_other_cut
from mirror.offsets.entries import (
    Block,
    Checkpoint,
    Gap,
    GapKind,
    GapStatus,
    LinkRun,
    RunState,
    TopicIds,
    VoidBlock,
    Writer,
)
from mirror.offsets.intervals import End, Interval
from mirror.offsets.operations import pause_link, promote_link, resume_link
from mirror.offsets.recutting import cut_link
from mirror.offsets.state import StateReader, read_entries
from mirror.offsets.state_entries import StateEntries, join_units
from mirror.offsets.state_writer import Carried, Change, StateLog, ensure_own_topics
from mirror.offsets.taking_over import claim_link
from mirror.offsets.topic_pauses import pause_topics, resume_topics
from mirror.offsets.unit_entries import LinkDeal, LinkUnits
from tests.worlds import EACH

PARTITIONS = 5
WAYS = ("resume", "the same", "another")
COMMANDS = (promote_link, pause_link, resume_link)
PIN: Pin = ("flights", 3)
CUTS: tuple[tuple[int, tuple[Pin, ...]], ...] = ((1, ()), (2, ()), (4, ()), (1, (PIN,)), (3, (PIN, ("flights", 0))))


class Killed(Exception):
    """The command's process ends here."""


@dataclass
class Writes:
    """Counts the writes of a command, and ends it instead of the one of this number, or does something before it."""

    killed_at: int = -1
    at: int = -1
    before: Callable[[], Awaitable[Any]] | None = None
    count: int = 0

    def install(self, patch: pytest.MonkeyPatch) -> None:
        append = StateLog.append

        async def planted(log: StateLog, changes: Iterable[Change | Carried]) -> None:
            if self.count == self.at and self.before is not None:
                before, self.before = self.before, None
                with pytest.MonkeyPatch.context() as inner:
                    inner.setattr(StateLog, "append", append)
                    await before()
            if self.count == self.killed_at:
                raise Killed
            self.count += 1
            await append(log, changes)

        patch.setattr(StateLog, "append", planted)


async def cut_with(writes: Writes, link: Link, target: Cluster, operation_id: str, *wanted: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        writes.install(patch)
        await cut_link(link, target, operation_id, *wanted)


def block(partition: int, source: int) -> Block:
    return Block("flights", partition, Writer(1, 1), 0, (Interval(source, source),))


async def begun(link: Link, target: Cluster, units: int) -> Link:
    """A link that has run, with a position of each partition, a gap, and a paused topic."""
    link = replace(link, units=units)
    await create_topics(target, [NewTopic("flights", PARTITIONS, 1)])
    await ensure_own_topics(target, link)
    for unit in link.each_unit():
        await agree_on_units(target, unit, await read_entries(unit, target))
        cut = [LinkUnits(units)] if units > 1 else []
        claim = await claim_link(target, unit, "worker", also=cut)
        mine = [at for at in range(PARTITIONS) if unit.carries("flights", at)]
        await claim.log.append(
            Checkpoint("flights", at, End(at, at), at, claim.owner.writer, 0, 9, -1, 1, topic_ids=TopicIds("a", "b"))
            for at in mine
        )
        await claim.log.append(block(at, at) for at in mine)
        if 0 in mine:
            await claim.log.append([Gap("flights", 0, GapKind.RECREATED, 1, 2, 0, GapStatus.STOPPED, 1, "")])
    await pause_topics(link, target, "pause-topic", ["quiet"])
    return link


def said(entries: StateEntries) -> tuple[Mapping[Any, Any], ...]:
    return entries.checkpoints, entries.blocks, entries.gaps, entries.paused


async def check(
    link: Link, target: Cluster, before: StateEntries, deals: Iterable[tuple[int, tuple[Pin, ...]]]
) -> Link:
    """All is in the state that was, each in the part of its unit -> the link as it is cut."""
    entries = await read_entries(link, target)
    assert said(entries) == said(before)
    assert (entries.units or 1, entries.pins) in deals
    cut = replace(link, units=entries.units or 1, pins=entries.pins)
    for unit in cut.each_unit():
        part = await read_entries(unit, target)
        if part.run is not None and part.run.state is RunState.RUNNING:
            assert part.checkpoints.keys() == {at for at in before.checkpoints if cut.unit_of(*at) == unit.unit}
            assert (part.units, part.pins) == (entries.units, entries.pins)
    return cut


@pytest.mark.parametrize("units", [1, 2, 3])
@pytest.mark.parametrize("wanted", CUTS)
async def test_each_partition_goes_to_its_unit_and_back(
    link: Link, target: Cluster, units: int, wanted: tuple[int, tuple[Pin, ...]]
) -> None:
    link = await begun(link, target, units)
    before = await read_entries(link, target)
    reader = StateReader(link)
    assert said(await reader.read(target)) == said(before)
    for epoch, (count, pins) in enumerate((wanted, (units, ())), 1):
        deal = await cut_link(link, target, f"cut-{epoch}", count, pins)
        cut = await check(link, target, before, [(count, tuple(sorted(pins)))])
        assert said(await reader.read(target)) == said(before), "who reads on sees it, too"
        assert (deal.units, deal.pins) == (count, cut.pins)
        for unit in cut.each_unit():
            part = await read_entries(unit, target)
            assert (part.deal, part.run) == (deal, LinkRun(RunState.RUNNING, f"cut-{epoch}", part.run.at_ms))  # type: ignore[union-attr]
            refuse_other_cut(unit, part)
            await agree_on_units(target, unit, part)
            with pytest.raises(LinkInvalid, match="declared with units"):
                await agree_on_units(target, replace(unit, units=count + 1), part)


async def writes_of_a_cut(link: Link, target: Cluster) -> int:
    writes = Writes()
    await cut_with(writes, link, target, "cut-counted", 3, [PIN])
    return writes.count


@pytest.mark.parametrize("way", WAYS)
async def test_cut_short_at_any_write_it_goes_on_by_either_way(link: Link, target: Cluster, way: str) -> None:
    old, new, other = (2, ()), (3, (PIN,)), (1, (("flights", 1),))
    link = await begun(link, target, 2)
    before = await read_entries(link, target)
    total = await writes_of_a_cut(link, target)
    await cut_link(link, target, "cut-back", *old)
    seen = set()
    for left in range(WAYS.index(way), total, len(WAYS) * EACH):
        with pytest.raises(Killed):
            await cut_with(Writes(killed_at=left), link, target, f"cut-{left}", *new)
        entries = await read_entries(link, target)
        assert said(entries) == said(before), left
        seen.add((entries.units, entries.pins))
        match way:
            case "resume":
                await resume_link(link, target, f"resume-{left}")
            case "the same":
                await cut_link(link, target, f"cut-{left}-again", *new)
            case _:
                await cut_link(link, target, f"cut-{left}-again", *other)
        cut = await check(link, target, before, [old, new, other])
        run = (await read_entries(cut, target)).run
        assert run is not None
        assert run.state is RunState.RUNNING
        for unit in cut.each_unit():
            part = await read_entries(unit, target)
            assert part.run == replace(run, at_ms=part.run.at_ms if part.run else 0)
            refuse_other_cut(unit, part)
        await cut_link(link, target, f"cut-{left}-back", *old)
    assert seen == {old, new}


async def test_the_first_cut_of_one_unit_killed_before_anything_is_said_leaves_one_unit(
    link: Link, target: Cluster
) -> None:
    """Its state's topic has four parts by then, and nothing but the deal says that they are not four units."""
    link = await begun(link, target, 1)
    before = await read_entries(link, target)
    for left in range(12):
        with pytest.raises(Killed):
            await cut_with(Writes(killed_at=left), link, target, f"cut-{left}", 4, [])
        await resume_link(link, target, f"resume-{left}")
        cut = await check(link, target, before, [(1, ()), (4, ())])
        await agree_on_units(target, cut if cut.unit_count == 1 else cut.of_unit(0), await read_entries(cut, target))
        if cut.unit_count > 1:
            return
    assert len((await describe_topics(target, [link.state_topic]))[link.state_topic].partitions) == 4


@pytest.mark.parametrize("operation", COMMANDS)
async def test_who_comes_in_between_is_heard(
    link: Link, target: Cluster, operation: Callable[[Link, Cluster, str], Awaitable[Any]]
) -> None:
    """Ahead of any write of the cut another command comes, and is done: each has its way, in every unit's part."""
    link = await begun(link, target, 2)
    before = await read_entries(link, target)
    total = await writes_of_a_cut(link, target)
    for at in range(COMMANDS.index(operation), total, len(COMMANDS) * EACH):
        await resume_link(link, target, f"resume-{at}")
        await cut_link(link, target, f"cut-{at}-back", 2)
        writes = Writes(at=at, before=partial(operation, link, target, f"op-{at}"))
        try:
            await cut_with(writes, link, target, f"cut-{at}", 3, [PIN])
        except LinkPromoted:
            assert operation is promote_link
        assert writes.before is None, "it came"
        cut = await check(link, target, before, [(2, ()), (3, (PIN,))])
        runs = {(await read_entries(unit, target)).run.state for unit in cut.each_unit()}  # type: ignore[union-attr]
        wanted = {promote_link: RunState.PROMOTED, pause_link: RunState.PAUSED, resume_link: RunState.RUNNING}
        assert runs == {wanted[operation]}, at


async def cut_behind_another(link: Link, target: Cluster, *, looks: bool) -> None:
    """Two look at the same deal, and one is done before the other claims; without `looks` that one does not see it."""
    link = await begun(link, target, 2)
    before = await read_entries(link, target)
    others = [partial(cut_link, link, target, "cut-other", 3, [PIN])]

    async def planted(target: Cluster, link: Link, worker: str, **more: Any) -> Any:
        if others:
            await others.pop()()
        return await claim_link(target, link, worker, **(more if looks else {}))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recutting, "claim_link", planted)
        await cut_link(link, target, "cut-1", 4)
    assert (await check(link, target, before, [(4, ())])).unit_count == 4


async def test_of_two_cuts_at_once_the_later_one_begins_anew(link: Link, target: Cluster) -> None:
    await cut_behind_another(link, target, looks=True)


async def test_a_cut_that_goes_on_from_another_deal_is_found(link: Link, target: Cluster) -> None:
    with pytest.raises(AssertionError):
        await cut_behind_another(link, target, looks=False)


async def left_behind(link: Link, target: Cluster) -> tuple[StateEntries, StateEntries]:
    """A cut that was killed before it counted leaves copies; the link goes on by the old deal, and is cut once more ->
    what its state said before that, and behind it.
    """
    link = await begun(link, target, 1)
    total, moved = await writes_of_a_cut(link, target), PIN[1]
    await cut_link(link, target, "cut-back", 1)
    for killed_at in reversed(range(total)):
        with suppress(Killed):
            await cut_with(Writes(killed_at=killed_at), link, target, "cut-1", 1, [PIN])
        if not (await read_entries(link, target)).pins:  # the last moment at which the old deal counts
            break
        await cut_link(link, target, "cut-2", 1)
    await resume_link(link, target, "resume-1")
    log = (await claim_link(target, link, "worker")).log
    await log.append([VoidBlock("flights", moved, block(moved, moved).key_source), block(moved, 7)])
    before = await read_entries(link, target)
    await cut_link(link, target, "cut-3", 1, [PIN])
    return before, await read_entries(link, target)


async def test_what_a_cut_that_was_cut_short_left_is_taken_back_first(link: Link, target: Cluster) -> None:
    before, after = await left_behind(link, target)
    assert said(after) == said(before)


async def test_leftovers_that_stay_are_found(link: Link, target: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recutting, "strangers", lambda _cut, _part: [])
    before, after = await left_behind(link, target)
    assert after.blocks[PIN] != before.blocks[PIN]


async def read_amid(link: Link, target: Cluster, first: int, patch: pytest.MonkeyPatch) -> StateEntries:
    """What a reader sees that hears where one part ends, then a whole cut comes, and then where the others end: they
    are led by several brokers.
    """
    ask, done = log_end_offsets, list[bool]()

    async def planted(cluster: Cluster, wheres: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        wanted = list(wheres)
        if done or len(wanted) < 2:
            return await ask(cluster, wanted)
        done.append(True)
        ends = await ask(cluster, [where for where in wanted if where.partition == first])
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(state, "log_end_offsets", ask)
            await cut_link(link, target, "cut-amid", 3, [PIN])
        return {**await ask(cluster, [where for where in wanted if where.partition != first]), **ends}

    patch.setattr(state, "log_end_offsets", planted)
    return await StateReader(link).read(target)


@pytest.mark.parametrize("first", [0, 1, 2])
async def test_a_reader_goes_by_one_deal(
    link: Link, target: Cluster, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = await begun(link, target, 3)
    before = await read_entries(link, target)
    assert said(await read_amid(link, target, first, monkeypatch)) == said(before)


@pytest.mark.parametrize("first", [1, 2])
async def test_a_reader_that_goes_by_two_deals_is_found(
    link: Link, target: Cluster, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def planted(reader: StateReader, target: Cluster, topic: Topic, only: Any, ends: Any) -> StateEntries:
        units = [partition.partition for partition in topic.partitions]
        return join_units(link, await reader._parts_of(target, topic, units, only, ends))

    monkeypatch.setattr(StateReader, "_read_all", planted)
    link = await begun(link, target, 3)
    before = await read_entries(link, target)
    assert said(await read_amid(link, target, first, monkeypatch)) != said(before)


async def test_a_persons_pause_stays_and_a_promoted_link_is_not_cut(link: Link, target: Cluster) -> None:
    with pytest.raises(LinkNotCut, match="never ran"):
        await cut_link(link, target, "cut-0", 2)
    link = await begun(link, target, 1)
    await pause_link(link, target, "pause-1")
    await cut_link(link, target, "cut-1", 3)
    for unit in replace(link, units=3).each_unit():
        run = (await read_entries(unit, target)).run
        assert (run and (run.state, run.operation_id)) == (RunState.PAUSED, "pause-1")
    await promote_link(link, target, "failover-1")
    before = await read_entries(link, target)
    with pytest.raises(LinkPromoted):
        await cut_link(link, target, "cut-2", 1)
    assert await read_entries(link, target) == before


async def test_one_that_takes_no_marker_ends_it_and_the_link_goes_on(
    link: Link, target: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = await begun(link, target, 2)
    before = await read_entries(link, target)
    fence_link, where = recutting.fence_link, TopicPartition("flights", 1)  # type: ignore[attr-defined]

    async def planted(*given: Any, **more: Any) -> Any:
        fence = await fence_link(*given, **more)
        error: ClientError = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "a test")
        return replace(fence, left_out={where: error}) if given[1].unit == 1 else fence

    monkeypatch.setattr(recutting, "fence_link", planted)
    with pytest.raises(LinkNotCut, match="flights-1"):
        await cut_link(link, target, "cut-1", 3)
    await check(link, target, before, [(2, ())])
    entries = await read_entries(link, target)
    assert (entries.deal, entries.run and entries.run.state) == (LinkDeal(2), RunState.RUNNING)
    monkeypatch.setattr(recutting, "fence_link", fence_link)
    await cut_link(link, target, "cut-2", 3)
    await check(link, target, before, [(3, ())])


async def test_a_topic_that_is_gone_at_the_target_holds_nothing_up(link: Link, target: Cluster) -> None:
    link = await begun(link, target, 1)
    claim = await claim_link(target, link, "worker")
    gone = Checkpoint("gates", 0, End(1, 1), 1, claim.owner.writer, 0, 1, -1, 1)
    await claim.log.append([gone])
    await cut_link(link, target, "cut-1", 2, [("gates", 0)])
    pinned = replace(link, units=2, pins=(("gates", 0),)).of_unit(2)
    assert (await read_entries(pinned, target)).checkpoints == {("gates", 0): gone}


async def test_a_topic_that_is_paused_while_a_link_is_cut_is_paused_in_the_new_parts(
    link: Link, target: Cluster
) -> None:
    link = await begun(link, target, 1)
    total = await writes_of_a_cut(link, target)
    for at in range(0, total, 2 * EACH):
        await cut_link(link, target, f"cut-{at}-back", 1)
        await resume_topics(link, target, ["flights"])
        pause = partial(pause_topics, link, target, "op", ["flights"])
        await cut_with(Writes(at=at, before=pause), link, target, f"cut-{at}", 3, [PIN])
        for unit in replace(link, units=3, pins=(PIN,)).each_unit():
            assert "flights" in (await read_entries(unit, target)).paused, (at, unit.unit)
