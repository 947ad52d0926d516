"""A site that was closed as a whole, and what a way back along one pair of links opens there: its own topics alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.site import Site
from broker.client.site_role import set_site_role, site_standing
from broker.wire.site_role import SiteRole, SiteStanding
from deploy.topology import connect
from failover.freezing.acl_freeze import AclFreeze, open_again
from failover.freezing.acl_rights import denials_to_make, look
from failover.freezing.away import with_kept
from failover.freezing.choice import Freezing, joined, read_roles
from failover.freezing.hooks import Hooks
from failover.observing.sites import Sites
from failover.planning.intent import Intent
from failover.planning.links import plan_link
from failover.running.steps import Operation
from failover.running.taking_up import begin
from mirror.link import Link
from mirror.offsets.operations import promote_link, resume_link
from mirror.offsets.state import read_entries
from tests.failover.freezing.test_acl_freeze import locked
from tests.failover.machines import quick
from tests.failover.observing.test_many_links import has_mirrored
from tests.failover.site_stage import SiteStage, both_mirrored, refuses, two_links
from tests.failover.stage import TOPIC, now_ms
from tests.mirror.harness import eventually, make_topic, running

STANDBY = SiteStanding(SiteRole.STANDBY, 3, "somebody")


@dataclass
class Lost:
    """Two pairs of links; what went along both of them stands at west, and east is closed as a whole."""

    stage: SiteStage
    links: dict[str, Link]

    def back(self, name: str, links: Sequence[Link] | None = None) -> Sites:
        """The sites of the link back of the `name`d topic; `links`: of the file, where it has others."""
        there = self.links[f"{name}-back"]
        declared = tuple(self.links.values()) if links is None else tuple(links)
        return Sites(there, self.stage.target, self.stage.source, (), now_ms, links=declared)

    async def opened(self, name: str, links: Sequence[Link] | None = None, *, whole_site: bool = False) -> SiteStanding:
        """What east would be behind the move along that link back."""
        sites = self.back(name, links)
        intent = Intent(Operation.SWITCHOVER, (sites.link.name,), "west", "east", whole_site=whole_site)
        freezing = (await plan_link(intent, sites, Hooks())).plan.freezing
        assert freezing.target is not None
        return freezing.begun(freezing.target)


@asynccontextmanager
async def lost(folder: Path) -> AsyncIterator[Lost]:
    async with two_links(folder) as stage:
        pairs = [
            one
            for there in stage.links
            for one in (there, Link(f"{there.topics[0]}-back", there.target, there.source, there.topics))
        ]
        links = {link.name: link for link in connect(pairs)}
        for link in stage.links:
            await promote_link(links[link.name], stage.target, "failover-1")
        await set_site_role(stage.source, SiteRole.STANDBY, "somebody", await site_standing(stage.source))
        yield Lost(stage, links)


async def test_one_pair_that_comes_back_opens_none_of_the_topics_of_the_other(tmp_path: Path) -> None:
    async with lost(tmp_path) as sites:
        for whole_site in (False, True):
            then = await sites.opened("flights", whole_site=whole_site)
            assert (then.role, then.topics) == (SiteRole.STANDBY, ("orders",)), whole_site
        whole = Intent(Operation.SWITCHOVER, ("flights-back",), "west", "east", whole_site=True)
        await make_topic(sites.stage.target, "orders", 1)
        freezing = (await plan_link(whole, sites.back("flights"), Hooks())).plan.freezing
        assert (freezing.others, freezing.beside) == (("orders",), ("orders-back",))
        assert freezing.closed_at_both == ("orders",), "west is closed as a whole, too"
        alone = Intent(Operation.SWITCHOVER, ("flights-back",), "west", "east")
        freezing = (await plan_link(alone, sites.back("flights"), Hooks())).plan.freezing
        assert (freezing.target_kept, freezing.closed_at_both) == (("orders",), ()), "which west takes"
        now = await site_standing(sites.stage.source)
        then = await sites.opened("flights")
        await set_site_role(sites.stage.source, then.role, "flights are back", now, then.topics)
        assert (await sites.opened("orders")).role is SiteRole.ACTIVE, "the last one opens the rest"
        together = joined([await kept(sites, name) for name in ("flights", "orders")])
        assert together.begun(STANDBY).role is SiteRole.ACTIVE, "as one command brings both back"


async def kept(sites: Lost, name: str) -> Freezing:
    one = sites.back(name)
    return await with_kept(replace(await read_roles(one.link, one.source, one.target), target=STANDBY), one)


async def test_of_a_link_that_came_back_or_never_went_the_topics_are_opened(tmp_path: Path) -> None:
    async with lost(tmp_path) as sites:
        orders = sites.links["east-west-orders"]
        await promote_link(sites.links["orders-back"], sites.stage.source, "switchover-2", ["failover-1"])
        assert (await sites.opened("flights")).role is SiteRole.ACTIVE, "they are back, and their link does not run yet"
        await resume_link(orders, sites.stage.target, "tests")
        assert (await sites.opened("flights")).role is SiteRole.ACTIVE


async def test_what_another_link_brings_to_the_target_is_not_opened_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """West was closed as a whole, and flights alone went there: orders, of which east is the active site, and which its
    link brings to west, could be written at both.
    """
    quick(monkeypatch)
    async with two_links(tmp_path) as stage, both_mirrored(stage):
        await set_site_role(stage.target, SiteRole.STANDBY, "somebody", await site_standing(stage.target))
        moves = [
            await plan_link(
                Intent(Operation.SWITCHOVER, (link.name,), "east", "west"),
                Sites(link, stage.source, stage.target, (), now_ms, links=stage.links),
                Hooks(),
            )
            for link in stage.links
        ]
        flights = moves[0].plan.freezing
        together = joined([move.plan.freezing for move in moves])
        assert together.begun(STANDBY).role is SiteRole.ACTIVE, "as one command moves both"
        intent = Intent(Operation.SWITCHOVER, (stage.flights.name,), "east", "west")
        (result,) = await begin(moves[:1], intent, "switchover-1", "tests", {})
        assert result.verified
        east, west = await site_standing(stage.source), await site_standing(stage.target)
        assert east is not None
        assert west is not None
        assert [site.refuses("flights") for site in (east, west)] == [True, False]
        assert [site.refuses("orders") for site in (east, west)] == [False, True]
        assert flights.target_kept == ("orders",)


async def test_a_move_to_a_site_that_started_frozen_has_its_way_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """West stayed frozen for orders, so that the way back was refused: another move was under way there, it said, and
    a thaw, which the hint named, would have had both sites take orders.
    """
    quick(monkeypatch)
    async with two_links(tmp_path) as stage, both_mirrored(stage):
        await set_site_role(stage.target, SiteRole.FROZEN, "it was started", await site_standing(stage.target))
        back = Link("flights-back", stage.flights.target, stage.flights.source, ("flights",))
        links = connect([*stage.links, back])
        there = next(one for one in links if one.name == stage.flights.name)
        await moved(Sites(there, stage.source, stage.target, (), now_ms, links=links), "switchover-1")
        west = await site_standing(stage.target)
        assert west is not None
        assert (west.role, west.topics) == (SiteRole.STANDBY, ("orders",))
        way_back = next(one for one in links if one.name == back.name)
        async with running(way_back):
            await until_mirrored(way_back, stage.source)
            await moved(Sites(way_back, stage.target, stage.source, (), now_ms, links=links), "switchover-2")
        assert refuses(await site_standing(stage.source)) == (False, False)
        assert refuses(await site_standing(stage.target)) == (True, True)


async def moved(sites: Sites, operation_id: str) -> None:
    """By a switchover along the link."""
    source, target = sites.link.source.name, sites.link.target.name
    intent = Intent(Operation.SWITCHOVER, (sites.link.name,), source, target)
    move = await plan_link(intent, sites, Hooks())
    assert move.plan.refusals == ()
    (result,) = await begin([move], intent, operation_id, "tests", {})
    assert result.verified


async def until_mirrored(link: Link, target: Cluster) -> None:
    async def is_there() -> bool:
        return bool((await read_entries(link, target)).mirrored_topics())

    await eventually(is_there, f"{link.name} to have looked at its topics")


async def test_of_a_link_that_does_not_tell_the_topics_stay_closed_but_for_those_of_the_move(tmp_path: Path) -> None:
    nobody = Site("north", "127.0.0.1:9")
    async with lost(tmp_path) as sites:
        flights, back = sites.links["east-west-flights"], sites.links["flights-back"]
        hotels = Link("hotels", flights.source, nobody, ("hotels",))
        every = Link("every", flights.source, nobody, (".*",))
        then = await sites.opened("flights", [flights, back, hotels, every])
        assert (then.role, then.topics) == (SiteRole.STANDBY, ("hotels",)), "and of `.*` nobody knows which went"


def of_orders(sites: Lost, which: str) -> Link:
    """A link of the orders: back along the move's way, or of a third site, which says nothing."""
    east, west, north = (
        sites.links["flights-back"].target,
        sites.links["flights-back"].source,
        Site("north", "127.0.0.1:9"),
    )
    ends = {"back": (west, east), "in": (north, east), "on": (east, north), "up": (north, west), "off": (west, north)}
    return Link(f"orders-{which}", *ends[which], ("orders",))


@pytest.mark.parametrize(
    ("others", "closed_at_east", "expected", "for_third"),
    [
        (["back"], (), ("orders",), ()),
        (["in"], (), (), ("orders",)),
        (["back", "in"], (), (), ("orders",)),
        (["back", "on"], (), (), ("orders",)),
        (["back", "up"], (), (), ()),
        (["back", "off"], (), (), ()),
        (["back"], ("hotels",), (), ()),
        (["in"], ("hotels",), (), ()),
    ],
)
async def test_what_a_third_site_has_or_the_target_takes_is_not_named_as_closed_at_both(
    tmp_path: Path,
    others: list[str],
    closed_at_east: tuple[str, ...],
    expected: tuple[str, ...],
    for_third: tuple[str, ...],
) -> None:
    """Its clients were at that site, and a thaw of the target was advised, beside it. But what stays closed for links
    of the target's with a third site is named: that one may have started frozen, and then nobody takes it.
    """
    async with lost(tmp_path) as sites:
        flights, back = sites.links["east-west-flights"], sites.links["flights-back"]
        west, links = sites.stage.target, [of_orders(sites, which) for which in others]
        await make_topic(west, "orders", 1)
        await set_site_role(west, SiteRole.STANDBY, "somebody", await site_standing(west), ["orders"])
        for link in links:
            if link.name in ("orders-back", "orders-in", "orders-up"):
                await has_mirrored(link, west if link.target == west.site else sites.stage.source)
        one = sites.back("flights", [flights, back, *links])
        roles = await read_roles(one.link, one.source, one.target, whole_site=bool(closed_at_east))
        freezing = await with_kept(replace(roles, target=replace(STANDBY, topics=closed_at_east)), one)
        assert freezing.target_kept == ("orders",)
        assert freezing.closed_at_both == expected
        assert freezing.closed_for_third == for_third


async def test_a_damaged_state_of_another_link_keeps_its_topics_closed_and_stops_no_move(tmp_path: Path) -> None:
    """The failover of the one link could not be planned."""
    async with lost(tmp_path) as sites:
        orders = sites.links["orders-back"]
        await promote_link(orders, sites.stage.source, "switchover-2", ["failover-1"])
        for log in (tmp_path / "east").glob(f"{orders.state_topic}-*/*.log"):
            log.write_bytes(log.read_bytes()[:-1] + b"?" if log.stat().st_size else b"")
        freezing = await kept(sites, "flights")
        assert freezing.target_kept == ("orders",)


def test_what_a_link_that_stays_keeps_is_not_opened_with_those_that_go() -> None:
    flights = Freezing(target=STANDBY, target_topics=("flights",), target_kept=("hotels", "orders"))
    orders = Freezing(target=STANDBY, target_topics=("orders",), target_kept=("flights", "hotels"))
    assert joined([flights, orders]).begun(STANDBY).topics == ("hotels",)
    assert joined([flights]).begun(STANDBY).topics == ("hotels", "orders")


@pytest.mark.parametrize(
    ("before", "topics", "but", "expected"),
    [
        (STANDBY, ["flights"], ["orders"], (SiteRole.STANDBY, ("orders",), ())),
        (STANDBY, [], ["orders"], (SiteRole.STANDBY, ("orders",), ())),
        (STANDBY, ["orders"], ["orders"], (SiteRole.ACTIVE, (), ())),
        (STANDBY, ["flights"], [".*"], (SiteRole.STANDBY, (), ())),
        (SiteStanding(), ["flights"], ["orders"], (SiteRole.ACTIVE, (), ())),
        (SiteStanding(), [], ["orders"], (SiteRole.ACTIVE, (), ())),
        (replace(STANDBY, topics=("flights", "orders")), [], ["orders"], (SiteRole.STANDBY, ("orders",), ())),
        (replace(STANDBY, topics=("flights",)), ["flights"], ["orders"], (SiteRole.ACTIVE, (), ())),
        (SiteStanding(SiteRole.FROZEN, 3), ["flights"], ["orders"], (SiteRole.STANDBY, ("orders",), ())),
        (
            SiteStanding(SiteRole.FROZEN, 3, topics=("cars", "flights", "orders")),
            ["flights"],
            ["orders"],
            (SiteRole.FROZEN, ("cars", "orders"), ("orders",)),
        ),
        (
            SiteStanding(SiteRole.FROZEN, 3, standby=("cars",)),
            ["flights"],
            ["orders"],
            (SiteRole.STANDBY, ("cars", "orders"), ()),
        ),
    ],
)
def test_what_is_kept_stays_closed_for_good(
    before: SiteStanding, topics: list[str], but: list[str], expected: tuple[SiteRole, tuple[str, ...], tuple[str, ...]]
) -> None:
    then = before.opened("", topics, but)
    assert (then.role, then.topics, then.standby) == expected


@pytest.mark.parametrize(("topics", "but"), [([], ["hotels"]), ([TOPIC], [])])
async def test_acls_of_topics_that_are_kept_are_not_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topics: list[str], but: list[str]
) -> None:
    """A site without roles is closed topic by topic, and so opened; but for a move that opens all that it has."""
    async with locked(tmp_path, monkeypatch) as there:
        east = there.stage.source
        await make_topic(east, "hotels", 1)
        denials = await denials_to_make(east, ())
        assert denials is not None
        await AclFreeze(east, "site-standby").close(denials, ())
        assert (await look(east)).topics == (TOPIC, "hotels")
        await open_again(east, topics, None, but)
        assert (await look(east)).topics == ("hotels",)
