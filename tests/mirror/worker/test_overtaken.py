"""A source that lost its end and grew past it again: nothing is lost or mistranslated without a word."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.offsets import log_end_offsets
from broker.client.site import Site
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets.entries import GapKind, GapStatus
from mirror.offsets.state import load_link_state
from mirror.outlook import look_ahead
from mirror.worker.events import Event
from tests.broker.running import running_broker
from tests.mirror.harness import (
    accept_all,
    contents,
    eventually,
    make_topic,
    read_all,
    running,
    some_records,
    wait_for_records,
    write,
)

WHERE = TopicPartition("flights", 0)
LOST = slice(800, 1000)
LATER = 5000
"""The number of the first record that was written instead of the lost ones."""


@dataclass
class Sites:
    """Two sites of our broker in this process, which are stopped and started with what their disks then hold."""

    folder: Path
    link: Link

    @asynccontextmanager
    async def up(self) -> AsyncIterator[tuple[Link, Cluster, Cluster]]:
        async with running_broker(self.folder / "east") as east, running_broker(self.folder / "west") as west:
            link = replace(self.link, source=Site("east", east), target=Site("west", west))
            async with Cluster(link.source) as source, Cluster(link.target) as target:
                yield link, source, target

    def keep(self, name: str, disk: str = "kept") -> None:
        shutil.copytree(self.folder / name, self.folder / f"{name}-{disk}")

    def restore(self, name: str, disk: str = "kept") -> None:
        shutil.rmtree(self.folder / name)
        shutil.copytree(self.folder / f"{name}-{disk}", self.folder / name)


@pytest.fixture
def sites(tmp_path: Path) -> Sites:
    return Sites(tmp_path, Link("east-west", Site("east", "x:1"), Site("west", "x:1"), ("flights",)))


def forget_epochs(folder: Path) -> None:
    (file,) = folder.rglob(f"{WHERE}/leader-epoch-checkpoint")
    file.unlink()


async def mirror_and_restore(sites: Sites, between: Callable[[], None] = lambda: None) -> None:
    """800 records, kept; 200 more, all mirrored; then the source is as it was kept, and 300 others are written."""
    async with sites.up() as (_, source, _target):
        await make_topic(source, WHERE.topic)
        for start in range(0, 800, 100):
            await write(source, WHERE, some_records(start, 100))
    sites.keep("east")
    async with sites.up() as (link, source, target):
        await write(source, WHERE, some_records(800, 200))
        async with running(link):
            await wait_for_records(target, WHERE, 1000)
    sites.restore("east")
    between()
    async with sites.up() as (_, source, _target):
        assert await write(source, WHERE, some_records(LATER, 300)) == 800


@pytest.mark.parametrize("case", ["epochs go on", "epochs are used again", "epochs are lost"])
async def test_an_overtaken_source_stops_the_partition_and_accepting_loses_nothing(sites: Sites, case: str) -> None:
    if case == "epochs are used again":  # a start raises the epoch: without one, the same number is given twice
        async with sites.up():
            pass
    between = (lambda: forget_epochs(sites.folder / "east")) if case == "epochs are lost" else (lambda: None)
    await mirror_and_restore(sites, between)
    async with sites.up() as (link, source, target):
        async with running(link) as told:
            (stopped,) = await told.wait_for(Event.PARTITION_STOPPED)
            assert (stopped["reason"], stopped["source_from"], stopped["source_to"]) == (
                GapKind.TRUNCATED_END,
                1000,
                800,
            )
            await write(source, WHERE, some_records(LATER + 300, 50))  # what comes while it stands still
            await told.wait_for(Event.STARTED)
            assert len(await read_all(target, WHERE)) == 1000
            state = await load_link_state(link, target)
            assert WHERE in state.entries.in_doubt(asks_source=False)
            await accept_all(link, target, "op")
            found = await wait_for_records(target, WHERE, 1350)
            await write(source, WHERE, some_records(LATER + 350, 10))
            found = await wait_for_records(target, WHERE, 1360)
        assert contents(found[:1000]) == contents(some_records(0, 1000))
        assert contents(found[1000:]) == contents(some_records(LATER, 360))
        offset_map = (await load_link_state(link, target)).map
        by_offset = {record.offset: record for record in found}
        for source_record in await read_all(source, WHERE):
            at = offset_map.to_target(*WHERE, source_record.offset)
            assert at is not None
            assert contents([by_offset[at]]) == contents([source_record])


async def test_a_source_that_lost_its_end_goes_on_by_itself_when_its_newer_disk_is_back(sites: Sites) -> None:
    async with sites.up() as (_, source, _target):
        await make_topic(source, WHERE.topic)
        await write(source, WHERE, some_records(0, 80))
    sites.keep("east", "older")
    async with sites.up() as (link, source, target):
        await write(source, WHERE, some_records(80, 20))
        async with running(link):
            await wait_for_records(target, WHERE, 100)
    sites.keep("east", "newer")
    sites.restore("east", "older")
    async with sites.up() as (link, _source, target), running(link) as told:
        (stopped,) = await told.wait_for(Event.PARTITION_STOPPED)
        assert stopped["reason"] == GapKind.TRUNCATED_END
    sites.restore("east", "newer")
    async with sites.up() as (link, source, target):
        await write(source, WHERE, some_records(100, 10))
        entries = (await load_link_state(link, target)).entries
        (shown,) = await look_ahead(link, (source, target), entries, list(entries.open_gaps().values()))
        assert shown.meaning.startswith("the source has again all that was mirrored: at its next start")
        async with running(link) as told:
            found = await wait_for_records(target, WHERE, 110)
            assert not told.of(Event.PARTITION_STOPPED)
        assert contents(found) == contents(some_records(0, 110))
        (gap,) = (await load_link_state(link, target)).entries.gaps.values()
        assert gap.status is GapStatus.GONE


async def test_what_a_link_brought_behind_the_last_of_a_sites_own_records_is_no_doubt_of_it(sites: Sites) -> None:
    """Links both ways: there are the other site's records, and the markers of who brought them."""

    def back(link: Link) -> Link:
        return replace(link, name="west-east", source=link.target, target=link.source)

    async with sites.up() as (link, east, west):
        for site in (east, west):
            await make_topic(site, WHERE.topic)
        await write(west, WHERE, some_records(0, 20))
        async with running(link, back(link)):
            await wait_for_records(east, WHERE, 20)
    sites.keep("west", "older")
    async with sites.up() as (link, east, west):
        await write(east, WHERE, some_records(20, 20))
        async with running(link, back(link)):
            await wait_for_records(west, WHERE, 40)
            end = (await log_end_offsets(west, [WHERE]))[WHERE]
            await wait_for_position(back(link), east, end)
    sites.keep("west", "newer")
    sites.restore("west", "older")
    async with sites.up() as (link, _east, west):
        assert (await log_end_offsets(west, [WHERE]))[WHERE] < end
        async with running(back(link)) as told:
            (stopped,) = await told.wait_for(Event.PARTITION_STOPPED)
            assert stopped["reason"] == GapKind.TRUNCATED_END
    sites.restore("west", "newer")
    async with sites.up() as (link, east, west):
        await write(west, WHERE, some_records(40, 5))
        async with running(link, back(link)) as told:
            found = await wait_for_records(east, WHERE, 45)
            assert not told.of(Event.PARTITION_STOPPED)
        assert contents(found) == contents(some_records(0, 45))


async def wait_for_position(link: Link, target: Cluster, position: int) -> None:
    async def proved() -> bool:
        checkpoint = (await load_link_state(link, target)).entries.checkpoints.get(WHERE)
        return checkpoint is not None and checkpoint.position >= position

    await eventually(proved, f"a checkpoint at {position}")


async def test_a_source_that_was_not_touched_goes_on_over_restarts(sites: Sites) -> None:
    count = 0
    for _ in range(3):
        async with sites.up() as (link, source, target):
            if not count:
                await make_topic(source, WHERE.topic)
            await write(source, WHERE, some_records(count, 20))
            count += 20
            async with running(link) as told:
                await wait_for_records(target, WHERE, count)
                assert not told.of(Event.PARTITION_STOPPED)
            async with running(link) as told:
                await told.wait_for(Event.STARTED)
                assert not told.of(Event.PARTITION_STOPPED)
            assert contents(await read_all(target, WHERE)) == contents(some_records(0, count))
