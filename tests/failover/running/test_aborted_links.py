"""What an abort says of links that do not run and that its operation did not promote, and of a failover's source."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.errors import UnsupportedByCluster
from broker.client.site import Site
from broker.client.site_role import set_site_role, site_standing
from broker.wire.site_role import SiteRole
from broker.wire.vocabulary import CLUSTER_OPERATIONS, AclOperation
from failover.freezing.hooks import Hooks
from failover.running.aborting import AbortKind, abort, is_denied, plan_abort
from mirror.api import promote_link
from mirror.link import Link
from mirror.offsets.operations import pause_link
from tests.broker.running import running_server
from tests.failover.acl_site import OWN, without_acl_requests
from tests.failover.freezing.test_acl_freeze import BEFORE, die_at, locked
from tests.failover.freezing.test_acl_freeze import ID as BY_ACLS
from tests.failover.machines import HEIR, machine, quick
from tests.failover.running.test_taking_up import FAILOVER, ID, die_in, ready
from tests.failover.stage import TOPIC
from tests.mirror.harness import make_topic


@pytest.mark.parametrize("step", ["drain", "fence"])
async def test_a_link_that_somebody_paused_is_told_as_paused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """It was said that it runs."""
    quick(monkeypatch)
    async with ready(tmp_path) as stage:
        await die_in(stage, monkeypatch, step)
        await pause_link(stage.link, stage.target, "pause-1")
        async with machine(HEIR, stage.link) as sites:
            log = await stage.log(ID)
            planned = await plan_abort(log, sites)
            assert await abort(log, sites, planned, Hooks(), "an heir") == planned
        assert [(one.kind, one.stays, one.command) for one in planned] == [
            (AbortKind.LINK_PAUSED, False, f"farshore link resume --link {stage.link.name}"),
            (AbortKind.SOURCE_THAWED, False, ""),
        ]
        assert (await stage.sites.look()).link_state == "paused"


async def test_a_link_that_another_operation_promoted_is_told_so_and_its_source_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was said that it runs, and the source took writes that no mirror carried."""
    quick(monkeypatch)
    async with ready(tmp_path) as stage:
        await die_in(stage, monkeypatch, "drain")
        await promote_link(stage.link, stage.target, "failover-7")
        async with machine(HEIR, stage.link) as sites:
            log = await stage.log(ID)
            planned = await plan_abort(log, sites)
            assert await abort(log, sites, planned, Hooks(), "an heir") == planned
        assert [(one.kind, one.stays, one.by, one.command) for one in planned] == [
            (AbortKind.LINK_PROMOTED_ELSEWHERE, True, "failover-7", "farshore operation show failover-7"),
            (AbortKind.SOURCE_REFUSES_WRITES, True, "", f"farshore site thaw --site east --topic {TOPIC}"),
        ]
        standing = await site_standing(stage.source)
        assert standing is not None
        assert not standing.takes_writes


@pytest.mark.parametrize("is_there", [True, False])
async def test_a_source_whose_clients_a_third_site_took_over_meanwhile_is_not_opened_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_there: bool
) -> None:
    """Both took writes; nor is it where that site does not say whether it did."""
    quick(monkeypatch)
    async with ready(tmp_path) as stage, running_server(tmp_path / "north") as server:
        await die_in(stage, monkeypatch, "drain")
        onward = Link("east-north", stage.link.source, Site("north", server.address), stage.link.topics)
        async with Cluster(onward.target) as north:
            await promote_link(onward, north, "failover-9")
        declared = onward if is_there else replace(onward, target=Site("north", "127.0.0.1:9"))
        async with machine(HEIR, stage.link) as sites:
            sites = [replace(one, links=(stage.link, declared)) for one in sites]
            log = await stage.log(ID)
            planned = await plan_abort(log, sites)
            assert await abort(log, sites, planned, Hooks(), "an heir") == planned
        assert (AbortKind.SOURCE_REFUSES_WRITES, True, f"farshore site thaw --site east --topic {TOPIC}") in [
            (one.kind, one.stays, one.command) for one in planned
        ]
        standing = await site_standing(stage.source)
        assert standing is not None
        assert not standing.takes_writes


async def test_nor_is_one_that_its_acls_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no role to go by: its denials were taken back."""
    async with locked(tmp_path, monkeypatch) as site, running_server(tmp_path / "north") as server:
        stage = site.stage
        await die_at(stage, monkeypatch, "drain", 1, answered=True)
        closed = set(site.east.acls)
        onward = Link("east-north", stage.link.source, Site("north", server.address), stage.link.topics)
        async with Cluster(onward.target) as north:
            await promote_link(onward, north, "failover-9")
        async with machine(HEIR, stage.link) as sites:
            sites = [replace(one, links=(stage.link, onward)) for one in sites]
            log = await stage.log(BY_ACLS)
            found = await abort(log, sites, await plan_abort(log, sites), Hooks(), "an heir")
        assert (AbortKind.SOURCE_REFUSES_WRITES, True) in [(one.kind, one.stays) for one in found]
        assert site.east.acls == closed > BEFORE


async def test_a_failover_that_is_aborted_says_that_its_source_was_not_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was said of it: its clients wrote what no mirror carried."""
    quick(monkeypatch)
    async with ready(tmp_path) as stage:
        await die_in(stage, monkeypatch, "hand_over", FAILOVER)
        async with machine(HEIR, stage.link) as sites:
            log = await stage.log(ID)
            found = await abort(log, sites, await plan_abort(log, sites), Hooks(), "an heir")
        assert [(one.kind, one.subject, one.stays) for one in found] == [
            (AbortKind.LINK_PROMOTED, stage.link.name, True),
            (AbortKind.GROUPS_MOVED, "west", True),
            (AbortKind.SOURCE_TAKES_WRITES, "east", True),
        ]


async def test_aborted_behind_the_fence_a_source_that_is_closed_in_part_is_told_with_what_takes_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told as one that refuses writes: one topic of two was enough."""
    async with locked(tmp_path, monkeypatch) as site:
        stage = site.stage
        stage.link = replace(stage.link, topics=(TOPIC, "trips"))
        await die_at(stage, monkeypatch, "move_groups", 1, answered=True)
        await make_topic(stage.source, "trips", 1)
        async with machine(HEIR, stage.link) as sites:
            found = await plan_abort(await stage.log(BY_ACLS), sites)
        (told,) = [one for one in found if one.subject == "east"]
        assert (told.kind, told.command) == (AbortKind.SOURCE_UNKNOWN, "farshore site role --site east")
        assert told.open_topics == ("trips",)


async def test_aborted_behind_the_fence_by_who_may_not_see_acls_the_source_is_not_told_as_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ACLs that nobody could look at counted as taken back."""
    async with locked(tmp_path, monkeypatch) as site:
        await die_at(site.stage, monkeypatch, "move_groups", 1, answered=True)
        site.east.operations = {OWN: CLUSTER_OPERATIONS - {AclOperation.DESCRIBE}}
        async with machine(HEIR, site.stage.link) as sites:
            log = await site.stage.log(BY_ACLS)
            planned = await plan_abort(log, sites)
            found = await abort(log, sites, planned, Hooks(), "an heir")
        assert found == planned
        told = next(one for one in found if one.subject == "east")
        assert (told.kind, told.command) == (AbortKind.SOURCE_UNKNOWN, "farshore site role --site east")
        assert "farshore, as which nobody logs in (User:ANONYMOUS) may not see ACLs at east" in told.why
        assert "whether ACLs of the freeze still deny writes there is not known" in told.why
        assert "kafka-acls --add --cluster --operation Describe" in told.why


async def test_a_source_that_is_not_frozen_by_acls_is_told_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with locked(tmp_path, monkeypatch) as site:
        site.east.operations = {OWN: CLUSTER_OPERATIONS - {AclOperation.DESCRIBE}}
        hooked = replace(site.stage.link, source=replace(site.stage.link.source, freeze_principals=()))
        async with Cluster(hooked.source, client_id=HEIR) as source:
            assert await is_denied(source, [hooked]) == (False, ())


async def test_so_is_one_that_answers_nothing_of_acls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An abort did not know whether it still refused writes, though no ACL was ever to do that there."""
    async with running_server(tmp_path) as server:
        without_acl_requests(monkeypatch)
        site = Site("east", server.address)
        link = Link("east-west", site, Site("west", "127.0.0.1:1"), (TOPIC,))
        async with Cluster(site, client_id=HEIR) as source:
            assert await is_denied(source, [link]) == (False, ())
        async with Cluster(replace(site, freeze_principals=("User:app",)), client_id=HEIR) as source:
            with pytest.raises(UnsupportedByCluster):
                await is_denied(source, [link])


async def test_a_source_that_is_closed_to_other_topics_alone_is_told_to_take_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was said to refuse them, and the command that was named opened the others, which may be another site's."""
    quick(monkeypatch)
    async with ready(tmp_path) as stage:
        await die_in(stage, monkeypatch, "drain")
        await promote_link(stage.link, stage.target, "failover-7")
        known = await site_standing(stage.source)
        await set_site_role(stage.source, SiteRole.STANDBY, "somebody", known, [TOPIC, "hotels"])
        async with machine(HEIR, stage.link) as sites:
            log = await stage.log(ID)
            thaw = f"farshore site thaw --site east --topic {TOPIC}"
            assert (await plan_abort(log, sites))[-1].command == thaw
            known = await site_standing(stage.source)
            await set_site_role(stage.source, SiteRole.STANDBY, "somebody", known, ["hotels"])
            found = (await plan_abort(log, sites))[-1]
        assert (found.kind, found.command) == (AbortKind.SOURCE_TAKES_WRITES, "")
