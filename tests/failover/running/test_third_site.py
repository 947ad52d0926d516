"""Two failovers from one lost site, to two others: never are both active unasked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.client.cluster import Cluster
from broker.client.site import Site
from broker.client.site_role import site_standing
from deploy.cli.elsewhere_lines import silent_lines
from failover.errors import OperationUnderWay, StillFrozen
from failover.freezing.choice import Freezing
from failover.freezing.hooks import Hooks
from failover.journal.log import OperationJournal
from failover.journal.standing import OperationState, standing_of
from failover.journal.values import Event, JournalEntry
from failover.observing.sites import Sites
from failover.planning.gates import GateRefusal, RefusalReason
from failover.planning.links import plan_link
from failover.planning.plan import Elsewhere, plan_switchover
from failover.running.link_run import LinkMove
from failover.running.result import OperationResult
from failover.running.steps import Operation
from failover.running.taking_up import begin, find_operation, resume
from failover.running.third_site import refuse_third_site
from mirror.api import promote_link
from mirror.link import Link
from tests.broker.running import running_server
from tests.failover.freezing.test_taken_up_frozen import noting
from tests.failover.machines import VICTIM, Death, is_death, mortal, quick
from tests.failover.observing.test_elsewhere import AT, Mesh, mesh
from tests.failover.stage import mirrored, now_ms, two_sites
from tests.mirror.harness import eventually, some_records, write


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)


async def active(sites: Mesh) -> set[str]:
    """Of those that are not lost."""
    found = {name: await site_standing(sites.clusters[name]) for name in ("west", "north")}
    return {name for name, standing in found.items() if standing is not None and not standing.refuses(AT.topic)}


async def fail_over(sites: Mesh, move: LinkMove) -> tuple[OperationResult, ...]:
    link = move.sites.link
    intent = sites.intent(link.name, verb=Operation.FAILOVER)
    return await begin([move], intent, f"failover-{link.target.name}", "tests", {})


async def die_in_hand_over(sites: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a failover from east to west, which is fenced then, and not open yet."""
    link, death, real = sites.links["east-west"], Death(), OperationJournal.record_all

    async def record_all(
        self: OperationJournal, noted: Sequence[tuple[str, Mapping[str, Any]]]
    ) -> Sequence[JournalEntry]:
        entries = await real(self, noted)
        if any(event == Event.STARTED and detail["step"] == "hand_over" for event, detail in noted):
            death.at = death.requests + 1
        return entries

    with mortal(monkeypatch, death), monkeypatch.context() as patched:
        patched.setattr(OperationJournal, "record_all", record_all)
        try:
            async with AsyncExitStack() as stack:
                west = await stack.enter_async_context(Cluster(link.target, client_id=VICTIM))
                victim = Sites(link, None, west, (), now_ms, links=sites.declared())
                intent = sites.intent("east-west", verb=Operation.FAILOVER)
                await fail_over(sites, await plan_link(intent, victim, Hooks()))
        except BaseException as error:  # a death is no Exception
            if not is_death(error):
                raise
    assert death.is_dead


async def test_one_that_is_taken_up_opens_no_site_beside_the_one_that_took_over_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """West went away amid its failover, and applications were taken to north; then west came back, and whoever brought
    that failover to its end opened west: verified, exit code 0.
    """
    async with mesh(tmp_path, "east-west", "east-north") as sites:
        await die_in_hand_over(sites, monkeypatch)
        assert await active(sites) == set()
        sites.unreachable = ("west",)
        move = await sites.plan("east-north", verb=Operation.FAILOVER, dead=True)
        assert move.plan.refusals == ()
        (result,) = await fail_over(sites, move)
        assert (result.verified, await active(sites)) == (True, {"north"})

        sites.unreachable = ()
        west = sites.clusters["west"]
        log = await find_operation(west, "failover-west")
        assert log is not None
        heir = Sites(sites.links["east-west"], None, west, (), now_ms, links=sites.declared())
        with pytest.raises(OperationUnderWay, match="topics of east-west to north: beside it west would be a second"):
            await resume(log, [heir], Hooks(), "an heir")
        assert await active(sites) == {"north"}
        log = await find_operation(west, "failover-west")
        assert log is not None
        assert standing_of(log, now_ms()).state is OperationState.CUT_SHORT, "to be aborted"


async def test_two_that_begin_at_once_open_one_site_at_most(tmp_path: Path) -> None:
    """Each had looked before the other's first entry was written, and both ended with 0."""
    async with mesh(tmp_path, "east-west", "east-north") as sites:
        moves = [await sites.plan(name, verb=Operation.FAILOVER, dead=True) for name in ("east-west", "east-north")]
        assert [move.plan.refusals for move in moves] == [(), ()]
        ended = await asyncio.gather(*(fail_over(sites, move) for move in moves), return_exceptions=True)
        refused = [error for error in ended if isinstance(error, OperationUnderWay)]
        assert refused
        assert len(await active(sites)) == 2 - len(refused)


async def test_what_stands_by_for_an_active_site_is_not_moved_on_beside_it(tmp_path: Path) -> None:
    """East is active and mirrors to west, which stands by and mirrors to north: a move from west to north is refused,
    as a thaw of north is.
    """
    async with mesh(tmp_path, "east-west", "west-north") as sites:
        await eventually(lambda: sites.has_mirrored("west-north"), "the second link to have mirrored something")
        assert await sites.active() == {"east"}
        move = await sites.plan("west-north")
        if not move.plan.refusals:
            (result,) = await begin([move], sites.intent("west-north"), "switchover-1", "tests", {})
            assert (result.verified, result.has_findings) == (True, False), "exit code 0"
        assert await sites.active() == {"east"}


async def test_of_two_along_a_chain_that_begin_at_once_one_opens_its_target_at_most(tmp_path: Path) -> None:
    """East to west, and west to north: each had looked before the other's first entry was written. Where each refused
    the other the first one left its source closed, as its clients might be at north by now.
    """
    async with mesh(tmp_path, "east-west", "west-north") as sites:
        await eventually(lambda: sites.has_mirrored("west-north"), "the second link to have mirrored something")
        await sites.only("west")
        moves = [await sites.plan(name) for name in ("east-west", "west-north")]
        assert [move.plan.refusals for move in moves] == [(), ()]

        async def switch_over(move: LinkMove) -> tuple[OperationResult, ...]:
            name = move.sites.link.name
            return await begin([move], sites.intent(name), f"switchover-{name}", "tests", {})

        ended = await asyncio.gather(*map(switch_over, moves), return_exceptions=True)
        refused = [error for error in ended if isinstance(error, OperationUnderWay)]
        assert refused
        assert len(refused) + sum(isinstance(one, tuple) for one in ended) == 2, ended


async def test_of_two_from_one_site_that_begin_at_once_neither_leaves_it_frozen(tmp_path: Path) -> None:
    """Who found it frozen by the other stayed open beside that, which was refused then, and left it closed."""
    async with mesh(tmp_path, "east-west", "east-north") as sites:
        moves = [await sites.plan(name) for name in ("east-west", "east-north")]

        async def switch_over(move: LinkMove) -> tuple[OperationResult, ...]:
            name = move.sites.link.name
            return await begin([move], sites.intent(name), f"switchover-{name}", "tests", {})

        ended = await asyncio.gather(*map(switch_over, moves), return_exceptions=True)
        assert any(isinstance(one, OperationUnderWay) for one in ended)
        assert all(isinstance(one, tuple | OperationUnderWay) for one in ended), ended
        assert len(await sites.active()) == 1


async def test_a_third_site_that_fell_silent_since_the_plan_is_named_in_the_result(tmp_path: Path) -> None:
    """It had said that it is not the active one; that nobody asked it again was passed over."""
    async with mesh(tmp_path, "east-west", "east-north") as sites:
        move = await sites.plan("east-west")
        assert (move.plan.refusals, move.plan.elsewhere) == ((), ())
        sites.unreachable = ("north",)
        move = replace(move, sites=replace(move.sites, links=sites.declared()))
        (result,) = await begin([move], sites.intent("east-west"), "switchover-1", "tests", {})
        assert (result.verified, result.has_findings) == (True, False)
        assert result.silent_at_fence == (Elsewhere("east-north", "north", None),)
        (said,) = silent_lines(result)
        assert said.startswith("whether north is active for topics of it (east-north) is not known: it does not say")


async def test_one_that_fell_silent_stops_a_move_from_a_site_that_was_left_as_when_it_is_planned(
    tmp_path: Path,
) -> None:
    async with mesh(tmp_path, "east-west", "east-north") as sites:
        await sites.only("nobody")
        move = await sites.plan("east-west")
        assert (move.plan.refusals, move.plan.elsewhere) == ((), ())
        sites.unreachable = ("north",)
        move = replace(move, sites=replace(move.sites, links=sites.declared()))
        planned = await sites.refusals("east-west")
        assert planned == (GateRefusal(RefusalReason.MAYBE_ELSEWHERE, "east-north", "north"),)
        with pytest.raises(OperationUnderWay, match="the fence north does not say whether it is active for topics"):
            await begin([move], sites.intent("east-west"), "switchover-1", "tests", {})
        assert await sites.active() == set()


async def test_whose_own_role_alone_was_not_known_is_asked_again_what_came_to_it(tmp_path: Path) -> None:
    """North brings topics to east, and did not say whether it takes writes to them. What was moved there since the plan
    was passed over, and that it says nothing any more, too.
    """
    async with mesh(tmp_path, "east-west", "east-north") as sites:
        move = await sites.plan("east-west")
        plan = replace(move.plan, elsewhere=(Elsewhere("north-east", "north", None),))
        assert await refuse_third_site(plan, move.sites) == ()
        sites.unreachable = ("north",)
        silent = replace(move.sites, links=sites.declared())
        assert await refuse_third_site(plan, silent) == (Elsewhere("east-north", "north", None),)
        await promote_link(sites.links["east-north"], sites.clusters["north"], "failover-9")
        await sites.only("north")
        with pytest.raises(OperationUnderWay, match="another operation moved topics of east-west to north"):
            await refuse_third_site(plan, move.sites)


async def test_a_source_that_did_not_say_who_moves_there_is_not_waited_for_again_and_hides_no_third_site(
    tmp_path: Path,
) -> None:
    calls = []

    async def call(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls.append("east")
        writer.close()

    async with mesh(tmp_path, "east-west", "east-north") as sites:
        move = await sites.plan("east-west")
        plan = replace(move.plan, elsewhere=(Elsewhere("west-east", "east", None),))
        other = await asyncio.start_server(call, "127.0.0.1", 0)
        async with other:
            east = Site("east", f"127.0.0.1:{other.sockets[0].getsockname()[1]}")
            sites.unreachable = ("north",)
            links = [replace(one, target=east) if one.target.name == "east" else one for one in sites.declared()]
            silent = await refuse_third_site(plan, replace(move.sites, links=tuple(links)))
        assert (silent, calls) == ((Elsewhere("east-north", "north", None),), [])


@pytest.mark.parametrize("is_there", [True, False])
async def test_a_move_that_is_given_up_does_not_let_clients_in_beside_a_third_site(
    tmp_path: Path, *, is_there: bool
) -> None:
    """Its thaw_hook ran, whoever was active by then; nor does it where that site has ceased to say whether it is."""
    async with two_sites(tmp_path) as stage, running_server(tmp_path / "north") as server:
        onward = Link("east-north", stage.link.source, Site("north", server.address), stage.link.topics)
        async with mirrored(stage):
            pass
        await write(stage.source, AT, some_records(5_000, 1))
        plan = plan_switchover(await stage.sites.look(), freezing=Freezing(hooks=noting(tmp_path / "noted")))
        async with Cluster(onward.target) as north:
            await promote_link(onward, north, "failover-9")
        declared = onward if is_there else replace(onward, target=Site("north", "127.0.0.1:9"))
        with pytest.raises(StillFrozen, match=r"not mirrored after 0 s.* north by now") as stays:
            await stage.run(plan, replace(stage.sites, links=(stage.link, declared)), drain_timeout_s=0.0)
        assert (tmp_path / "noted").read_text().split() == ["freeze"]
        assert "farshore site role" in (stays.value.hint or "")
        assert "`farshore site thaw --site east --topic " in (stays.value.hint or ""), "not what others closed there"
