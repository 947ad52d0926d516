"""A source that lost its end and grew past it again: nothing is lost or mistranslated without a word."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.site import Site
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets.entries import GapKind
from mirror.offsets.state import load_link_state
from mirror.worker.events import Event
from tests.broker.running import running_broker
from tests.mirror.harness import (
    accept_all,
    contents,
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

    def keep(self, name: str) -> None:
        shutil.copytree(self.folder / name, self.folder / f"{name}-kept")

    def restore(self, name: str) -> None:
        shutil.rmtree(self.folder / name)
        shutil.copytree(self.folder / f"{name}-kept", self.folder / name)


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
