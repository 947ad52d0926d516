"""A source that is frozen by its ACLs: its writers are stopped, and in the end just the ACLs of before are there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from broker.client.acl_bindings import Acl
from broker.client.acls import WriteDenial, await_denials, known_denials
from broker.client.cluster import Cluster
from broker.client.errors import KafkaError
from broker.client.limits import ClientLimits
from broker.client.log import append
from broker.wire.errors import ErrorCode
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import CLUSTER_OPERATIONS, AclOperation
from failover.errors import CutShort, FreezeNotAllowed, LockedOut, NotDrained
from failover.freezing.acl_freeze import AclFreeze
from failover.freezing.denials import SiteDenials, read_denials
from failover.freezing.hooks import Hooks
from failover.journal.log import OperationJournal, load_operations
from failover.journal.standing import OperationState, standing_of
from failover.journal.values import Event, JournalEntry
from failover.planning.intent import Intent
from failover.planning.links import plan_link
from failover.running.aborting import AbortKind, abort, plan_abort
from failover.running.result import OperationResult
from failover.running.steps import Operation
from failover.running.taking_up import resume
from mirror.link import Link
from tests.failover.acl_site import OWN, Authorizer, authorized
from tests.failover.machines import HEIR, Death, machine, mortal, operate, quick, until_death
from tests.failover.stage import PARTITIONS, TOPIC, Stage, mirrored, now_ms, two_sites
from tests.mirror.harness import eventually, link_between, make_topic, read_all, running

ID = "switchover-east-west-1"
SWITCHOVER = Intent(Operation.SWITCHOVER, ("east-west",), "east", "west", drain_timeout_s=20.0)
BEFORE = {
    Acl(2, TOPIC, 3, "User:intern", "*", AclOperation.WRITE, 2),
    Acl(2, TOPIC, 3, "User:*", "*", AclOperation.READ, 3),
    Acl(2, "orders", 3, "User:*", "*", AclOperation.WRITE, 2),
}
"""What others have made: a denial of the moved topic, of somebody, and of another topic, of everybody."""


@dataclass
class Locked:
    """Two sites, of which each has an authorizer."""

    stage: Stage
    east: Authorizer
    west: Authorizer


@asynccontextmanager
async def locked(
    folder: Path, monkeypatch: pytest.MonkeyPatch, principals: tuple[str, ...] = ("User:*",)
) -> AsyncIterator[Locked]:
    """A mirror runs, and both sites are to be frozen by denials of these principals."""
    quick(monkeypatch)
    async with AsyncExitStack() as stack:
        stage = await stack.enter_async_context(two_sites(folder))
        source, target = (
            replace(site, freeze_principals=principals) for site in (stage.link.source, stage.link.target)
        )
        link = replace(stage.link, source=source, target=target)
        east, west = Authorizer(acls=set(BEFORE)), Authorizer()
        stack.enter_context(authorized(monkeypatch, dict(zip(stage.brokers, (east, west), strict=True))))
        clusters = [
            await stack.enter_async_context(Cluster(site, client_id="farshore-test")) for site in (source, target)
        ]
        stage = replace(stage, link=link, source=clusters[0], target=clusters[1])
        await stack.enter_async_context(mirrored(stage))
        yield Locked(stage, east, west)


async def switch(link: Link, operation_id: str = ID, **intended: Any) -> OperationResult:
    intent = replace(SWITCHOVER, source=link.source.name, target=link.target.name, **intended)
    async with machine("farshore-test", link) as sites:
        (result,) = await operate(intent, sites, operation_id)
    return result


@dataclass
class Shop:
    """A producer of its own principal, one record every 200 ms: what was acknowledged, and whether it was refused."""

    cluster: Cluster
    acknowledged: list[bytes]
    refused: int = 0

    async def write(self) -> None:
        number = 0
        while True:
            value = b"shop-%d" % number
            try:
                await append(self.cluster, PARTITIONS[0], encode_batch([Record(0, 1_700_000_000_000, None, value)]))
            except KafkaError as error:
                self.refused += error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
            else:
                self.acknowledged.append(value)
            number += 1
            await asyncio.sleep(0.2)


@asynccontextmanager
async def shop_of(link: Link) -> AsyncIterator[Shop]:
    limits = ClientLimits(retry_timeout_ms=1_000)
    async with Cluster(link.source, client_id="shop", limits=limits) as cluster, asyncio.TaskGroup() as tasks:
        shop = Shop(cluster, [])
        writing = tasks.create_task(shop.write())
        await eventually(lambda: _reaches(lambda: len(shop.acknowledged), 3), "the shop to write")
        yield shop
        writing.cancel()


async def _reaches(count: Any, least: int) -> bool:
    return bool(count() >= least)


async def test_a_writer_is_stopped_nothing_is_stranded_and_the_way_back_leaves_the_acls_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with locked(tmp_path, monkeypatch) as site, shop_of(site.stage.link) as shop:
        stage, link = site.stage, site.stage.link
        result = await switch(link)
        assert (result.verified, result.stranded) == (True, ()), (result.differences, result.stranded)
        assert result.denied_principals == ("User:*",)
        values = {record.value for record in await read_all(stage.target, PARTITIONS[0])}
        assert set(shop.acknowledged) <= values
        written = len(shop.acknowledged)
        await eventually(lambda: _reaches(lambda: shop.refused, 3), "the shop to be refused")
        assert len(shop.acknowledged) == written
        assert (await known_denials(stage.source)).by_all >= {
            WriteDenial(TOPIC, "User:*"),
            WriteDenial(TOPIC, "User:intern"),
        }
        back = replace(link_between("", "", [TOPIC]), name="west-east", source=link.target, target=link.source)
        back = replace(back, groups=(".*",))
        async with running(back):  # it writes to what everybody else is denied
            await eventually(lambda: _is_movable(back), "the link back to be drained")
            result = await switch(back, "switchover-west-east-1")
        assert (result.verified, result.stranded) == (True, ()), (result.differences, result.stranded)
        assert site.east.acls == BEFORE, "what others have made stays"
        await eventually(lambda: _reaches(lambda: len(shop.acknowledged), written + 3), "the shop to write again")
        assert {acl.resource_name for acl in site.west.acls} == {TOPIC}, "and the site that was left is closed"


async def _is_movable(link: Link) -> bool:
    async with machine("farshore-test", link) as (sites,):
        intent = replace(SWITCHOVER, source=link.source.name, target=link.target.name)
        move = await plan_link(intent, sites, Hooks())
        return not move.plan.refusals and not move.plan.loss.offsets


async def test_it_is_closed_when_every_broker_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The authorizer of a broker hears of ACLs some time after they were made."""
    async with locked(tmp_path, monkeypatch) as site:
        site.east.behind = 8
        result = await switch(site.stage.link)
        assert result.verified
        assert site.east.behind == 0


@pytest.mark.parametrize(
    ("lacking", "said"),
    [
        ({AclOperation.DESCRIBE, AclOperation.ALTER}, "may not see ACLs at east"),
        ({AclOperation.ALTER}, "may not make ACLs at east"),
    ],
)
async def test_without_the_right_it_is_refused_before_anything_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: set[AclOperation], said: str
) -> None:
    async with locked(tmp_path, monkeypatch) as site:
        site.east.operations = {OWN: CLUSTER_OPERATIONS - lacking}
        with pytest.raises(FreezeNotAllowed, match=said) as refused:
            await switch(site.stage.link)
        assert "freeze_hook" in refused.value.hint
        assert (site.east.acls, await load_operations(site.stage.target)) == (BEFORE, {})
        assert (await switch(site.stage.link, freezes=False)).verified, "nobody asked for the freeze"


async def test_without_an_authorizer_it_is_refused_before_anything_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    async with two_sites(tmp_path) as stage, mirrored(stage):
        link = replace(stage.link, source=replace(stage.link.source, freeze_principals=("User:*",)))
        with pytest.raises(FreezeNotAllowed, match="east has no authorizer"):
            await switch(link)
        assert await load_operations(stage.target) == {}


@pytest.mark.parametrize("all_rights", [False, True])
async def test_a_mirror_that_is_no_super_user_does_not_lock_itself_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, all_rights: bool
) -> None:
    """Of who has all rights of the cluster it is only known when the ACLs are there: they are taken back."""
    async with locked(tmp_path, monkeypatch) as site:
        site.east.super_users = frozenset()
        site.east.operations = {} if all_rights else {OWN: frozenset({AclOperation.ALTER, AclOperation.DESCRIBE})}
        with pytest.raises(LockedOut, match="is denied to farshore, as which nobody logs in"):
            await switch(site.stage.link)
        assert site.east.acls == BEFORE
        states = [standing_of(log, now_ms()).state for log in (await load_operations(site.stage.target)).values()]
        assert states == ([OperationState.GIVEN_UP] if all_rights else [])


async def test_who_is_named_is_denied_and_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with locked(tmp_path, monkeypatch, ("User:shop", "User:intern")) as site, shop_of(site.stage.link) as shop:
        site.east.super_users = frozenset()
        assert (await switch(site.stage.link)).verified
        written = len(shop.acknowledged)
        await eventually(lambda: _reaches(lambda: shop.refused, 3), "the shop to be refused")
        assert len(shop.acknowledged) == written
        made = site.east.acls - BEFORE
        assert {acl.principal for acl in made if "farshore-freeze" not in acl.principal} == {"User:shop"}
        assert not [acl for acl in made if "intern" in acl.principal], "that one was there"


async def test_given_up_before_the_fence_the_writer_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with locked(tmp_path, monkeypatch) as site:
        link = site.stage.link
        monkeypatch.setattr("failover.running.draining.QUIET_S", 5.0)
        async with shop_of(link) as shop:
            with pytest.raises(NotDrained):
                await switch(link, drain_timeout_s=0.5)
            assert site.east.acls == BEFORE
            written = len(shop.acknowledged)
            await eventually(lambda: _reaches(lambda: len(shop.acknowledged), written + 2), "the shop to write on")


async def die_at(stage: Stage, monkeypatch: pytest.MonkeyPatch, step: str, request: int, *, answered: bool) -> bool:
    """The machine dies at this request (from 1) of the step; False: the step has not so many."""
    death = Death(answered=answered)
    begun: list[str] = []
    real = OperationJournal.record_all

    async def record_all(self: OperationJournal, noted: list[tuple[str, Mapping[str, Any]]]) -> list[JournalEntry]:
        entries = await real(self, noted)
        for event, detail in noted:
            if event == Event.STARTED and detail["step"] == step:
                death.at = death.requests + request
            if event == Event.DONE and detail["step"] == step:
                begun.append(step)
        return entries

    with mortal(monkeypatch, death), monkeypatch.context() as patched:
        patched.setattr(OperationJournal, "record_all", record_all)
        await until_death(SWITCHOVER, stage, ID)
    assert death.is_dead
    return not begun


@pytest.mark.parametrize(
    ("request_at", "answered"),
    [
        pytest.param(at, answered, marks=[] if answered == (at % 4 < 2) else [pytest.mark.slow])
        for at in range(1, 11)
        for answered in (False, True)
    ],
)
async def test_killed_in_the_freeze_it_ends_the_same_resumed_and_aborted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_at: int, answered: bool
) -> None:
    monkeypatch.setattr("failover.freezing.acl_freeze.LATE_DENIALS_S", 0.2)
    async with locked(tmp_path, monkeypatch) as site:
        stage = site.stage
        assert await die_at(stage, monkeypatch, "freeze", request_at, answered=answered), "the step has fewer requests"
        log = await stage.log(ID)
        async with machine(HEIR, stage.link) as sites:
            planned = await plan_abort(log, sites)
            assert (AbortKind.SOURCE_THAWED, "east") in [(one.kind, one.subject) for one in planned]
            if request_at % 2:
                assert await abort(log, sites, planned, Hooks(), "an heir") == planned
                assert site.east.acls == BEFORE
                (result,) = await operate(SWITCHOVER, sites, "another")
            else:
                (result,) = await resume(log, sites, Hooks(), "an heir")
        assert (result.verified, result.denied_principals) == (True, ("User:*",))
        by = "another" if request_at % 2 else ID
        ours = [("User:*"), f"User:farshore-freeze/{by}/User:*"]
        assert site.east.acls == BEFORE | {Acl(2, TOPIC, 3, one, "*", AclOperation.WRITE, 2) for one in ours}


@pytest.mark.parametrize("step", ["drain", "fence", "hand_over", "verify"])
async def test_killed_behind_the_freeze_it_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    async with locked(tmp_path, monkeypatch) as site:
        stage = site.stage
        assert await die_at(stage, monkeypatch, step, 3, answered=True)
        async with machine(HEIR, stage.link) as sites:
            (result,) = await resume(await stage.log(ID), sites, Hooks(), "an heir")
        assert (result.verified, result.denied_principals) == (True, ("User:*",))
        ours = [("User:*"), f"User:farshore-freeze/{ID}/User:*"]
        assert site.east.acls == BEFORE | {Acl(2, TOPIC, 3, one, "*", AclOperation.WRITE, 2) for one in ours}


async def test_a_right_that_is_taken_away_behind_the_fence_is_no_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link was fenced and its groups moved, and it ended as one that had changed nothing, without a way on."""
    async with locked(tmp_path, monkeypatch) as site:
        stage, real = site.stage, OperationJournal.record_all

        async def record_all(self: OperationJournal, noted: list[tuple[str, Mapping[str, Any]]]) -> list[JournalEntry]:
            entries = await real(self, noted)
            if any(event == Event.STARTED and detail["step"] == "hand_over" for event, detail in noted):
                site.east.operations = {OWN: CLUSTER_OPERATIONS - {AclOperation.DESCRIBE, AclOperation.ALTER}}
            return entries

        with monkeypatch.context() as patched:
            patched.setattr(OperationJournal, "record_all", record_all)
            with pytest.raises(CutShort, match="cut short in its step hand_over") as cut:
                await switch(stage.link)
        assert f"farshore operation resume {ID}" in cut.value.hint
        site.east.operations = {OWN: CLUSTER_OPERATIONS}
        async with machine(HEIR, stage.link) as sites:
            (result,) = await resume(await stage.log(ID), sites, Hooks(), "an heir")
        assert result.verified, result.differences


async def test_aborted_behind_the_fence_the_source_stays_closed_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with locked(tmp_path, monkeypatch) as site:
        stage = site.stage
        await die_at(stage, monkeypatch, "move_groups", 1, answered=True)
        closed = set(site.east.acls)
        async with machine(HEIR, stage.link) as sites:
            log = await stage.log(ID)
            found = await abort(log, sites, await plan_abort(log, sites), Hooks(), "an heir")
        assert (AbortKind.SOURCE_REFUSES_WRITES, "east", f"farshore site thaw --site east --topic {TOPIC}") in [
            (one.kind, one.subject, one.command) for one in found
        ]
        assert site.east.acls == closed


async def test_what_was_closed_for_a_link_that_is_given_up_is_let_in_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what two operations have closed, to two sites, is closed until the second gives it up, too."""
    async with locked(tmp_path, monkeypatch) as site:
        source = site.stage.source
        await make_topic(source, "trips", 1)
        denials = SiteDenials(("User:*",))
        await AclFreeze(source, "one").close(denials, ("flights", "trips"))
        site.east.acls |= {Acl(2, "trips", 3, "User:farshore-freeze/two/User:*", "*", AclOperation.WRITE, 2)}
        await AclFreeze(source, "one").undo(keep=("flights",))
        closed = {WriteDenial(topic, "User:*") for topic in ("flights", "trips", "orders")}
        found = read_denials(await known_denials(source))
        assert found.there == closed | {WriteDenial(TOPIC, "User:intern")}
        assert found.marks == {WriteDenial("flights", "User:*"): {"one"}, WriteDenial("trips", "User:*"): {"two"}}
        await AclFreeze(source, "two").undo()
        await AclFreeze(source, "one").undo()
        assert site.east.acls == BEFORE


async def test_what_was_made_is_taken_back_where_the_file_says_nothing_of_it_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with locked(tmp_path, monkeypatch) as site:
        link = site.stage.link
        await die_at(site.stage, monkeypatch, "drain", 1, answered=True)
        assert site.east.acls > BEFORE
        without = replace(link, source=replace(link.source, freeze_principals=()))
        async with machine(HEIR, without) as sites:
            log = await site.stage.log(ID)
            await abort(log, sites, await plan_abort(log, sites), Hooks(), "an heir")
        assert site.east.acls == BEFORE


async def test_a_failover_closes_a_source_that_answers_and_opens_its_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with locked(tmp_path, monkeypatch) as site:
        left_closed = [WriteDenial(TOPIC, one) for one in ("User:*", "User:farshore-freeze/earlier/User:*")]
        site.west.acls = {Acl(2, *one[:1], 3, one[1], "*", AclOperation.WRITE, 2) for one in left_closed}
        result = await switch(
            site.stage.link, operation=Operation.FAILOVER, allow_data_loss=True, even_if_source_answers=True
        )
        assert (result.verified, result.denied_principals) == (True, ("User:*",))
        assert site.west.acls == set()
        await await_denials(site.stage.source, {WriteDenial(TOPIC, "User:*")})
