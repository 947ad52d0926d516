"""A lost site that comes back with the disk of an earlier day, or with none: what the tests of that share."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from broker.broker import Broker
from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets
from broker.client.model import CommittedOffset
from broker.client.site import Site
from broker.wire.vocabulary import TopicPartition
from failover.failback.stranding import leave_at_source, look_for_stranded
from mirror.link import Link
from mirror.offsets.operations import promote_link
from tests.broker.running import running_server
from tests.mirror.harness import make_topic, running, some_records, wait_for_records, write

WHERE = TopicPartition("flights", 0)
OTHER = TopicPartition(WHERE.topic, 1)
OLDER, SINCE, NEWER = 30, 20, 9
"""Records that the older disk has, that east had more when it was lost, and that west wrote since."""
GROUP = "analysts"


@dataclass
class Disks:
    """Both sites in this process, which are stopped and started with what their disks then hold."""

    folder: Path

    @asynccontextmanager
    async def up(self) -> AsyncIterator[Up]:
        async with running_server(self.folder / "east") as east, running_server(self.folder / "west") as west:
            sites = Site("east", east.address), Site("west", west.address)
            there = Link("east-west", *sites, (WHERE.topic,), groups=(".*",), shared_targets=True)
            back = replace(there, name="west-east", source=there.target, target=there.source)
            there, back = replace(there, reverse_links=(back,)), replace(back, reverse_links=(there,))
            async with Cluster(there.source) as source, Cluster(there.target) as target:
                yield Up(there, back, source, target, west.broker)

    def keep(self) -> None:
        shutil.copytree(self.folder / "east", self.folder / "east-kept")

    def restore(self) -> None:
        self.empty()
        shutil.copytree(self.folder / "east-kept", self.folder / "east")

    def empty(self) -> None:
        shutil.rmtree(self.folder / "east")


@dataclass(frozen=True)
class Up:
    """`there` is east-west, `back` is west-east; `source` is east. `broker`: west's."""

    there: Link
    back: Link
    source: Cluster
    target: Cluster
    broker: Broker


async def lose_an_end(disks: Disks, own: int = 0, *, whole: int = 0) -> None:
    """All that east has is mirrored, west is promoted and goes on; then east has its older disk. `own`: records that
    east wrote behind the promotion, and of which somebody decided that they stay there, before that. `whole`: records
    of another partition, all of which the older disk has.
    """
    async with disks.up() as up:
        await make_topic(up.source, WHERE.topic, 2 if whole else 1)
        await write(up.source, WHERE, some_records(0, OLDER))
        if whole:
            await write(up.source, OTHER, some_records(0, whole))
        async with running(up.there):
            await wait_for_records(up.target, WHERE, OLDER)
            await wait_for_records(up.target, OTHER, whole) if whole else None
    disks.keep()
    async with disks.up() as up:
        await write(up.source, WHERE, some_records(100, SINCE))
        await commit_offsets(up.source, GROUP, {WHERE: CommittedOffset(OLDER + 5)})
        async with running(up.there):
            await wait_for_records(up.target, WHERE, OLDER + SINCE)
        await promote_link(up.there, up.target, "failover-1")
        await write(up.target, WHERE, some_records(200, NEWER))
        if own:
            await write(up.source, WHERE, some_records(700, own))
            tails = (await look_for_stranded(up.there, up.source, up.target)).undecided
            await leave_at_source(up.there, up.target, tails, "by a test")
    disks.restore()
