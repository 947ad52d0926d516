"""A broker that hears late of the ACLs that a link made: they shut the mirror out when nobody looks any more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.acl_bindings import Acl
from broker.client.cluster import Cluster
from broker.client.topics import delete_topics
from broker.wire.vocabulary import AclOperation
from mirror.acls.sync import ShutsOutMirror, read_record, sync_acls
from tests.failover.acl_site import OWN, Authorizer, authorized
from tests.failover.stage import TOPIC, two_sites
from tests.mirror.harness import make_topic

DENIAL = Acl(2, TOPIC, 3, OWN, "*", AclOperation.WRITE, 2)
"""Of the mirror, which does not know as whom it comes."""
OF_OTHERS = DENIAL._replace(principal="User:app")


async def test_what_shuts_out_the_mirror_late_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was there by the next pass, and so not looked at: the partitions were held until somebody saw why."""
    async with two_sites(tmp_path) as stage:
        await make_topic(stage.target, TOPIC, 2)
        east, west = Authorizer(acls={DENIAL}), Authorizer(super_users=frozenset())
        limits = replace(stage.target.limits, retry_timeout_ms=1_000)
        with authorized(monkeypatch, dict(zip(stage.brokers, (east, west), strict=True))):
            async with Cluster(stage.link.target, client_id="farshore-test", limits=limits) as target:
                west.behind = 1_000
                _, changes = await sync_acls(stage.link, stage.source, target, frozenset())
                assert (changes.created, changes.failures, [*changes.unsettled]) == ((DENIAL,), (), [DENIAL])
                west.behind = 0
                unsettled = changes.unsettled
                _, changes = await sync_acls(stage.link, stage.source, target, frozenset(), unsettled=unsettled)
                [(acl, error)] = changes.failures
                assert acl == DENIAL
                assert isinstance(error, ShutsOutMirror)
                assert (west.acls, changes.created, changes.unsettled) == (set(), (), {})
                assert (await read_record(stage.link, target)).made == frozenset()


async def test_of_a_topic_that_goes_meanwhile_no_acl_took_the_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_sites(tmp_path) as stage:
        await make_topic(stage.target, TOPIC, 2)
        east, west = Authorizer(acls={OF_OTHERS}), Authorizer()
        limits = replace(stage.target.limits, retry_timeout_ms=1_000)
        with authorized(monkeypatch, dict(zip(stage.brokers, (east, west), strict=True))):
            async with Cluster(stage.link.target, client_id="farshore-test", limits=limits) as target:
                west.behind = 1_000
                _, changes = await sync_acls(stage.link, stage.source, target, frozenset())
                assert [*changes.unsettled] == [OF_OTHERS]
                west.behind = 0
                assert not await delete_topics(target, [TOPIC])
                unsettled = changes.unsettled
                _, changes = await sync_acls(stage.link, stage.source, target, frozenset(), unsettled=unsettled)
                assert (changes.failures, west.acls) == ((), {OF_OTHERS})
