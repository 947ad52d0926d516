"""A move of many links asks a third site for its operations once, and not for each of them; so do a drill and a
failback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from broker.client.cluster import Cluster
from broker.client.site import Site
from deploy.cli.drill import drill_links
from deploy.cli.failback_site import _look_beside
from deploy.cli.terminal import AppContext
from failover.freezing.choice import UNFROZEN
from failover.journal.log import OperationJournal, OperationsReader, claim
from failover.journal.values import Event, OperationsFolding
from failover.observing.elsewhere import look_elsewhere
from failover.observing.readers import Readers
from failover.observing.upstream import look_upstream
from failover.planning.intent import Intent
from failover.planning.plan import Elsewhere
from failover.running.steps import Operation
from mirror.link import Link
from mirror.offsets.entries import Checkpoint, Writer
from mirror.offsets.intervals import End
from mirror.offsets.operations import promote_link
from mirror.offsets.taking_over import claim_link
from tests.broker.running import running_server
from tests.mirror.harness import make_topic

NOBODY = "127.0.0.1:9"
LINKS = 5


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bytes | None]:
    """The keys of all records that are read of journals."""
    real, found = OperationsFolding.take, list[bytes | None]()

    def take(self: OperationsFolding, key: bytes | None, value: bytes | None) -> None:
        found.append(key)
        real(self, key, value)

    monkeypatch.setattr(OperationsFolding, "take", take)
    return found


@asynccontextmanager
async def moved_by_another(site: Cluster, links: Sequence[Link]) -> AsyncIterator[None]:
    """A move of these links to the site is under way."""
    between = (links[0].source.name, links[0].target.name)
    writer, _ = await claim(site, between, lambda _operations: None)
    journal = OperationJournal(site, "op", "another", writer, between)
    intent = Intent(Operation.SWITCHOVER, tuple(one.name for one in links), *between)
    async with journal.kept((Event.PLANNED, {"intent": intent.document(), "who": "another"})):
        yield


async def has_mirrored(link: Link, target: Cluster) -> None:
    """As the link's state has it."""
    await make_topic(target, link.state_topic, 1, **{"cleanup.policy": "compact"})
    mirrored = Checkpoint(link.topics[0], 0, End(5, 5), 5, Writer(1, 0), 0, 5, -1, 0)
    await claim_link(target, link, "host:1", also=[mirrored])


async def test_its_journal_is_read_once(tmp_path: Path, taken: list[bytes | None]) -> None:
    """Of twenty links each read it by itself, all the evidence of twenty moves of 1,000 groups: none was done within
    the five seconds that the site has, and right before the fence who does not tell is passed over.
    """
    async with running_server(tmp_path) as server, Cluster(Site("north", server.address)) as north:
        east, west = Site("east", NOBODY), Site("west", NOBODY)
        topics = [f"topic-{number}" for number in range(LINKS)]
        moves = [Link(f"west-{topic}", east, west, (topic,)) for topic in topics]
        away = [Link(f"north-{topic}", east, north.site, (topic,)) for topic in topics]
        into = [Link(f"into-{topic}", west, north.site, (topic,)) for topic in topics]
        on = [Link(f"on-{topic}", north.site, east, (topic,)) for topic in topics]
        async with moved_by_another(north, away):
            await OperationsReader().read(north)
            taken.clear()
            readers = Readers()
            looks = [look_elsewhere(one, away, one.topics, readers=readers) for one in moves]
            found = await asyncio.gather(*looks)
            assert found == [(Elsewhere(one.name, "north", is_active=False, operation_id="op"),) for one in away]
            once = len(taken)
            assert once == 2, "its lease and its first entry"
            again = [look_upstream(one, into, UNFROZEN, one.topics, readers) for one in on]
            assert await asyncio.gather(*again) == [()] * LINKS
            assert len(taken) == once


async def test_a_drill_reads_the_journals_of_its_target_and_of_a_third_site_once(
    tmp_path: Path, taken: list[bytes | None]
) -> None:
    """Twenty links read them forty times: it took 7.7 s, and of each group it was said that the site does not tell."""
    async with (
        running_server(tmp_path / "west") as at_west,
        running_server(tmp_path / "north") as at_north,
        Cluster(Site("west", at_west.address)) as west,
        Cluster(Site("north", at_north.address)) as north,
    ):
        east, topics = Site("east", NOBODY), [f"topic-{number}" for number in range(LINKS)]
        links = [Link(f"west-{topic}", east, west.site, (topic,)) for topic in topics]
        away = [Link(f"north-{topic}", east, north.site, (topic,)) for topic in topics]
        for link in links:
            await has_mirrored(link, west)
        async with moved_by_another(north, away), moved_by_another(west, links):
            for site in (north, west):
                await OperationsReader().read(site)
            taken.clear()
            drills = await drill_links(links, {}, [*links, *away])
    found = {(one.link, each.kind) for one in drills for each in one.findings}
    assert found >= {(one.name, "moving_elsewhere") for one in links}
    assert found >= {(one.name, "operation_under_way") for one in links}
    assert len(taken) == 4, "a lease and a first entry at each of the two"


async def test_the_way_back_of_many_links_reads_the_journal_of_a_third_site_once(
    tmp_path: Path, taken: list[bytes | None]
) -> None:
    async with AsyncExitStack() as stack:
        names = ("east", "west", "north")
        servers = {name: await stack.enter_async_context(running_server(tmp_path / name)) for name in names}
        sites = {name: Site(name, server.address) for name, server in servers.items()}
        east, west, north = [await stack.enter_async_context(Cluster(site)) for site in sites.values()]
        topics = [f"topic-{number}" for number in range(LINKS)]
        there = [Link(f"there-{topic}", east.site, west.site, (topic,)) for topic in topics]
        back = [Link(f"back-{topic}", west.site, east.site, (topic,)) for topic in topics]
        away = [Link(f"north-{topic}", west.site, north.site, (topic,)) for topic in topics]
        for link, topic in zip(there, topics, strict=True):
            for site in (east, west):
                await make_topic(site, topic)
            await has_mirrored(link, west)
            await promote_link(link, west, "failover-1", [])
        links = {one.name: one for one in (*there, *back, *away)}
        app = cast(AppContext, SimpleNamespace(link=links.__getitem__, links=lambda: tuple(links.values())))
        async with moved_by_another(north, away):
            await OperationsReader().read(north)
            taken.clear()
            found = await _look_beside(app, {one.name: tmp_path / one.name for one in there})
    assert [one.plan is not None and one.plan.link_back for one in found] == [one.name for one in back]
    assert len(taken) == 2, "its lease and its first entry"
