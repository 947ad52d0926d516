"""Two machines promote two links, one each way, by clocks an hour apart: the clocks do not say which came later."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from broker.base.clock import SystemClock
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.offsets import log_end_offsets
from broker.client.site import Site
from broker.wire.site_role import SiteRole, SiteStanding
from broker.wire.vocabulary import TopicPartition
from failover.failback.stranding import look_for_stranded
from failover.observing.ends_at_fence import stood_for
from mirror.errors import MirrorError
from mirror.link import Link
from mirror.offsets.fence_ends import FenceEnd
from mirror.offsets.operations import promote_link, resume_link
from mirror.offsets.promotions import is_later, tell_links_back
from mirror.offsets.state import load_link_state, read_entries
from mirror.split import Split, look_for_split, promoted_backs
from tests.failover.failback.stage import Lost, lost_and_back
from tests.failover.stage import PARTITIONS, RECORDS
from tests.mirror.harness import running, some_records, wait_for_records, write

HOUR_MS = 3_600_000
APART = pytest.mark.parametrize("ahead_ms", [HOUR_MS, -HOUR_MS])
FIRST, SECOND = PARTITIONS
TAIL, NEWS = 6, 3


class OtherClock(SystemClock):
    """Of a machine whose wall clock is wrong."""

    def __init__(self, ahead_ms: int) -> None:
        self._ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead_ms


class Machines:
    """Each promotes what it is told to, as the command's fence does, by its own clock."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack

    async def promote(self, link: Link, operation_id: str, ahead_ms: int, *, source_lives: bool = True) -> None:
        target = await self._enter(link.target, ahead_ms)
        after = []
        if source_lives:
            told = await tell_links_back(link, await self._enter(link.source, ahead_ms), operation_id)
            after = [one.operation_id for one in told]
        await promote_link(link, target, operation_id, after)

    async def _enter(self, site: Site, ahead_ms: int) -> Cluster:
        return await self._stack.enter_async_context(Cluster(site, clock=OtherClock(ahead_ms)))


async def order(lost: Lost) -> bool | None:
    """Whether the link back was promoted later."""
    there = await read_entries(lost.there, lost.stage.target)
    return is_later(await read_entries(lost.back, lost.stage.source), there)


async def split_of(lost: Lost) -> Split | None:
    """As the first link is asked."""
    state = await load_link_state(lost.there, lost.stage.target)
    backs = await promoted_backs(lost.there, lost.stage.source, lost.stage.target, state.entries)
    return await look_for_split(lost.there, lost.stage.source, lost.stage.target, state, backs)


async def bring_back(lost: Lost) -> None:
    """The link back brings what the target wrote."""
    async with running(lost.back):
        await wait_for_records(lost.stage.source, FIRST, RECORDS + TAIL + NEWS)
        await wait_for_records(lost.stage.source, SECOND, RECORDS)


@APART
async def test_what_is_written_after_the_way_back_is_no_tail(tmp_path: Path, ahead_ms: int) -> None:
    """A switchover that brings the source back, by a machine that is an hour behind (or ahead of) the one before."""
    async with lost_and_back(tmp_path, 11, (TAIL, 0), (NEWS, 0)) as lost, AsyncExitStack() as stack:
        await bring_back(lost)
        await Machines(stack).promote(lost.back, "switchover-1", ahead_ms)
        await write(lost.stage.source, FIRST, some_records(70_000, 11))
        assert await order(lost) is True
        found = await lost.stranded()
        assert [(tail.where, tail.records, tail.is_end_known) for tail in found.tails] == [(FIRST, TAIL, True)]
        assert await split_of(lost) is None


async def test_a_damaged_state_of_one_link_back_keeps_no_other_from_being_told(tmp_path: Path) -> None:
    """Of those behind it the promotions were not known, and they heard of none: nobody could say which came later."""
    async with lost_and_back(tmp_path, 23, (0, 0), (0, 0)) as lost, AsyncExitStack() as stack:
        machines, damaged = Machines(stack), replace(lost.back, name="damaged")
        for back in (damaged, lost.back):
            await machines.promote(back, f"switchover-{back.name}", 0)
        for log in (tmp_path / "east").glob(f"{damaged.state_topic}-*/*.log"):
            log.write_bytes(log.read_bytes()[:-1] + b"?" if log.stat().st_size else b"")
        with pytest.raises((ClientError, MirrorError)):
            await read_entries(damaged, lost.stage.source)
        there = replace(lost.there, reverse_links=(damaged, lost.back))
        told = await tell_links_back(there, lost.stage.source, "failover-2")
        assert [one.operation_id for one in told] == [f"switchover-{lost.back.name}"]
        backs = (await read_entries(lost.back, lost.stage.source)).backs
        assert backs[there.name].operation_id == "failover-2"


@pytest.mark.parametrize("again", ["switchover-1", "switchover-2"], ids=["taken up", "the next wave"])
async def test_what_is_written_between_two_fences_of_a_way_back_is_no_tail(tmp_path: Path, again: str) -> None:
    """An operation was taken up behind its promotion, or moved the groups that were left: then what applications had
    written at the active site since the first one was to be decided about, and could be left there: lost, unsaid.
    """
    async with lost_and_back(tmp_path, 16, (TAIL, 0), (NEWS, 0)) as lost, AsyncExitStack() as stack:
        await bring_back(lost)
        for operation_id, written in (("switchover-1", 11), (again, 5)):
            await Machines(stack).promote(lost.back, operation_id, 0)
            await write(lost.stage.source, FIRST, some_records(70_000, written))
        found = await lost.stranded()
        assert [(tail.where, tail.records, tail.is_end_known) for tail in found.tails] == [(FIRST, TAIL, True)]


@APART
async def test_what_a_site_wrote_that_was_lost_again_is_all_tail(tmp_path: Path, ahead_ms: int) -> None:
    """There, back, and there again, by a machine that cannot ask the lost site: it is known from the session before."""
    async with lost_and_back(tmp_path, 12, (0, 0), (NEWS, 0)) as lost, AsyncExitStack() as stack:
        machines = Machines(stack)
        async with running(lost.back):
            await wait_for_records(lost.stage.source, FIRST, RECORDS + NEWS)
        await machines.promote(lost.back, "switchover-1", ahead_ms)
        await resume_link(lost.there, lost.stage.target, "resume-1")
        async with running(lost.there):
            await write(lost.stage.source, SECOND, some_records(70_000, 2))
            await wait_for_records(lost.stage.target, SECOND, RECORDS + 2)
        await write(lost.stage.source, FIRST, some_records(80_000, 5))
        await machines.promote(lost.there, "failover-2", 0, source_lives=False)
        assert await order(lost) is False
        await write(lost.stage.target, FIRST, some_records(90_000, 1))
        found = await lost.stranded()
        assert [(tail.where, tail.records, tail.is_end_known) for tail in found.tails] == [(FIRST, 5, True)]
        split = await split_of(lost)
        assert split is not None
        assert [writes.records for writes in split.at_source] == [5]


@APART
async def test_a_link_that_runs_on_is_told_of_a_promotion_back(tmp_path: Path, ahead_ms: int) -> None:
    """Its session began before, and its source is lost before it begins another one."""
    async with lost_and_back(tmp_path, 13, (0, 0), (0, 0)) as lost, AsyncExitStack() as stack:
        machines = Machines(stack)
        await resume_link(lost.there, lost.stage.target, "resume-1")
        async with running(lost.back):
            await wait_for_records(lost.stage.source, FIRST, RECORDS)
        async with running(lost.there):
            await machines.promote(lost.back, "switchover-1", ahead_ms)
        await machines.promote(lost.there, "failover-2", 0, source_lives=False)
        assert await order(lost) is False


@APART
async def test_a_promotion_that_is_done_again_stays_where_it_was(tmp_path: Path, ahead_ms: int) -> None:
    """Whoever finishes an operation of the night before has not made that site the active one now."""
    async with lost_and_back(tmp_path, 14, (0, 0), (0, 0)) as lost, AsyncExitStack() as stack:
        machines = Machines(stack)
        async with running(lost.back):
            await wait_for_records(lost.stage.source, FIRST, RECORDS)
        await machines.promote(lost.back, "switchover-1", ahead_ms)
        await machines.promote(lost.there, "failover-1", -ahead_ms)
        assert await order(lost) is True


async def test_where_neither_site_knew_of_the_other_the_end_is_said_to_be_unknown(tmp_path: Path) -> None:
    async with lost_and_back(tmp_path, 15, (TAIL, 0), (NEWS, 0)) as lost, AsyncExitStack() as stack:
        await Machines(stack).promote(lost.back, "failover-2", HOUR_MS, source_lives=False)
        assert await order(lost) is None
        for link, source, target in (
            (lost.there, lost.stage.source, lost.stage.target),
            (lost.back, lost.stage.target, lost.stage.source),
        ):
            found = await look_for_stranded(link, source, target)
            assert [(tail.records, tail.is_end_known) for tail in found.tails] == [(None, False)]


async def ends_now(lost: Lost) -> dict[TopicPartition, FenceEnd]:
    """As a source that answers tells them right before the fence."""
    ends = await log_end_offsets(lost.stage.source, PARTITIONS)
    return {at: FenceEnd(end, SystemClock().now_ms(), is_told=True) for at, end in ends.items()}


async def written_since(lost: Lost) -> list[tuple[TopicPartition, int]] | None:
    """At the site that was left, by its own producers; None: nobody asks this link."""
    split = await split_of(lost)
    if split is None:
        return None
    assert split.is_split == bool(split.at_source)
    return [(TopicPartition(one.topic, one.partition), one.records) for one in split.at_source]


@pytest.mark.parametrize("operation_id", ["failover-2", "failover-1"])
@pytest.mark.parametrize("is_known_by_role", [False, True])
async def test_a_promotion_behind_a_way_back_counts_from_its_own_time(
    tmp_path: Path, operation_id: str, is_known_by_role: bool
) -> None:
    """There and back, and there again with no resume in between: what the first site wrote as the active one was told
    as a split. What it writes then is one; and where the first promotion is only done again, that one counts.
    """
    async with lost_and_back(tmp_path, 21, (0, 0), (NEWS, 0)) as lost, AsyncExitStack() as stack:
        machines = Machines(stack)
        await bring_news(lost)
        await machines.promote(lost.back, "switchover-1", 0)
        await write(lost.stage.source, FIRST, some_records(70_000, 11))
        assert await written_since(lost) is None
        if is_known_by_role:
            after = stood_for((), SiteStanding(SiteRole.STANDBY, 1, "switchover-1"), await lost.stage.sites.look())
        else:
            told = await tell_links_back(lost.there, lost.stage.source, operation_id)
            after = stood_for(told, None, await lost.stage.sites.look())
        await promote_link(lost.there, lost.stage.target, operation_id, after, ends=await ends_now(lost))
        await write(lost.stage.target, FIRST, some_records(75_000, 1))
        if operation_id == "failover-2":
            assert await written_since(lost) == []
            await write(lost.stage.source, SECOND, some_records(80_000, 2))
            assert await written_since(lost) == [(SECOND, 2)]
            await promote_link(lost.there, lost.stage.target, "a wave", after, ends=await ends_now(lost))
            assert await written_since(lost) == [(SECOND, 2)], "the wave hides nothing"


@pytest.mark.parametrize("is_promoted", [False, True])
async def test_a_way_back_that_is_not_known_to_have_been_gone_hides_no_split(tmp_path: Path, is_promoted: bool) -> None:
    """The state was told that it was about to be; or it was promoted before the link, and is so still."""
    async with lost_and_back(tmp_path, 22, (0, 0), (NEWS, 0)) as lost, AsyncExitStack() as stack:
        machines = Machines(stack)
        if is_promoted:
            await machines.promote(lost.back, "switchover-0", 0)
            await resume_link(lost.there, lost.stage.target, "resume-1")
            await machines.promote(lost.there, "failover-1", 0)
            back = await tell_links_back(lost.there, lost.stage.source, "a wave")
            assert [one.operation_id for one in back] == ["switchover-0"]
        else:
            await tell_links_back(lost.back, lost.stage.target, "switchover-1")
            back = await tell_links_back(lost.there, lost.stage.source, "a wave")
            assert back == ()
        await write(lost.stage.source, SECOND, some_records(80_000, 2))
        before = await written_since(lost)
        seen = await lost.stage.sites.look()
        of_others = SiteStanding(SiteRole.STANDBY, 2, "switchover-1", topics=("other",))
        after = stood_for(back, of_others, seen)
        assert after == [one.operation_id for one in back]
        await promote_link(lost.there, lost.stage.target, "a wave", after, ends=await ends_now(lost))
        assert await written_since(lost) == before == [(SECOND, 2)]


async def bring_news(lost: Lost) -> None:
    async with running(lost.back):
        await wait_for_records(lost.stage.source, FIRST, RECORDS + NEWS)
