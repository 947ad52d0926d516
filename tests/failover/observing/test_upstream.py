"""East is active, west stands by for it, and north for west: who would move on from west is told of east."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.site import Site
from broker.client.site_role import set_site_role, site_standing
from broker.wire.site_role import SiteRole, SiteStanding
from deploy.cli.elsewhere_lines import untold_lines
from deploy.cli.gate_words import reason_of
from failover.freezing.choice import Freezing
from failover.journal.log import OperationJournal, claim
from failover.journal.values import Event
from failover.observing.readers import Readers
from failover.observing.upstream import look_moving_in, look_upstream
from failover.planning.gates import GateRefusal, RefusalReason
from failover.planning.plan import Elsewhere
from failover.running.steps import Operation
from mirror.link import Link
from mirror.offsets.operations import promote_link
from tests.failover.machines import quick
from tests.failover.observing.test_elsewhere import AT, Mesh, mesh
from tests.mirror.harness import eventually

NOBODY = "127.0.0.1:9"
TAKEN = GateRefusal(RefusalReason.ACTIVE_ELSEWHERE, "east-west", "east")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)


@asynccontextmanager
async def chain(folder: Path) -> AsyncIterator[Mesh]:
    async with mesh(folder, "east-west", "west-north") as sites:
        await eventually(lambda: sites.has_mirrored("west-north"), "the second link to have mirrored something")
        yield sites


async def set_role(sites: Mesh, site: str, role: SiteRole) -> None:
    known = await site_standing(sites.clusters[site])
    assert known is not None
    await set_site_role(sites.clusters[site], role, "tests", known)


async def test_a_move_from_what_stands_by_names_the_active_site_or_who_may_be_it(tmp_path: Path) -> None:
    async with chain(tmp_path) as sites:
        assert await sites.elsewhere("west-north") == [TAKEN]
        lives = await sites.plan("west-north", verb=Operation.FAILOVER)
        assert TAKEN in lives.plan.refusals
        known = sites.links["east-west"]
        sites.links["east-west"] = replace(known, source=Site("east", NOBODY))
        maybe = GateRefusal(RefusalReason.MAYBE_ELSEWHERE, "east-west", "east")
        assert await sites.elsewhere("west-north") == [maybe]
        sites.links["east-west"] = known
        await set_role(sites, "west", SiteRole.FROZEN)
        assert await sites.elsewhere("west-north") == [], "a move from west froze it, and was cut short"
        await sites.only("west")
        assert await sites.elsewhere("west-north") == []


@asynccontextmanager
async def under_way(sites: Mesh, name: str, operation_id: str, verb: Operation) -> AsyncIterator[None]:
    """Another machine's operation along the link, by its journal."""
    intent, target = sites.intent(name, verb=verb), sites.clusters[sites.links[name].target.name]
    between = (intent.source, intent.target)
    writer, _ = await claim(target, between, lambda _operations: None)
    journal = OperationJournal(target, operation_id, "another", writer, between)
    async with journal.kept((Event.PLANNED, {"intent": intent.document(), "who": "another"})):
        yield
    await journal.record(Event.FINISHED, {"verified": True, "has_findings": False, "results": []})


async def test_what_is_about_to_come_to_the_source_or_leave_the_target_is_waited_for(tmp_path: Path) -> None:
    """East is frozen by a move to west: no site was the active one, and a move from west opened north beside west."""
    async with chain(tmp_path) as sites:
        on = GateRefusal(RefusalReason.MOVING_ELSEWHERE, "switchover-on", "north")
        async with under_way(sites, "west-north", "switchover-on", Operation.SWITCHOVER):
            assert await sites.elsewhere("east-west") == [on]
        async with under_way(sites, "west-north", "failback-1", Operation.FAILBACK):
            assert await sites.elsewhere("east-west") == [], "it brings them from north to west"
            (back,) = await sites.elsewhere("west-east")
            assert "failback-1 takes topics of this link to north, or back from there" in reason_of(back, "", "")[0]
        await set_role(sites, "east", SiteRole.FROZEN)
        into = GateRefusal(RefusalReason.MOVING_ELSEWHERE, "switchover-in", "west")
        async with under_way(sites, "east-west", "switchover-in", Operation.SWITCHOVER):
            for role in (SiteRole.STANDBY, SiteRole.ACTIVE, SiteRole.FROZEN):
                await set_role(sites, "west", role)
                assert await sites.elsewhere("west-north") == [into], "whatever west says of itself"
            await promote_link(sites.links["east-west"], sites.clusters["west"], "switchover-in", [])
            assert await sites.elsewhere("west-north") == [into], "it is fenced, and not open yet"
        assert await sites.elsewhere("west-north") == []


async def test_that_nobody_knows_whether_a_move_comes_to_the_source_is_said(tmp_path: Path) -> None:
    """Where the question failed it was passed over, in the plan and at the fence."""
    async with chain(tmp_path) as sites:
        await sites.only("west")
        into = sites.links["east-west"]
        sites.links["east-west"] = replace(into, target=Site("west", NOBODY))
        move = await sites.plan("west-north")
        unknown = Elsewhere("east-west", "west", None)
        assert (move.plan.refusals, move.plan.elsewhere) == ((), (unknown,))
        assert await look_moving_in(move.sites.link, sites.declared(), [AT.topic], Readers()) == (unknown,)
        (said,) = untold_lines(move.plan)
        assert (
            said == "whether an operation brings topics of it to west along east-west is not known: west does not say"
        )
        await set_role(sites, "west", SiteRole.STANDBY)
        assert unknown not in (await sites.plan("west-north")).plan.elsewhere, "of whom it stands by for that is asked"


async def test_where_clients_were_moved_along_the_link_its_source_is_not_the_active_one(tmp_path: Path) -> None:
    async with chain(tmp_path) as sites:
        await promote_link(sites.links["east-west"], sites.clusters["west"], "failover-1", [])
        assert await sites.elsewhere("west-north") == []


async def test_a_lost_site_is_left_but_for_one_that_somebody_made_the_active_site(tmp_path: Path) -> None:
    async with chain(tmp_path) as sites:
        lost = await sites.plan("west-north", verb=Operation.FAILOVER, dead=True)
        assert TAKEN in lost.plan.refusals
        sites.links["west-east"] = replace(sites.links["west-east"], topics=("other",))
        sites.links["east-west"] = replace(sites.links["east-west"], topics=("other",))
        lost = await sites.plan("west-north", verb=Operation.FAILOVER, dead=True)
        assert lost.plan.refusals == (), "it carries other topics"
    async with mesh(tmp_path / "fed", "east-west", "east-north") as sites:
        await set_role(sites, "north", SiteRole.ACTIVE)
        lost = await sites.plan("east-west", verb=Operation.FAILOVER, dead=True)
        assert lost.plan.refusals == (), "north has them from east, whatever it takes itself"


async def test_the_active_site_is_found_behind_one_that_stands_by(tmp_path: Path) -> None:
    async with chain(tmp_path) as sites:
        north = sites.links["west-north"].target
        on = Link("north-south", north, Site("south", NOBODY), (AT.topic,))
        links = [sites.links["east-west"], sites.links["west-north"], on]
        standby = Freezing(SiteStanding(SiteRole.STANDBY, 3), topics=(AT.topic,))
        assert await look_upstream(on, links, standby, [AT.topic]) == (Elsewhere("east-west", "east", True),)
        frozen = Freezing(SiteStanding(SiteRole.FROZEN, 3), topics=(AT.topic,))
        assert await look_upstream(on, links, frozen, [AT.topic]) == ()
