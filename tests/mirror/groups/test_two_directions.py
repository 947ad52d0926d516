"""Two real sites that write one topic, with a link each way, and a group that is carried both ways."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets, committed_offsets
from broker.client.model import CommittedOffset
from broker.client.site import Site
from broker.wire.records import Record
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets.state import read_entries
from mirror.worker.events import Event
from tests.interop.servers import FarshoreBroker
from tests.mirror.harness import eventually, make_topic, read_all, running, wait_for_records, write


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    folder: Path = tmp_path_factory.mktemp("sites")
    with FarshoreBroker(folder / "east") as east, FarshoreBroker(folder / "west") as west:
        yield east.bootstrap, west.bootstrap


@dataclass
class Pair:
    """Both links over one topic, and a group that both carry."""

    there: Link
    back: Link
    where: TopicPartition

    @property
    def group(self) -> str:
        return self.there.groups[0]


@pytest.fixture
def pair(brokers: tuple[str, str]) -> Pair:
    tag = uuid.uuid4().hex[:8]
    east, west = Site("east", brokers[0]), Site("west", brokers[1])
    there = Link(f"there-{tag}", east, west, (f"t-{tag}",), groups=(f"g-{tag}",), shared_targets=True)
    back = replace(there, name=f"back-{tag}", source=west, target=east)
    return Pair(
        replace(there, reverse_links=(back,)), replace(back, reverse_links=(there,)), TopicPartition(f"t-{tag}", 0)
    )


def named(prefix: str, count: int) -> list[Record]:
    return [Record(n, 1_700_000_000_000 + n, None, f"{prefix}{n}".encode()) for n in range(count)]


async def offset_of(cluster: Cluster, pair: Pair) -> int | None:
    found = (await committed_offsets(cluster, pair.group)).get(pair.where)
    return found.offset if found else None


async def values(cluster: Cluster, pair: Pair) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) for record in await read_all(cluster, pair.where)]


async def two_more_passes(link: Link, target: Cluster) -> None:
    """Wait until the link has looked at its groups twice more."""
    for _ in range(2):
        before = (await read_entries(link, target)).groups.looked_at_ms or 0

        async def later(before: int = before) -> bool:
            return ((await read_entries(link, target)).groups.looked_at_ms or 0) > before

        await eventually(later, f"{link.name} to look at its groups")


async def test_a_reverse_link_that_does_not_run_sends_no_group_to_the_beginning(pair: Pair) -> None:
    """It is declared, and has never run. The target's log begins with the marker of this link's own fence."""
    async with AsyncExitStack() as stack:
        east = await stack.enter_async_context(Cluster(pair.there.source))
        west = await stack.enter_async_context(Cluster(pair.there.target))
        await make_topic(east, pair.where.topic)
        await write(east, pair.where, named("e", 10))
        await commit_offsets(east, pair.group, {pair.where: CommittedOffset(7)})
        async with running(pair.there):
            await wait_for_records(west, pair.where, 10)
            await two_more_passes(pair.there, west)
            found = dict(await values(west, pair))
            stands_at = await offset_of(west, pair)
            assert stands_at is not None
            assert found[stands_at] == b"e7"
            assert min(found) > 0, "there is no record at offset 0"


async def test_east_west_east_lands_where_it_began_and_stays_there(pair: Pair) -> None:
    """The logs have the records in different orders; the group reads at one site, then at the other."""
    async with AsyncExitStack() as stack:
        east = await stack.enter_async_context(Cluster(pair.there.source))
        west = await stack.enter_async_context(Cluster(pair.there.target))
        await make_topic(east, pair.where.topic)
        await make_topic(west, pair.where.topic)
        await write(west, pair.where, named("w", 6))
        await write(east, pair.where, named("e", 10))
        async with running(pair.there, pair.back):
            at_east = await wait_for_records(east, pair.where, 16)
            await wait_for_records(west, pair.where, 16)
            began = next(record.offset for record in at_east if record.value == b"e4")
            read = {record.value for record in at_east if record.offset < began}
            await commit_offsets(east, pair.group, {pair.where: CommittedOffset(began)})
            await two_more_passes(pair.there, west)
            await two_more_passes(pair.back, east)
            await two_more_passes(pair.there, west)
            assert await offset_of(east, pair) == began
            at_west = await offset_of(west, pair)
            assert at_west is not None
            log = await values(west, pair)
            first_unread = next(offset for offset, value in log if value not in read)
            assert at_west == first_unread

            end = log[-1][0] + 1
            await commit_offsets(west, pair.group, {pair.where: CommittedOffset(end)})
            await two_more_passes(pair.back, east)
            await two_more_passes(pair.there, west)
            last = max(record.offset for record in await read_all(east, pair.where))
            stands_at = await offset_of(east, pair)
            assert stands_at is not None
            assert stands_at > last, "it has read all of it, in the west"
            assert (await offset_of(west, pair) or 0) >= end


async def test_a_set_back_at_one_site_goes_back_at_the_other_and_no_further(pair: Pair) -> None:
    """The link to where it was set back looks first, and finds nothing to do; then the other one carries it over."""
    async with AsyncExitStack() as stack:
        east = await stack.enter_async_context(Cluster(pair.there.source))
        west = await stack.enter_async_context(Cluster(pair.there.target))
        await make_topic(east, pair.where.topic)
        await make_topic(west, pair.where.topic)
        await write(west, pair.where, named("w", 6))
        await write(east, pair.where, named("e", 6))
        async with running(pair.there, pair.back):
            at_east = {record.value: record.offset for record in await wait_for_records(east, pair.where, 12)}
            at_west = {record.value: record.offset for record in await wait_for_records(west, pair.where, 12)}
            await commit_offsets(west, pair.group, {pair.where: CommittedOffset(at_west[b"e2"])})
            await two_more_passes(pair.back, east)
            await two_more_passes(pair.there, west)
            assert await offset_of(east, pair) == at_east[b"e2"]
        await commit_offsets(west, pair.group, {pair.where: CommittedOffset(at_west[b"w3"])})
        async with running(pair.there):
            await two_more_passes(pair.there, west)
        async with running(pair.back):
            await two_more_passes(pair.back, east)
        assert await offset_of(east, pair) == at_east[b"e0"]
        async with running(pair.there):
            await two_more_passes(pair.there, west)
        assert await offset_of(west, pair) == at_west[b"w3"]


async def test_a_group_that_was_set_back_where_the_link_back_had_brought_it_goes_back_at_the_other_site(
    pair: Pair,
) -> None:
    """It read in the west alone, and was carried east before the link there ever had a place of it."""
    async with AsyncExitStack() as stack:
        east = await stack.enter_async_context(Cluster(pair.there.source))
        west = await stack.enter_async_context(Cluster(pair.there.target))
        await make_topic(east, pair.where.topic)
        await make_topic(west, pair.where.topic)
        await write(east, pair.where, named("e", 6))
        async with running(pair.there, pair.back):
            at_east = {record.value: record.offset for record in await wait_for_records(east, pair.where, 6)}
            at_west = {record.value: record.offset for record in await wait_for_records(west, pair.where, 6)}
        await commit_offsets(west, pair.group, {pair.where: CommittedOffset(at_west[b"e4"])})
        async with running(pair.back):
            await two_more_passes(pair.back, east)
        assert await offset_of(east, pair) == at_east[b"e4"]
        await commit_offsets(east, pair.group, {pair.where: CommittedOffset(at_east[b"e1"])})
        async with running(pair.there):
            await two_more_passes(pair.there, west)
        assert await offset_of(west, pair) == at_west[b"e1"]
        async with running(pair.back):
            await two_more_passes(pair.back, east)
        assert await offset_of(east, pair) == at_east[b"e1"]


async def test_a_set_back_is_not_undone_by_a_link_back_that_has_not_seen_the_group_before(pair: Pair) -> None:
    """What stands in the west is what the link there put: nobody read on. So at first, and when it is behind."""
    async with AsyncExitStack() as stack:
        east = await stack.enter_async_context(Cluster(pair.there.source))
        west = await stack.enter_async_context(Cluster(pair.there.target))
        await make_topic(east, pair.where.topic)
        await make_topic(west, pair.where.topic)
        await write(east, pair.where, named("e", 12))
        async with running(pair.there, pair.back):
            at_east = {record.value: record.offset for record in await wait_for_records(east, pair.where, 12)}
            at_west = {record.value: record.offset for record in await wait_for_records(west, pair.where, 12)}
        for read, set_back in (b"e9", b"e3"), (b"e10", b"e2"):
            await commit_offsets(east, pair.group, {pair.where: CommittedOffset(at_east[read])})
            async with running(pair.there):
                await two_more_passes(pair.there, west)
            assert await offset_of(west, pair) == at_west[read]
            await commit_offsets(east, pair.group, {pair.where: CommittedOffset(at_east[set_back])})
            async with running(pair.back):
                await two_more_passes(pair.back, east)
            assert await offset_of(east, pair) == at_east[set_back]
            async with running(pair.there):
                await two_more_passes(pair.there, west)
            assert await offset_of(west, pair) == at_west[set_back]


async def test_a_reverse_link_whose_state_cannot_be_read_holds_up_no_records(pair: Pair) -> None:
    """Groups wait, and it is said; what this link moves does not depend on the other one's state."""
    async with AsyncExitStack() as stack:
        east = await stack.enter_async_context(Cluster(pair.there.source))
        west = await stack.enter_async_context(Cluster(pair.there.target))
        await make_topic(east, pair.where.topic)
        await make_topic(east, pair.back.state_topic)
        await write(east, TopicPartition(pair.back.state_topic, 0), [Record(0, 1, b"no key of ours", b"{}")])
        await commit_offsets(east, pair.group, {pair.where: CommittedOffset(0)})
        async with running(pair.there) as told:
            (failed,) = await told.wait_for(Event.GROUP_FAILED)
            assert pair.back.state_topic in str(failed["detail"])
            await write(east, pair.where, named("e", 10))
            await wait_for_records(west, pair.where, 10)
            assert told.count(Event.STARTED) == 1
            assert not told.count(Event.RESTARTING)
