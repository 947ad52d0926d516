"""A machine that slept while it closed or opened a site changes nothing of it when it wakes: the lease is asked."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker.client.acls import create_denials
from broker.client.cluster import Cluster
from broker.client.connection import Connection
from broker.client.site_role import set_site_role, site_standing
from broker.wire.messages.create_acls import CreateAclsRequest
from broker.wire.messages.delete_acls import DeleteAclsRequest
from broker.wire.messages.describe_acls import DescribeAclsRequest
from broker.wire.messages.describe_configs import DescribeConfigsRequest
from broker.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from broker.wire.schema import Message
from broker.wire.site_role import SiteRole
from failover.errors import JournalUnanswered, OperationTakenUp
from failover.freezing.choice import Freezing, read_roles
from failover.freezing.denials import SiteDenials, mark_of
from failover.freezing.freeze import Freeze
from tests.failover.freezing.test_acl_freeze import locked
from tests.failover.freezing.test_unfinished_closes import DENIALS, EVERYBODY
from tests.failover.machines import VICTIM, Lease
from tests.failover.running.test_taking_up import ID
from tests.failover.stage import TOPIC, two_sites

CHANGES = (IncrementalAlterConfigsRequest, CreateAclsRequest, DeleteAclsRequest)


@contextmanager
def asleep_at(monkeypatch: pytest.MonkeyPatch, lease: Lease, at: type[Message]) -> Iterator[list[Message]]:
    """The first request of this kind is what its machine sent before it slept -> what it changes when it woke."""
    real = Connection.send
    changing: list[Message] = []

    async def send(
        self: Connection, message: Message, version: int | None = None, *, timeout_ms: int | None = None
    ) -> Awaitable[Any]:
        if self._client_id == VICTIM:
            if not lease.is_held and isinstance(message, CHANGES):
                changing.append(message)
            lease.is_held = lease.is_held and not isinstance(message, at)
        return await real(self, message, version, timeout_ms=timeout_ms)

    with monkeypatch.context() as patched:
        patched.setattr(Connection, "send", send)
        yield changing


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_target_stays_as_it_is_and_so_does_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_lost: bool
) -> None:
    """Another machine had aborted, the operator let the source in again: and it opened the target, too."""
    async with two_sites(tmp_path) as stage:
        await set_site_role(stage.target, SiteRole.STANDBY, "a test", await site_standing(stage.target))
        lease = Lease()
        async with (
            Cluster(stage.link.source, client_id=VICTIM) as source,
            Cluster(stage.link.target, client_id=VICTIM) as target,
        ):
            plan = replace(await read_roles(stage.link, source, target), freezes=True)
            freeze = Freeze(plan, stage.link, (source, target), ID, lease.renew)
            await freeze.refuse_writes()
            before = await site_standing(stage.source), await site_standing(stage.target)
            with asleep_at(monkeypatch, lease, DescribeConfigsRequest) as changing, pytest.raises(JournalUnanswered):
                await freeze.hand_over(plan, even_without_source=is_lost)
        assert changing == []
        assert (await site_standing(stage.source), await site_standing(stage.target)) == before


async def test_a_source_is_not_frozen(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        lease = Lease()
        plan = replace(await read_roles(stage.link, stage.source, stage.target), freezes=True)
        freeze = Freeze(plan, stage.link, (stage.source, stage.target), ID, lease.renew)
        lease.is_held = False
        with pytest.raises(JournalUnanswered):
            await freeze.refuse_writes()
        assert await site_standing(stage.source) == plan.source


@pytest.mark.parametrize("at", [DescribeAclsRequest, CreateAclsRequest])
@pytest.mark.parametrize("step", ["freeze", "hand_over"])
async def test_no_acl_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: type[Message], step: str) -> None:
    async with locked(tmp_path, monkeypatch) as there:
        lease, link = Lease(), there.stage.link
        async with Cluster(link.source, client_id=VICTIM) as source:
            plan = Freezing(freezes=True, topics=(TOPIC,), source_denials=DENIALS)
            freeze = Freeze(plan, link, (source, there.stage.target), ID, lease.renew)
            hand_over = partial(freeze.hand_over, plan, even_without_source=True)
            take = freeze.refuse_writes if step == "freeze" else hand_over
            with asleep_at(monkeypatch, lease, at) as changing, pytest.raises(JournalUnanswered):
                await take()
        assert changing == []


async def test_no_acl_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with locked(tmp_path, monkeypatch) as there:
        lease, link = Lease(), there.stage.link
        await create_denials(there.stage.target, {EVERYBODY, mark_of(EVERYBODY, "earlier")})
        before = set(there.west.acls)
        async with Cluster(link.target, client_id=VICTIM) as target:
            plan = Freezing(target_topics=(TOPIC,), target_denials=SiteDenials(DENIALS.principals, (TOPIC,)))
            freeze = Freeze(plan, link, (there.stage.source, target), ID, lease.renew)
            with asleep_at(monkeypatch, lease, DescribeAclsRequest) as changing, pytest.raises(JournalUnanswered):
                await freeze.hand_over(plan, even_without_source=False)
        assert (changing, there.west.acls) == ([], before)


def test_who_lost_its_operation_is_told_how_to_find_what_it_froze_behind_the_other_one() -> None:
    hint = OperationTakenUp(ID).hint
    assert "`farshore site role`" in hint
    assert "`farshore site thaw`" in hint
