"""`--whole-site` with several links: until the fence of one all go, or none; what stays behind that stays closed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.site_role import set_site_role, site_standing
from broker.wire.site_role import SiteRole
from failover.errors import GateRefused
from failover.freezing.hooks import Hooks
from failover.journal.standing import OPEN_STATES, OperationState, given_up_links, standing_of
from failover.planning.links import plan_link
from failover.running.taking_up import begin, resume
from failover.running.whole_site import WholeSiteCut
from mirror.offsets.operations import promote_link
from tests.failover.machines import HEIR, machine, quick
from tests.failover.running.test_site_moves import (
    ID,
    SWITCHOVER,
    die_between_fences,
    dying_when_begun,
    take_up,
    until_death,
)
from tests.failover.site_stage import ORDERS, SiteStage, both_mirrored, refuses, two_links
from tests.failover.stage import now_ms, reading
from tests.mirror.harness import running, some_records, write

WHOLE = replace(SWITCHOVER, whole_site=True)


async def states(stage: SiteStage) -> list[tuple[str, str]]:
    return [await stage.state_of(link) for link in stage.links]


async def close_target(stage: SiteStage) -> None:
    known = await site_standing(stage.target)
    assert known is not None
    await set_site_role(stage.target, SiteRole.STANDBY, "tests", known)


async def test_all_links_go_and_the_whole_site_stands_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    async with two_links(tmp_path) as stage, both_mirrored(stage):
        await close_target(stage)
        with monkeypatch.context() as patched:
            await until_death(stage, monkeypatch, dying_when_begun(patched, "hand_over"), WHOLE)
        await take_up(stage)
        assert await states(stage) == [("promoted", ID)] * 2
        source, target = await site_standing(stage.source), await site_standing(stage.target)
        assert source is not None
        assert target is not None
        assert (source.role, source.topics, target.role) == (SiteRole.STANDBY, (), SiteRole.ACTIVE)


async def test_a_link_that_somebody_has_by_then_stops_the_others_before_their_fence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each link was asked right before its own fence, and the other one was promoted beside it."""
    quick(monkeypatch)
    async with two_links(tmp_path) as stage, both_mirrored(stage):
        intent = replace(WHOLE, links=tuple(link.name for link in stage.links))
        moves = [await plan_link(intent, one, Hooks()) for one in stage.sites]
        await promote_link(stage.orders, stage.target, "another", [])
        with pytest.raises(WholeSiteCut, match="another set the link east-west-orders to promoted"):
            await begin(moves, intent, ID, "tests", {})
        assert await states(stage) == [("running", ""), ("promoted", "another")]
        assert refuses(await site_standing(stage.source)) == (False, False)
        assert standing_of(await stage.log(ID), now_ms()).state is OperationState.GIVEN_UP


async def test_taken_up_before_the_fence_it_does_not_go_on_without_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    async with two_links(tmp_path) as stage, both_mirrored(stage):
        with monkeypatch.context() as patched:
            await until_death(stage, monkeypatch, dying_when_begun(patched, "drain"), WHOLE)
        reader = reading(stage.orders.source.bootstrap_servers, "billing", "orders")
        async with reader, machine(HEIR, *stage.links) as sites:
            with pytest.raises(GateRefused, match="or none, and east-west-orders does not: group_active") as refused:
                await resume(await stage.log(ID), sites, Hooks(), "an heir")
        assert f"`farshore operation abort {ID}` gives it up, and without --whole-site" in str(refused.value.hint)
        assert standing_of(await stage.log(ID), now_ms()).state in OPEN_STATES
        await take_up(stage)


async def test_where_no_link_is_left_nothing_is_said_of_a_whole_site_that_nobody_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    async with two_links(tmp_path) as stage:
        async with both_mirrored(stage):
            pass
        await write(stage.source, ORDERS[0], some_records(9000, 5))
        async with running(stage.flights):
            with monkeypatch.context() as patched:
                death = dying_when_begun(patched, "fence")
                await until_death(stage, monkeypatch, death, replace(SWITCHOVER, drain_timeout_s=3.0))
        assert set(given_up_links(await stage.log(ID))) == {"east-west-orders"}
        reader = reading(stage.flights.source.bootstrap_servers, "analysts", "flights")
        async with reader, machine(HEIR, *stage.links) as sites:
            with pytest.raises(GateRefused, match=r"cannot go on: group_active_at_source \(analysts\)") as refused:
                await resume(await stage.log(ID), sites, Hooks(), "an heir")
        assert "--whole-site" not in f"{refused.value} {refused.value.hint}"


async def test_taken_up_behind_the_fence_of_one_the_other_stays_closed_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    async with two_links(tmp_path) as stage, both_mirrored(stage):
        await close_target(stage)
        await die_between_fences(stage, monkeypatch, WHOLE)
        reader = reading(stage.orders.source.bootstrap_servers, "billing", "orders")
        async with reader, machine(HEIR, *stage.links) as sites:
            (flights,) = await resume(await stage.log(ID), sites, Hooks(), "an heir")
        assert flights.verified, flights.differences
        assert await states(stage) == [("promoted", ID), ("running", ID)]
        assert refuses(await site_standing(stage.source)) == (True, True)
        assert refuses(await site_standing(stage.target)) == (False, True), "its mirror runs"
        log = await stage.log(ID)
        assert standing_of(log, now_ms()).state is OperationState.IN_PART
        (why,) = given_up_links(log).values()
        assert why.endswith("its mirror runs on, and east, closed as a whole, takes no writes to its topics either")
