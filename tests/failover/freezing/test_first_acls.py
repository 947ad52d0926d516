"""Topics that no ACL is about, at a site where everybody may use those: a freeze's ACLs would be their first ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from broker.broker import Broker
from broker.client.acl_bindings import Acl, create_acls
from broker.client.acls import topic_operations
from broker.client.cluster import Cluster
from broker.client.security.settings import Mechanism, Sasl, Secret, Security
from broker.client.site import Site
from broker.client.without_acls import OpenTopics, open_without_acls
from broker.handlers.handler import RequestContext
from broker.handlers.table import LOGIN_HANDLERS
from broker.server import Server
from broker.wire.api import ApiKey
from broker.wire.site_role import SiteRole
from broker.wire.vocabulary import EVERYBODY, AclOperation, AclPattern, AclPermission, AclResource
from deploy.cli.freezing_lines import freezing_lines
from deploy.cli.site_denials import change_denials
from failover.drilling.drill import AuditNote
from failover.drilling.looks import drill_link
from failover.errors import LockedOut
from failover.freezing.acl_freeze import AclFreeze, Closed
from failover.freezing.acl_rights import FirstAcl, denials_to_make, refuse_first_acls
from failover.freezing.denials import SiteDenials
from failover.freezing.hooks import Hooks
from failover.journal.log import OperationJournal, load_operations
from failover.journal.values import Event, JournalEntry
from failover.planning.links import plan_link
from failover.running.steps import Operation
from mirror.api import HeartbeatWatch, Link
from tests.failover.freezing.test_acl_freeze import SWITCHOVER, switch
from tests.failover.freezing.test_own_authorizer import PASSWORD, acls_of, authorizing
from tests.failover.machines import machine, quick
from tests.failover.stage import GROUP, PARTITIONS, RECORDS, TOPIC, Stage, commit_group, mirrored, now_ms
from tests.mirror.harness import link_between, make_topic, some_records, write

ALL_BUT_WRITE = {AclOperation.READ, AclOperation.DESCRIBE}


def allowing(topic: str, pattern: AclPattern = AclPattern.LITERAL, principal: str = EVERYBODY) -> Acl:
    return Acl(AclResource.TOPIC, topic, pattern, principal, "*", AclOperation.ALL, AclPermission.ALLOW)


@dataclass
class Open:
    """A site that lets everybody use what no ACL is about; the topic is one of those."""

    server: Server
    secret: Path
    principals: tuple[str, ...]

    def site(self, user: str = "farshore") -> Site:
        login = Sasl(Mechanism.PLAIN, user, Secret(file=self.secret))
        security = Security(None, login)
        return Site("east", self.server.address, freeze_principals=self.principals, security=security)

    async def may(self, user: str, topic: str = TOPIC) -> set[AclOperation]:
        async with Cluster(self.site(user)) as cluster:
            await cluster.metadata(())
            (told,) = (await topic_operations(cluster, [topic])).values()
        return {operation for _, operation in told}


@asynccontextmanager
async def open_site(folder: Path, *principals: str) -> AsyncIterator[Open]:
    (folder / "secret").write_text(PASSWORD)
    async with authorizing(folder / "east", allow_everyone_if_no_acl_found=True) as server:
        yield Open(server, folder / "secret", principals)


@asynccontextmanager
async def moving(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Open, Stage]]:
    """From there to a site of which nothing is asked. User:shop writes, and User:batch, whom nobody names, too."""
    quick(monkeypatch)
    monkeypatch.setattr("broker.client.site_role.SITE_ROLE", "a config that no broker has")  # else it is frozen by that
    async with open_site(folder, "User:shop") as there, authorizing(folder / "west") as west:
        target = replace(there.site(), name="west", bootstrap_servers=west.address, freeze_principals=())
        link = replace(link_between("", "", [TOPIC, "trip.*"]), source=there.site(), target=target, groups=(GROUP,))
        async with Cluster(link.source) as at_east, Cluster(link.target) as at_west:
            await make_topic(at_east, TOPIC, len(PARTITIONS))
            for number, at in enumerate(PARTITIONS):
                await write(at_east, at, some_records(number * 1000, RECORDS))
            await commit_group(at_east, 20, 30)
            stage = Stage(link, at_east, at_west, brokers=(there.server.broker, west.broker))
            async with mirrored(stage):
                yield there, stage


def never_asked(question: str) -> NoReturn:
    pytest.fail(question)


async def drilled(link: Link, cluster: Cluster) -> dict[str, tuple[str, str]]:
    drill = await drill_link(link, HeartbeatWatch(cluster.clock), AuditNote(), now_ms)
    return {one.kind: (one.detail, one.next_step) for one in drill.findings}


async def test_a_switchover_says_so_before_anything_changes_and_goes_once_an_acl_says_who_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """User:shop was denied to write, and everybody but super users lost every right on the topic."""
    async with moving(tmp_path, monkeypatch) as (there, stage):
        link = stage.link
        async with machine("farshore-test", link) as (sites,):
            with pytest.raises(FirstAcl, match=f"no ACL at east is about {TOPIC}, and everybody may use") as planned:
                await plan_link(SWITCHOVER, sites, Hooks())
        with pytest.raises(FirstAcl) as refused:
            await switch(link)
        assert (str(refused.value), refused.value.hint) == (str(planned.value), planned.value.hint)
        hint = refused.value.hint
        assert f"kafka-acls --add --allow-principal 'User:*' --operation All --topic {TOPIC}`" in hint
        assert "a super user" not in hint, "it is known that everybody may"
        detail, step = (await drilled(link, stage.source))["freeze_not_allowed"]
        assert (detail.startswith(str(planned.value)), step) == (True, hint)
        assert (await acls_of(stage.source), await load_operations(stage.target)) == (set(), {})

        assert await create_acls(stage.source, [allowing(TOPIC)]) == {}
        assert "freeze_not_allowed" not in await drilled(link, stage.source)
        assert (await switch(link)).verified
        assert await there.may("batch") >= {*ALL_BUT_WRITE, AclOperation.WRITE}
        assert await there.may("shop") & {*ALL_BUT_WRITE, AclOperation.WRITE} == ALL_BUT_WRITE


async def test_a_failover_leaves_such_a_topic_open_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with moving(tmp_path, monkeypatch) as (there, stage):
        lost: dict[str, Any] = {"operation": Operation.FAILOVER, "allow_data_loss": True}
        lost["even_if_source_answers"] = True
        async with machine("farshore-test", stage.link) as (sites,):
            move = await plan_link(replace(SWITCHOVER, **lost), sites, Hooks())
        assert [line for line in freezing_lines(move.plan) if line.startswith(f"east stays open to {TOPIC}")]
        result = await switch(stage.link, **lost)
        assert (result.verified, result.denied_principals, result.is_source_open) == (True, (), True)
        assert (result.open_topics, result.has_findings) == ((TOPIC,), True)
        assert result.not_closed.startswith(f"{TOPIC} stays open at east: no ACL")
        assert "`farshore site standby --site east` closes it" in result.not_closed
        assert await acls_of(stage.source) == set()
        assert await there.may("batch") >= {*ALL_BUT_WRITE, AclOperation.WRITE}


async def test_a_failover_that_closes_the_others_and_leaves_one_open_is_one_with_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended with 0, and its producers wrote on where no mirror carried it any more."""
    async with moving(tmp_path, monkeypatch) as (there, stage):
        assert await create_acls(stage.source, [allowing(TOPIC)]) == {}
        await make_topic(stage.source, "trips")
        lost: dict[str, Any] = {"operation": Operation.FAILOVER, "allow_data_loss": True}
        result = await switch(stage.link, even_if_source_answers=True, **lost)
        assert AclOperation.WRITE in await there.may("shop", "trips")
        assert AclOperation.WRITE not in await there.may("shop")
        assert (result.verified, result.denied_principals) == (True, ("User:shop",))
        assert (result.open_topics, result.is_source_open, result.takes_writes) == (("trips",), True, True)
        assert result.has_findings


async def test_what_is_open_is_a_finding_of_the_link_that_carries_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with moving(tmp_path, monkeypatch) as (_, stage):
        assert await create_acls(stage.source, [allowing(TOPIC)]) == {}
        await make_topic(stage.source, "others")
        lost: dict[str, Any] = {"operation": Operation.FAILOVER, "allow_data_loss": True}
        result = await switch(stage.link, even_if_source_answers=True, **lost)
        assert (result.verified, result.open_topics, result.not_closed) == (True, (), "")
        assert (result.is_source_open, result.takes_writes, result.has_findings) == (False, False, False)


async def test_what_its_role_closes_is_open_to_nobody_whatever_its_acls_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was said to stay open, of topics of which the brokers refused every client's records."""
    async with moving(tmp_path, monkeypatch) as (_, stage):
        monkeypatch.undo()
        quick(monkeypatch)
        lost: dict[str, Any] = {"operation": Operation.FAILOVER, "allow_data_loss": True}
        result = await switch(stage.link, even_if_source_answers=True, **lost)
        assert result.source_role is not None
        assert (result.verified, result.open_topics, result.not_closed) == (True, (), "")
        assert (result.is_source_open, result.has_findings) == (False, False)


async def test_one_that_is_born_amid_a_switchover_stays_open_which_is_said_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first ACL would be that of the role's change, behind the fence: nobody refuses that any more."""
    async with moving(tmp_path, monkeypatch) as (there, stage):
        assert await create_acls(stage.source, [allowing(TOPIC)]) == {}
        real = OperationJournal.record_all

        async def record_all(self: OperationJournal, noted: list[tuple[str, Mapping[str, Any]]]) -> list[JournalEntry]:
            if any(event == Event.STARTED and detail["step"] == "hand_over" for event, detail in noted):
                await make_topic(stage.source, "trips")
            return await real(self, noted)

        monkeypatch.setattr(OperationJournal, "record_all", record_all)
        result = await switch(stage.link)
        assert result.denied_principals == ("User:shop",)
        assert (result.verified, result.is_source_open) == (True, False)
        assert (result.open_topics, result.takes_writes, result.has_findings) == (("trips",), True, True)
        assert result.not_closed.startswith("trips stays open at east: no ACL")
        assert {AclOperation.READ, AclOperation.WRITE} <= await there.may("batch", "trips")
        assert AclOperation.WRITE not in await there.may("shop")


async def test_a_close_by_hand_is_refused_and_one_that_leaves_them_open_closes_the_others(tmp_path: Path) -> None:
    """Who is not named could neither write nor read."""
    async with open_site(tmp_path, "User:shop") as there, Cluster(there.site()) as east:
        for topic in (TOPIC, "trips"):
            await make_topic(east, topic)
        assert await create_acls(east, [allowing("trips")]) == {}
        before = await acls_of(east)
        for consent in (None, never_asked):
            with pytest.raises(FirstAcl, match=f"is about {TOPIC}, and") as refused:
                await change_denials(east, SiteRole.FROZEN, [], consent)
            assert "freeze_hook" in refused.value.hint
        with pytest.raises(FirstAcl):
            await AclFreeze(east, "one").close(SiteDenials(there.principals), [])
        assert await acls_of(east) == before
        denials = await denials_to_make(east, [], leaves_open=True)
        assert denials is not None
        assert denials.left_open == (TOPIC,)
        closed = await AclFreeze(east, "one").close(denials, [], leaves_open=True)
        assert closed == Closed(("trips",), OpenTopics((TOPIC,), is_known=True))
        assert {name for name, *_ in await acls_of(east) - before} == {"trips"}
        assert await there.may("batch") == await there.may("batch", "trips")
        assert AclOperation.WRITE not in await there.may("shop", "trips")


async def test_who_is_no_super_user_is_told_of_it_and_not_locked_out(tmp_path: Path) -> None:
    """It denied the topic to all for seconds, and told of a `User:*` that its file did not have."""
    async with open_site(tmp_path, "User:shop") as there, Cluster(there.site("batch")) as east:
        await make_topic(east, TOPIC)
        with pytest.raises(FirstAcl):
            await denials_to_make(east, [TOPIC])
        assert await create_acls(east, [allowing(TOPIC)]) == {}
        denials = await denials_to_make(east, [TOPIC])
        assert denials is not None
        await AclFreeze(east, "one").close(denials, [TOPIC])


async def test_the_hint_of_a_lock_out_fits_the_file(tmp_path: Path) -> None:
    for principals, remedy in (
        (("User:batch",), "leave its own principal out of freeze_principals"),
        ((EVERYBODY,), "in place of User:*, in freeze_principals"),
    ):
        (folder := tmp_path / remedy[:5]).mkdir()
        async with open_site(folder, *principals) as there, Cluster(there.site("batch")) as east:
            await make_topic(east, TOPIC)
            assert await create_acls(east, [allowing(TOPIC)]) == {}
            freeze = AclFreeze(east, "one")
            with pytest.raises(LockedOut) as locked:
                await freeze.close(SiteDenials(principals, is_writable=True), [TOPIC])
            assert remedy in locked.value.hint
            assert "super.users" in locked.value.hint
            await freeze.unlock(locked.value, [TOPIC])


@pytest.mark.parametrize(
    ("acl", "is_open"),
    [
        (allowing("other"), True),
        (allowing("flight"), True),
        (allowing(TOPIC, principal="User:other"), False),
        (allowing("fl", AclPattern.PREFIXED), False),
        (allowing("*"), False),
        (allowing(TOPIC)._replace(permission_type=AclPermission.DENY, operation=AclOperation.ALTER), False),
        (allowing(TOPIC)._replace(resource_type=AclResource.GROUP), True),
    ],
)
async def test_an_acl_of_whatever_it_is_about_a_topic_ends_that_everybody_may(
    tmp_path: Path, acl: Acl, is_open: bool
) -> None:
    """As the broker itself has it."""
    async with open_site(tmp_path, "User:shop") as there, Cluster(there.site()) as east:
        await make_topic(east, TOPIC)
        assert await create_acls(east, [acl]) == {}
        assert await open_without_acls(east, [TOPIC]) == (
            OpenTopics((TOPIC,), is_known=True) if is_open else OpenTopics()
        )
        is_everybodys = "*" in acl.principal and not acl.is_denial
        assert (AclOperation.WRITE in await there.may("batch")) == (is_open or is_everybodys)


async def test_where_only_super_users_may_use_what_no_acl_is_about_nothing_is_taken(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(PASSWORD)
    async with authorizing(tmp_path / "east") as server:
        there = Open(server, tmp_path / "secret", ("User:shop",))
        async with Cluster(there.site()) as east:
            await make_topic(east, TOPIC)
            assert await open_without_acls(east, [TOPIC]) == OpenTopics()
            assert await denials_to_make(east, [TOPIC]) == SiteDenials(("User:shop",), is_writable=True)


async def test_the_brokers_are_asked_once_what_everybody_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They were asked again for the refusal, which could say otherwise than what it was made from."""
    asked, handler = list[object](), LOGIN_HANDLERS[ApiKey.DESCRIBE_CONFIGS]

    async def handle(served: Broker, request: object, context: RequestContext) -> object:
        asked.append(request)
        return await handler.handle(served, request, context)

    table = {**LOGIN_HANDLERS, ApiKey.DESCRIBE_CONFIGS: replace(handler, handle=handle)}
    monkeypatch.setattr("broker.login_connection.LOGIN_HANDLERS", table)
    async with open_site(tmp_path, "User:shop") as there, Cluster(there.site()) as east:
        await make_topic(east, TOPIC)
        with pytest.raises(FirstAcl, match="is true"):
            await refuse_first_acls(east, [TOPIC])
        assert len(asked) == 1
