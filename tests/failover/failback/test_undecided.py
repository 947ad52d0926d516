"""What the site to which clients are moved back has alone: what cannot be told of it is said, and is not nothing."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.site import Site
from broker.server import Server
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition
from failover.failback.undecided import Limit, look_for_undecided, opposite
from failover.planning.undecided import Undecided
from mirror.link import Link
from mirror.offsets.fence_ends import FenceEnd
from mirror.offsets.operations import promote_link
from mirror.offsets.source_ends import load_observation
from tests.broker.faults import Faults, injected
from tests.broker.running import running_server
from tests.mirror.harness import eventually, link_between, make_topic, running, some_records, wait_for_records, write

WHERE, OTHER = TopicPartition("flights", 0), TopicPartition("flights", 1)
MIRRORED, TAIL = 20, 7
LIST = "farshore stranded list --link east-west"


@dataclass
class Lost:
    """East was lost and is there again, with TAIL records of OTHER alone; all of WHERE had been mirrored."""

    link: Link
    east: Cluster
    west: Cluster
    brokers: dict[str, Server]

    @property
    def back(self) -> Link:
        return replace(self.link, name="west-east", source=self.link.target, target=self.link.source)

    async def found(self, *links: Link, is_west_there: bool = True) -> tuple[Undecided, ...]:
        ends = (self.west if is_west_there else None, self.east)
        return await look_for_undecided(["west-east"], [self.link, self.back, *links], ends, Limit.from_now())


@asynccontextmanager
async def lost(folder: Path) -> AsyncIterator[Lost]:
    async with running_server(folder / "east") as east, running_server(folder / "west") as west:
        link = replace(link_between(east.address, west.address, [WHERE.topic]), name="east-west")
        async with Cluster(link.source) as source, Cluster(link.target) as target:
            await make_topic(source, WHERE.topic, 2)
            for where in (WHERE, OTHER):
                await write(source, where, some_records(0, MIRRORED))

            async def is_seen() -> bool:
                return (await load_observation(link, target)).ends.keys() >= {WHERE, OTHER}

            async with running(link):
                for where in (WHERE, OTHER):
                    await wait_for_records(target, where, MIRRORED)
                await eventually(is_seen, "the source's ends to be seen")
            await write(source, OTHER, some_records(1_000, TAIL))
            now_ms = source.clock.now_ms()
            ends = {WHERE: MIRRORED, OTHER: MIRRORED + TAIL}
            told = {where: FenceEnd(end, now_ms, is_told=True) for where, end in ends.items()}
            await promote_link(link, target, "failover-1", ends=told)
            yield Lost(link, source, target, {"east": east, "west": west})


@pytest.mark.parametrize("site", ["east", "west"])
async def test_a_partition_that_cannot_be_read_is_told_with_the_reason_and_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: str
) -> None:
    """What had been mirrored of one that the target cannot read was told as records of the source alone."""
    async with lost(tmp_path) as case:
        (found,) = await case.found()
        assert (found.partitions, found.records, found.why_not_known) == (1, TAIL, "")
        unread = WHERE if site == "west" else OTHER
        faults = Faults(partitions={(ApiKey.FETCH, unread): ErrorCode.TOPIC_AUTHORIZATION_FAILED})
        with injected(monkeypatch, {case.brokers[site].broker: faults}):
            (found,) = await case.found()
        known = (1, TAIL) if site == "west" else (None, None)
        assert (found.partitions, found.records) == known
        assert found.why_not_known.startswith(f"flights-{unread.partition} at {site}: ")
        assert "TOPIC_AUTHORIZATION_FAILED" in found.why_not_known


async def test_where_the_link_itself_cannot_be_looked_at_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told as nothing."""
    async with lost(tmp_path) as case:
        (found,) = await case.found(is_west_there=False)
        assert found == Undecided("east-west", "east", "west", None, None, "west does not answer", (LIST,))
        state = TopicPartition(case.link.state_topic, 0)
        faults = Faults(partitions={(ApiKey.FETCH, state): ErrorCode.TOPIC_AUTHORIZATION_FAILED})
        with injected(monkeypatch, {case.brokers["west"].broker: faults}):
            (found,) = await case.found()
        assert (found.records, found.commands) == (None, (LIST,))
        assert "TOPIC_AUTHORIZATION_FAILED" in found.why_not_known


async def test_a_link_of_which_the_moved_one_brings_nothing_back_is_not_asked(tmp_path: Path) -> None:
    """By their patterns they may have a topic in common; what it mirrored comes back along another one."""
    async with lost(tmp_path) as case:
        wide = replace(case.back, topics=("other",))
        assert (
            await look_for_undecided(["west-east"], [case.link, wide], (case.west, case.east), Limit.from_now()) == ()
        )
        links = [case.link, replace(case.back, name="own"), replace(case.back, topics=("f.*z", "flights-.*"))]
        links[0] = replace(case.link, topics=("flights", "flights-.*"))
        found = await look_for_undecided(["west-east"], links, (case.west, case.east), Limit.from_now())
        assert found == (), "its own link back brings the flights"


def test_of_many_links_those_the_other_way_are_found_at_once() -> None:
    """Each link was compared with each: of 1,000 that took five minutes, in which nothing else of the command ran."""
    east, west = Site("east", "east:9092"), Site("west", "west:9092")
    links = [
        Link(f"{source.name}-{number}", source, target, (f"t{number}\\..*", f"u{number}"))
        for number in range(60)
        for source, target in ((east, west), (west, east))
    ]
    began_s = time.process_time()
    assert [link.name for link in opposite(["west-7"], links)] == ["east-7"]
    assert time.process_time() - began_s < 1.0
