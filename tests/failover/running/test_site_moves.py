"""All links from one site to another moved by one operation: to the end, in part, and taken up elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.client.cluster import Cluster
from broker.client.errors import KafkaError
from broker.client.groups import commit_offsets, committed_offsets
from broker.client.model import CommittedOffset
from broker.client.same_leaders import BrokersDiffer
from broker.client.site_role import set_site_role, site_standing
from broker.wire.errors import ErrorCode
from broker.wire.site_role import SiteRole
from failover.errors import CutShort, GateRefused, NotDrained
from failover.freezing.hooks import Hooks
from failover.journal.log import OperationJournal, load_operations
from failover.journal.standing import OperationState, standing_of
from failover.journal.values import Event, JournalEntry
from failover.observing.sites import Sites
from failover.planning.intent import Intent
from failover.planning.links import plan_or_refuse
from failover.planning.staying import StayingLink
from failover.running.groups_stand import GroupsStand
from failover.running.link_run import LinkMove
from failover.running.steps import Operation
from failover.running.taking_up import resume
from failover.running.whole_site import WholeSiteCut
from mirror.link import Link
from mirror.offsets.fence import Fence
from mirror.offsets.operations import promote_link
from tests.failover.machines import HEIR, VICTIM, Death, is_death, machine, mortal, operate, quick
from tests.failover.site_stage import FLIGHTS, ORDERS, RECORDS, SiteStage, both_mirrored, refuses, two_links
from tests.failover.stage import now_ms, reading
from tests.mirror.harness import contents, read_all, running, some_records, wait_for_records, write

ID = "switchover-east-west-1"
SWITCHOVER = Intent(Operation.SWITCHOVER, (), "east", "west", is_site=True)
STEPS = ("freeze", "drain", "fence", "move_groups", "hand_over", "verify")


async def expect_all_moved(stage: SiteStage) -> None:
    for at in (*FLIGHTS, *ORDERS):
        assert contents(await read_all(stage.target, at)) == contents(await read_all(stage.source, at))
    assert await stage.next_records(stage.target) == await stage.next_records(stage.source)
    assert [await stage.state_of(link) for link in stage.links] == [("promoted", ID)] * 2
    source, target = await site_standing(stage.source), await site_standing(stage.target)
    assert source is not None
    assert (source.role, refuses(source), source.refuses("other")) == (SiteRole.STANDBY, (True, True), False)
    assert refuses(target) == (False, False)
    assert standing_of(await stage.log(ID), now_ms()).state is OperationState.VERIFIED


async def test_all_links_are_moved_by_one_operation_under_one_freeze(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    async with two_links(tmp_path) as stage, both_mirrored(stage):
        results = await operate(SWITCHOVER, stage.sites, ID)
        assert [(result.link, result.verified) for result in results] == [(link.name, True) for link in stage.links]
        await expect_all_moved(stage)
        log = await stage.log(ID)
        assert list(await load_operations(stage.target)) == [ID]
        assert [entry.detail["step"] for entry in log.entries if entry.event == Event.DONE] == list(STEPS)


async def test_a_link_that_does_not_drain_stays_as_it_is_and_the_other_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    async with two_links(tmp_path) as stage:
        async with both_mirrored(stage):
            pass
        await write(stage.source, ORDERS[0], some_records(9000, 5))
        stands: list[GroupsStand] = []
        async with running(stage.flights):
            intent = replace(SWITCHOVER, drain_timeout_s=10.0, refused_links=("bills",))
            results = await operate(intent, stage.sites, ID, tell=stands.append)
        flights, orders = results
        (stand,) = stands
        assert stand.staying_links == (StayingLink("bills", None), StayingLink("east-west-orders", 2))
        assert (flights.verified, flights.failure) == (True, None)
        assert orders.failure is not None
        assert (orders.verified, orders.failure.is_given_up, orders.failure.step) == (False, True, "drain")
        assert "5 offsets in 1 partitions were still not mirrored" in orders.failure.error
        assert [await stage.state_of(link) for link in stage.links] == [("promoted", ID), ("running", "")]
        source = await site_standing(stage.source)
        assert source is not None
        assert (source.role, refuses(source)) == (SiteRole.STANDBY, (True, False)), "orders are written on"
        for at in FLIGHTS:
            assert await stage.next_record(stage.target, "analysts", at) == await stage.next_record(
                stage.source, "analysts", at
            )
        log = await stage.log(ID)
        assert standing_of(log, now_ms()).state is OperationState.IN_PART
        async with running(stage.orders):
            await wait_for_records(stage.target, ORDERS[0], RECORDS + 5)
            (again,) = await operate(SWITCHOVER, stage.sites[1:], "another")
        assert again.verified, again.differences
        assert await stage.next_records(stage.target) == await stage.next_records(stage.source)
        assert refuses(await site_standing(stage.source)) == (True, True)


async def test_a_link_that_does_not_drain_is_written_to_on_also_where_the_whole_site_was_frozen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was given up alone, "nothing was changed", and ran on; but its source stayed closed to it for good, and its
    target took writes beside its mirror.
    """
    quick(monkeypatch)
    async with two_links(tmp_path) as stage:
        async with both_mirrored(stage):
            pass
        known = await site_standing(stage.target)
        assert known is not None
        await set_site_role(stage.target, SiteRole.STANDBY, "tests", known)
        await write(stage.source, ORDERS[0], some_records(9000, 5))
        async with running(stage.flights):
            intent = replace(SWITCHOVER, drain_timeout_s=6.0, whole_site=True)
            with pytest.raises(WholeSiteCut, match=r"east-west-orders: 5 offsets .* all were given up") as refused:
                await operate(intent, stage.sites, ID)
        assert "without --whole-site" in str(refused.value.hint)
        assert [await stage.state_of(link) for link in stage.links] == [("running", "")] * 2
        assert refuses(await site_standing(stage.source)) == (False, False)
        assert refuses(await site_standing(stage.target)) == (True, True)
        assert standing_of(await stage.log(ID), now_ms()).state is OperationState.GIVEN_UP


async def test_where_no_link_drains_nothing_is_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    async with two_links(tmp_path) as stage:
        async with both_mirrored(stage):
            pass
        for at in (FLIGHTS[0], ORDERS[0]):
            await write(stage.source, at, some_records(9000, 5))
        with pytest.raises(NotDrained):
            await operate(replace(SWITCHOVER, drain_timeout_s=1.0), stage.sites, ID)
        assert [await stage.state_of(link) for link in stage.links] == [("running", "")] * 2
        assert refuses(await site_standing(stage.source)) == (False, False)
        assert standing_of(await stage.log(ID), now_ms()).state is OperationState.GIVEN_UP


async def test_a_link_that_fails_behind_the_fence_is_gone_on_with_when_the_other_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)

    async def refused(link: Link, target: Cluster, operation_id: str, *known: Any) -> Fence:
        if link.name == "east-west-orders":
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, link.name)
        return await promote_link(link, target, operation_id, *known)

    async with two_links(tmp_path) as stage, both_mirrored(stage):
        with monkeypatch.context() as patched:
            patched.setattr("failover.running.link_run.promote_link", refused)
            flights, orders = await operate(SWITCHOVER, stage.sites, ID)
        assert flights.verified
        assert orders.failure is not None
        assert (orders.verified, orders.failure.is_given_up, orders.failure.step) == (False, False, "fence")
        source = await site_standing(stage.source)
        assert refuses(source) == (True, True), "it may be moved in part, so it stays closed"
        assert standing_of(await stage.log(ID), now_ms()).state is OperationState.CUT_SHORT
        async with machine(HEIR, *stage.links) as sites:
            results = await resume(await stage.log(ID), sites, Hooks(), "an heir")
        assert [result.verified for result in results] == [True, True]
        await expect_all_moved(stage)


@pytest.mark.parametrize("step", STEPS)
async def test_killed_in_each_step_and_taken_up_elsewhere_it_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    quick(monkeypatch)
    async with two_links(tmp_path) as stage, both_mirrored(stage):
        with monkeypatch.context() as patched:
            await until_death(stage, monkeypatch, dying_when_begun(patched, step))
        await take_up(stage)
        await expect_all_moved(stage)


async def test_killed_between_the_fences_of_two_links_it_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    async with two_links(tmp_path) as stage, both_mirrored(stage):
        await die_between_fences(stage, monkeypatch)
        assert [await stage.state_of(link) for link in stage.links] == [("promoted", ID), ("running", "")]
        assert refuses(await site_standing(stage.source)) == (True, True)
        await take_up(stage)
        await expect_all_moved(stage)


async def test_killed_between_the_links_it_goes_on_without_one_that_is_refused_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that was fenced is brought to its end; the other, of which nothing was changed, runs on as before."""
    quick(monkeypatch)
    async with two_links(tmp_path) as stage, both_mirrored(stage):
        await die_between_fences(stage, monkeypatch)
        reader = reading(stage.orders.source.bootstrap_servers, "billing", "orders")
        async with reader, machine(HEIR, *stage.links) as sites:
            (flights,) = await resume(await stage.log(ID), sites, Hooks(), "an heir")
        assert flights.verified, flights.differences
        states = [await stage.state_of(link) for link in stage.links]
        assert states == [("promoted", ID), ("running", ID)], "what was asked for there and comes late is refused"
        assert refuses(await site_standing(stage.source)) == (True, False)
        assert standing_of(await stage.log(ID), now_ms()).state is OperationState.IN_PART
        with pytest.raises(GateRefused, match="has ended: in_part"):
            await resume(await stage.log(ID), stage.sites, Hooks(), "a third")


@pytest.mark.parametrize("verb", [Operation.SWITCHOVER, Operation.FAILOVER])
async def test_where_one_link_cannot_be_told_of_the_one_that_was_fenced_is_brought_to_its_end_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: Operation
) -> None:
    """No group was moved, of any link, and applications had nowhere to go, until that one was mended."""

    async def untold(link: Link, target: Cluster, operation_id: str) -> None:
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"__farshore-offsets-{link.name}-0")

    quick(monkeypatch)
    intent = SWITCHOVER
    if verb is Operation.FAILOVER:
        intent = replace(SWITCHOVER, operation=verb, allow_data_loss=True, even_if_source_answers=True)
    async with two_links(tmp_path) as stage, both_mirrored(stage):
        await die_between_fences(stage, monkeypatch, intent)
        with monkeypatch.context() as patched:
            patched.setattr("failover.running.moves_again.refuse_promotion", untold)
            async with machine(HEIR, *stage.links) as sites:
                flights, orders = await resume(await stage.log(ID), sites, Hooks(), "an heir")
        assert flights.verified, flights.differences
        assert orders.failure is not None
        assert (orders.link, orders.verified, orders.failure.is_given_up) == (stage.orders.name, False, False)
        assert "LEADER_NOT_AVAILABLE" in orders.failure.error
        assert (await committed_offsets(stage.target, "analysts")).keys() >= set(FLIGHTS)
        for at in FLIGHTS:
            there = await stage.next_record(stage.target, "analysts", at)
            assert there == await stage.next_record(stage.source, "analysts", at)
        if verb is Operation.SWITCHOVER:
            assert refuses(await site_standing(stage.source)) == (True, True), "what may be promoted stays closed"
        log = await stage.log(ID)
        assert standing_of(log, now_ms()).state is OperationState.CUT_SHORT
        async with machine(HEIR, *stage.links) as sites:
            results = await resume(log, sites, Hooks(), "another heir")
        assert [result.verified for result in results] == [True, True]
        assert [await stage.state_of(link) for link in stage.links] == [("promoted", ID)] * 2
        assert (await stage.log(ID)).is_ended


async def test_before_the_fence_a_look_that_fails_once_ends_the_move_of_no_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator was away for a moment, and that link was given up for good, while the other went alone."""

    async def untold(intent: Intent, sites: Sites, *asked: Any, **more: Any) -> LinkMove:
        if sites.link.name == "east-west-orders":
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "billing")
        return await plan_or_refuse(intent, sites, *asked, **more)

    quick(monkeypatch)
    async with two_links(tmp_path) as stage, both_mirrored(stage):
        with monkeypatch.context() as patched:
            await until_death(stage, monkeypatch, dying_when_begun(patched, "drain"))
        log = await stage.log(ID)
        with monkeypatch.context() as patched:
            patched.setattr("failover.running.moves_again.plan_or_refuse", untold)
            async with machine(HEIR, *stage.links) as sites:
                with pytest.raises(KafkaError, match="COORDINATOR_NOT_AVAILABLE"):
                    await resume(log, sites, Hooks(), "an heir")
        assert [await stage.state_of(link) for link in stage.links] == [("running", "")] * 2
        assert (await stage.log(ID)).entries == log.entries, "nothing was changed"
        await take_up(stage)
        await expect_all_moved(stage)


async def test_brokers_that_differ_when_it_is_taken_up_between_the_fences_leave_it_to_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One link was promoted, and "nothing was changed" was said; nor was there a word of how to go on."""

    async def differ(cluster: Cluster, _selects: Callable[[str], bool]) -> None:
        raise BrokersDiffer(cluster.site.name, "a broker has not heard yet")

    quick(monkeypatch)
    async with two_links(tmp_path) as stage, both_mirrored(stage):
        await die_between_fences(stage, monkeypatch)
        with monkeypatch.context() as patched:
            patched.setattr("failover.freezing.freeze.await_same_leaders", differ)
            async with machine(HEIR, *stage.links) as sites:
                with pytest.raises(CutShort) as cut:
                    await resume(await stage.log(ID), sites, Hooks(), "an heir")
        assert "nothing was changed" not in str(cut.value)
        assert f"farshore operation resume {ID}" in cut.value.hint
        await take_up(stage)


def dying_when_begun(monkeypatch: pytest.MonkeyPatch, step: str) -> Death:
    """Of the machine that has said that it begins the step."""
    death, real = Death(), OperationJournal.record_all

    async def record_all(self: OperationJournal, noted: list[tuple[str, Mapping[str, Any]]]) -> list[JournalEntry]:
        entries = await real(self, noted)
        if any(event == Event.STARTED and detail["step"] == step for event, detail in noted):
            death.at = death.requests + 1
        return entries

    monkeypatch.setattr(OperationJournal, "record_all", record_all)
    return death


async def until_death(
    stage: SiteStage, monkeypatch: pytest.MonkeyPatch, death: Death, intent: Intent = SWITCHOVER
) -> None:
    with mortal(monkeypatch, death):
        async with machine(VICTIM, *stage.links) as sites:
            try:
                await operate(intent, sites, ID)
            except BaseException as error:  # a death is no Exception, so that nothing in between handles it
                if not is_death(error):
                    raise
    assert death.is_dead


async def die_between_fences(stage: SiteStage, monkeypatch: pytest.MonkeyPatch, intent: Intent = SWITCHOVER) -> None:
    """When the flights are promoted, before the first request of the other link's fence."""
    death = Death()

    async def promoted(link: Link, target: Cluster, operation_id: str, *known: Any) -> Fence:
        if link.name == "east-west-orders":
            await stage.until_state(stage.flights, "promoted")
            death.at = death.requests + 1
        return await promote_link(link, target, operation_id, *known)

    with monkeypatch.context() as patched:
        patched.setattr("failover.running.link_run.promote_link", promoted)
        await until_death(stage, monkeypatch, death, intent)


async def take_up(stage: SiteStage) -> None:
    async with machine(HEIR, *stage.links) as sites:
        results = await resume(await stage.log(ID), sites, Hooks(), "an heir")
    assert [(result.verified, result.differences) for result in results] == [(True, ())] * 2


async def test_a_group_that_was_set_back_is_so_once_however_often_its_link_fails_at_the_fence_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three runs the second moved the other link alone: the third set the group back over what it had read."""
    quick(monkeypatch)

    async def refused(link: Link, target: Cluster, operation_id: str, *known: Any) -> Fence:
        if link.name == "east-west-orders":
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, link.name)
        return await promote_link(link, target, operation_id, *known)

    async with two_links(tmp_path) as stage, both_mirrored(stage):
        ahead = (await committed_offsets(stage.target, "analysts"))[ORDERS[0]].offset + 9
        await commit_offsets(stage.target, "analysts", {ORDERS[0]: CommittedOffset(ahead)})
        intent = replace(SWITCHOVER, set_back_groups=("analysts",))
        with monkeypatch.context() as patched:
            await until_death(stage, monkeypatch, dying_when_begun(patched, "hand_over"), intent)
        moved = (await committed_offsets(stage.target, "analysts"))[ORDERS[0]].offset
        assert moved == ahead - 9
        await commit_offsets(stage.target, "analysts", {ORDERS[0]: CommittedOffset(moved + 3)})
        with monkeypatch.context() as patched:
            patched.setattr("failover.running.link_run.promote_link", refused)
            async with machine(HEIR, *stage.links) as sites:
                _, orders = await resume(await stage.log(ID), sites, Hooks(), "an heir")
        assert orders.failure is not None
        assert standing_of(await stage.log(ID), now_ms()).state is OperationState.CUT_SHORT
        async with machine(HEIR, *stage.links) as sites:
            await resume(await stage.log(ID), sites, Hooks(), "another heir")
        assert (await committed_offsets(stage.target, "analysts"))[ORDERS[0]].offset == moved + 3
