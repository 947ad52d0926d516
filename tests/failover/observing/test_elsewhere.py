"""Three sites with a link from each to each: whoever moves from a site that was left is told who is the active one."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets, committed_offsets
from broker.client.model import CommittedOffset
from broker.client.site import Site
from broker.client.site_role import set_site_role, site_standing
from broker.server import Server
from broker.wire.site_role import SiteRole, SiteStanding
from broker.wire.vocabulary import TopicPartition
from deploy.topology import connect
from failover.freezing.choice import Freezing
from failover.freezing.hooks import Hooks
from failover.observing.elsewhere import Hop, judge, look_elsewhere
from failover.observing.sites import Sites
from failover.planning.gates import GateRefusal, RefusalReason
from failover.planning.intent import Intent
from failover.planning.links import plan_link
from failover.planning.plan import Elsewhere
from failover.running.link_run import LinkMove
from failover.running.steps import Operation
from failover.running.taking_up import begin
from mirror.link import Link
from mirror.offsets.operations import promote_link
from mirror.offsets.state import read_entries
from tests.broker.running import running_server
from tests.failover.machines import VICTIM, Death, is_death, mortal, quick
from tests.failover.stage import now_ms
from tests.mirror.harness import eventually, make_topic, running, some_records, wait_for_records, write

AT = TopicPartition("flights", 0)
RECORDS = 20
READ = {"analysts": 7, "second": 9}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)


@dataclass
class Mesh:
    """Links by "SOURCE-TARGET". `unreachable`: sites that this machine's file has at an address where nobody is."""

    servers: dict[str, Server]
    clusters: dict[str, Cluster]
    links: dict[str, Link]
    unreachable: tuple[str, ...] = ()
    operations: int = 0

    def declared(self) -> tuple[Link, ...]:
        return tuple(
            replace(link, target=Site(link.target.name, "127.0.0.1:9"))
            if link.target.name in self.unreachable
            else link
            for link in self.links.values()
        )

    async def plan(
        self, name: str, *groups: str, verb: Operation = Operation.SWITCHOVER, dead: bool = False
    ) -> LinkMove:
        link = self.links[name]
        source = None if dead else self.clusters[link.source.name]
        sites = Sites(link, source, self.clusters[link.target.name], groups, now_ms, links=self.declared())
        return await plan_link(self.intent(name, *groups, verb=verb), sites, Hooks())

    def intent(self, name: str, *groups: str, verb: Operation = Operation.SWITCHOVER) -> Intent:
        link = self.links[name]
        sites = (link.source.name, link.target.name)
        return Intent(verb, (name,), *sites, groups=groups, allow_data_loss=True, even_if_source_answers=True)

    async def move(self, name: str, *groups: str) -> None:
        self.operations += 1
        move = await self.plan(name, *groups)
        assert move.plan.refusals == ()
        (result,) = await begin([move], self.intent(name, *groups), f"switchover-{self.operations}", "tests", {})
        assert result.verified, result.differences

    async def has_mirrored(self, name: str) -> bool:
        link = self.links[name]
        return AT in (await read_entries(link, self.clusters[link.target.name])).checkpoints

    async def refusals(self, name: str, *groups: str) -> tuple[GateRefusal, ...]:
        return (await self.plan(name, *groups)).plan.refusals

    async def elsewhere(self, name: str) -> list[GateRefusal]:
        return [one for one in await self.refusals(name) if one.reason.value.endswith("_elsewhere")]

    async def active(self) -> set[str]:
        """The sites that take a client's records, by their brokers."""
        found = {name: await site_standing(cluster) for name, cluster in self.clusters.items()}
        return {name for name, standing in found.items() if standing is not None and not standing.refuses(AT.topic)}

    async def only(self, active: str) -> None:
        """One site is the active one, the others are standby."""
        for name, cluster in self.clusters.items():
            known = await site_standing(cluster)
            assert known is not None
            if name != active:
                await set_site_role(cluster, SiteRole.STANDBY, "tests", known, (AT.topic,))
            else:
                await set_site_role(cluster, SiteRole.ACTIVE, "tests", known)


@asynccontextmanager
async def mesh(folder: Path, *run: str) -> AsyncIterator[Mesh]:
    """East is active. The links `run` are, and have brought their targets its records and groups."""
    async with AsyncExitStack() as stack:
        names = ("east", "west", "north")
        servers = {name: await stack.enter_async_context(running_server(folder / name)) for name in names}
        sites = {name: Site(name, server.address) for name, server in servers.items()}
        links = {f"{a}-{b}": Link(f"{a}-{b}", sites[a], sites[b], (AT.topic,)) for a, b in permutations(names, 2)}
        links |= {link.name: link for link in connect([replace(links[name], groups=(".*",)) for name in run])}
        clusters = {name: await stack.enter_async_context(Cluster(site)) for name, site in sites.items()}
        found = Mesh(servers, clusters, links)
        await make_topic(clusters["east"], AT.topic)
        await write(clusters["east"], AT, some_records(0, RECORDS))
        for group, read in READ.items():
            await commit_offsets(clusters["east"], group, {AT: CommittedOffset(read)})
        await found.only("east")
        await stack.enter_async_context(running(*[links[name] for name in run]))
        for name in {links[name].target.name for name in run} - {"east"}:
            await wait_for_records(clusters[name], AT, RECORDS)
            await eventually(partial(_has_groups, clusters[name]), f"groups at {name}")
        yield found


async def _has_groups(cluster: Cluster) -> bool:
    return all([AT in await committed_offsets(cluster, group) for group in READ])


async def test_a_site_that_was_left_is_not_moved_from_to_a_third_one(tmp_path: Path) -> None:
    async with mesh(tmp_path, "east-west", "east-north") as sites:
        await sites.move("east-west")
        assert await sites.active() == {"west"}
        taken = GateRefusal(RefusalReason.ACTIVE_ELSEWHERE, "east-west", "west")
        assert taken in await sites.refusals("east-north")
        lost = await sites.plan("east-north", verb=Operation.FAILOVER, dead=True)
        assert taken in lost.plan.refusals, "west says so also where east is gone"

        await promote_link(sites.links["west-north"], sites.clusters["north"], "failover-1", [])
        await sites.only("north")
        moved_on = GateRefusal(RefusalReason.ACTIVE_ELSEWHERE, "west-north", "north")
        assert moved_on in await sites.refusals("east-west", "second"), "a wave would open west again"
        assert await sites.active() == {"north"}, "nothing was changed"


async def test_waves_a_way_back_and_a_move_from_the_site_that_is_active_again_go_on(tmp_path: Path) -> None:
    async with mesh(tmp_path, "east-west", "west-east") as sites:
        await sites.move("east-west", "analysts")
        await sites.move("east-west", "second")
        await eventually(lambda: sites.has_mirrored("west-east"), "the link back to have mirrored something")
        await sites.move("west-east")
        assert await sites.active() == {"east"}
        assert await sites.elsewhere("east-north") == []


async def test_who_may_be_active_and_cannot_be_asked_stops_a_move_from_a_site_that_was_left_only(
    tmp_path: Path,
) -> None:
    async with mesh(tmp_path, "east-west", "east-north") as sites:
        sites.unreachable = ("west",)
        before = await sites.plan("east-north")
        assert (before.plan.refusals, before.plan.elsewhere) == ((), (Elsewhere("east-west", "west", None),))
        sites.unreachable = ()
        await sites.move("east-west")
        sites.unreachable = ("west",)
        assert GateRefusal(RefusalReason.MAYBE_ELSEWHERE, "east-west", "west") in await sites.refusals("east-north")
        lost = await sites.plan("east-north", verb=Operation.FAILOVER, dead=True)
        assert lost.plan.refusals == (), "both sites are lost: the third one is what is left"
        assert Elsewhere("east-west", "west", None) in lost.plan.elsewhere, "and that nobody knows is said"


async def test_a_source_that_another_move_froze_is_not_taken_away_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with mesh(tmp_path, "east-west", "east-north") as sites:
        link, clusters = sites.links["east-west"], []
        async with AsyncExitStack() as stack:
            for site in (link.source, link.target):
                clusters.append(await stack.enter_async_context(Cluster(site, client_id=VICTIM)))
            victim = Sites(link, clusters[0], clusters[1], (), now_ms)
            move = await plan_link(sites.intent("east-west"), victim, Hooks())
            with mortal(monkeypatch, Death(10_000)) as death:

                async def when_frozen() -> None:
                    while not await _frozen():  # without a pause: it lasts for moments
                        pass
                    death.at = death.requests + 1

                async def _frozen() -> bool:
                    standing = await site_standing(sites.clusters["east"])
                    return standing is not None and standing.role is SiteRole.FROZEN

                try:
                    async with asyncio.TaskGroup() as tasks:
                        tasks.create_task(when_frozen())
                        await begin([move], sites.intent("east-west"), "switchover-cut", "a victim", {})
                except BaseException as error:  # a death is no Exception
                    if not is_death(error):
                        raise
        refusals = await sites.refusals("east-north")
        assert GateRefusal(RefusalReason.MOVING_ELSEWHERE, "switchover-cut", "west") in refusals


async def test_where_nobody_is_refused_the_last_site_of_the_way_is_the_active_one(tmp_path: Path) -> None:
    """As on Apache Kafka: no site has a role."""
    async with mesh(tmp_path) as sites:
        for cluster in sites.clusters.values():
            known = await site_standing(cluster)
            assert known is not None
            await set_site_role(cluster, SiteRole.ACTIVE, "tests", known)
        east_west = sites.links["east-west"]
        await promote_link(east_west, sites.clusters["west"], "failover-1", [])
        asked = (sites.links["east-north"], sites.declared(), [AT.topic])
        assert await look_elsewhere(*asked) == (Elsewhere("east-west", "west", True),)


def test_a_standing_says_whether_a_site_was_left_for_topics_of_the_move() -> None:
    standby = SiteStanding(SiteRole.STANDBY, 3, "somebody", ("flights",))
    assert Freezing(standby, topics=("flights",)).was_left
    assert not Freezing(standby, topics=("orders",)).was_left
    assert Freezing(standby).was_left, "the move is of all topics"
    assert not Freezing(SiteStanding(SiteRole.FROZEN, 3, "x", ("flights",)), topics=("flights",)).was_left


def hop(name: str, *, moved: bool = True, told: bool = True, sure: bool = True, writes: bool | None = None) -> Hop:
    source, _, target = name.partition("-")
    link = Link(name, Site(source, "127.0.0.1:9"), Site(target, "127.0.0.1:9"), (AT.topic,))
    return Hop(link, frozenset([AT.topic]), told, moved and told, writes, is_sure=sure)


@pytest.mark.parametrize(
    ("hops", "found"),
    [
        ([hop("east-west")], [("west", True)]),
        ([hop("east-west"), hop("west-south")], [("south", True)]),
        # East is lost, and with it whether clients came back there.
        ([hop("east-west", sure=False), hop("west-east", told=False)], [("west", None)]),
        ([hop("east-west"), hop("west-south", told=False)], [("west", None), ("south", None)]),
        ([hop("east-west", sure=False, writes=True)], [("west", True)]),
        ([hop("east-west", sure=False, writes=False)], []),
        ([hop("east-west"), hop("west-south", sure=False)], [("west", None), ("south", None)]),
        ([hop("east-west", moved=False)], []),
    ],
)
def test_only_who_certainly_took_over_is_said_to_be_active(
    hops: list[Hop], found: list[tuple[str, bool | None]]
) -> None:
    assert [(one.site, one.is_active) for one in judge(hops, {"east", "north"})] == found


async def test_a_site_that_takes_writes_says_so_whatever_the_one_before_does_not_tell(tmp_path: Path) -> None:
    """East hangs: nobody learns from it whether clients came back."""
    async with mesh(tmp_path, "east-west", "east-north") as sites:
        await sites.move("east-west")
        with socket.create_server(("127.0.0.1", 0)) as silent:  # it is connected to, and says nothing
            address = f"127.0.0.1:{silent.getsockname()[1]}"
            hung = Site("east", f"{address},{address}")
            links = [replace(sites.links[f"east-{name}"], source=hung) for name in ("west", "north")]
            links += [replace(sites.links[f"{name}-east"], target=hung) for name in ("west", "north")]
            found = await look_elsewhere(sites.links["east-north"], links, [AT.topic])
        assert Elsewhere("east-west", "west", True) in found
