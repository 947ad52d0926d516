"""A machine that its hypervisor stops while it closes or opens a site: its clocks stand still meanwhile, and when it
goes on the operation is another one's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from broker.client.acls import create_denials
from broker.client.cluster import Cluster
from broker.client.connection import Connection
from broker.client.errors import AccessRefused, ClientError
from broker.client.site_role import set_site_role, site_standing
from broker.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from broker.wire.schema import Message
from broker.wire.site_role import SiteRole
from failover.errors import OperationTakenUp, OperationUnderWay, StillFrozen
from failover.freezing.acl_freeze import open_again
from failover.freezing.acl_rights import look
from failover.freezing.choice import Freezing
from failover.freezing.denials import SiteDenials, mark_of
from failover.freezing.freeze import Freeze
from failover.freezing.hooks import Hooks
from failover.journal.log import OperationJournal, claim
from failover.journal.values import Event
from failover.running.aborting import AbortFinding, AbortKind, abort, plan_abort
from failover.running.steps import OperationStep
from mirror.api import promote_link
from tests.failover.freezing.test_acl_freeze import BEFORE, Locked, locked
from tests.failover.freezing.test_asleep_in_roles import CHANGES
from tests.failover.freezing.test_unfinished_closes import DENIALS, EVERYBODY
from tests.failover.journal.test_lost_leases import BETWEEN, freezing_by, frozen_by, take_up_and_move
from tests.failover.machines import HEIR, VICTIM
from tests.failover.running.test_late_promotions import begin_anew, is_promoted, takes_writes, two_quiet_sites
from tests.failover.stage import TOPIC, Stage


@dataclass
class Stopped:
    """At the request `at` (from 1) of its machine, while somebody else does something, until that `is_gone_by`.
    `changes`: what changes a role or ACLs of the requests from that one on; the first may have been on its way.
    """

    at: int
    meanwhile: Callable[[], Awaitable[object]]
    requests: int = 0
    is_gone_by: bool = False
    changes: list[Message] = field(default_factory=list)
    goes_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def send(self, message: Message) -> None:
        self.requests += 1
        if self.requests == self.at:
            try:
                await self.meanwhile()
                self.is_gone_by = True
            finally:
                self.goes_on.set()
        elif self.requests > self.at:
            await self.goes_on.wait()
        if self.requests >= self.at and isinstance(message, CHANGES):
            self.changes.append(message)


@contextmanager
def stopping(monkeypatch: pytest.MonkeyPatch, stopped: Stopped) -> Iterator[None]:
    real = Connection.send

    async def send(
        self: Connection, message: Message, version: int | None = None, *, timeout_ms: int | None = None
    ) -> Awaitable[Any]:
        if self._client_id == VICTIM:
            await stopped.send(message)
        return await real(self, message, version, timeout_ms=timeout_ms)

    with monkeypatch.context() as patched:
        patched.setattr(Connection, "send", send)
        yield


@asynccontextmanager
async def victims(stage: Stage) -> AsyncIterator[tuple[Cluster, Cluster]]:
    limits = replace(stage.source.limits, retry_timeout_ms=1_000)  # for what its heir has changed it waits in vain
    async with (
        Cluster(stage.link.source, client_id=VICTIM, limits=limits) as source,
        Cluster(stage.link.target, client_id=VICTIM, limits=limits) as target,
    ):
        yield source, target


async def abort_it(stage: Stage, operation_id: str) -> list[AbortKind]:
    log = await stage.log(operation_id)
    found = await abort(log, [stage.sites], await plan_abort(log, [stage.sites]), Hooks(), "an heir")
    return [one.kind for one in found]


@pytest.mark.parametrize("heir", ["aborts", "moves"])
async def test_a_freeze_comes_to_nothing_behind_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heir: str
) -> None:
    """Before each of its requests: what is on its way then follows an epoch that is over."""
    async with two_quiet_sites(tmp_path, monkeypatch) as stage:
        for at in count(1):
            operation_id = f"operation-{at}"
            async with victims(stage) as (source, target):
                _, freeze = await freezing_by(stage, source, target, operation_id)
                take_it = take_up_and_move if heir == "moves" else abort_it
                stopped = Stopped(at, partial(take_it, stage, operation_id))
                with stopping(monkeypatch, stopped), suppress(OperationTakenUp, OperationUnderWay, ClientError):
                    await freeze.refuse_writes()
            if stopped.requests < at:
                break
            assert stopped.is_gone_by, at
            assert await is_promoted(stage) is (heir == "moves"), at
            assert await takes_writes(stage) is (heir == "aborts"), at
            await begin_anew(stage)
        assert at > 2


async def handing_over(stage: Stage, source: Cluster, target: Cluster, operation_id: str) -> Freeze:
    """An operation that has moved its link, and is about to say so by the sites' roles."""
    journal, freeze = await frozen_by(stage, source, target, operation_id)
    await journal.record(Event.STARTED, {"step": OperationStep.FENCE.value})
    await promote_link(stage.link, target, operation_id, check=journal.renew)
    await journal.record(Event.STARTED, {"step": OperationStep.HAND_OVER.value})
    await journal.record(Event.CUT_SHORT, {"step": OperationStep.HAND_OVER.value, "error": "a test"})
    return freeze


@pytest.mark.parametrize("is_lost", [False, True])
async def test_no_role_is_handed_over_behind_an_abort(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_lost: bool
) -> None:
    """Before each of its requests: the operator had let the source in again, and then the target was opened, too."""
    async with two_quiet_sites(tmp_path, monkeypatch) as stage:
        stood = []

        async def abort_and_thaw(operation_id: str) -> None:
            kinds = await abort_it(stage, operation_id)
            assert {AbortKind.LINK_PROMOTED, AbortKind.SOURCE_REFUSES_WRITES} <= {*kinds}
            await set_site_role(stage.source, SiteRole.ACTIVE, "by hand", await site_standing(stage.source))
            stood.append((await site_standing(stage.source), await site_standing(stage.target)))

        for at in count(1):
            await set_site_role(stage.target, SiteRole.STANDBY, "a test", await site_standing(stage.target))
            operation_id = f"operation-{at}"
            async with victims(stage) as (source, target):
                freeze = await handing_over(stage, source, target, operation_id)
                stopped = Stopped(at, partial(abort_and_thaw, operation_id))
                with stopping(monkeypatch, stopped), suppress(OperationTakenUp, OperationUnderWay, ClientError):
                    await freeze.hand_over(freeze._plan, even_without_source=is_lost)
            if stopped.requests < at:
                break
            assert stopped.is_gone_by, at
            assert (await site_standing(stage.source), await site_standing(stage.target)) == stood[-1], at
            await begin_anew(stage)
        assert at > 4


async def test_of_a_source_that_takes_no_word_of_it_an_abort_says_that_it_is_not_known_how_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It told how the source stood, and a hand-over of before may come."""
    async with two_quiet_sites(tmp_path, monkeypatch) as stage:
        async with victims(stage) as (source, target):
            await handing_over(stage, source, target, "operation-1")
        real = Connection.send

        async def send(
            self: Connection, message: Message, version: int | None = None, *, timeout_ms: int | None = None
        ) -> Awaitable[Any]:
            if self._client_id == HEIR and isinstance(message, IncrementalAlterConfigsRequest):
                raise AccessRefused("not to be asked")
            return await real(self, message, version, timeout_ms=timeout_ms)

        async with Cluster(stage.link.source, client_id=HEIR) as source:
            monkeypatch.setattr(Connection, "send", send)
            log, sites = await stage.log("operation-1"), [replace(stage.sites, source=source)]
            found = await abort(log, sites, await plan_abort(log, sites), Hooks(), "an heir")
        assert found[-1] == AbortFinding(
            AbortKind.SOURCE_UNKNOWN, "east", stays=True, command="farshore site role --site east"
        )


async def denying(there: Locked, operation_id: str, clusters: tuple[Cluster, Cluster]) -> tuple[Freeze, Freezing]:
    """An operation whose source is to be closed by ACLs, and whose target is to be opened that was."""
    stage = there.stage
    await create_denials(stage.target, {EVERYBODY, mark_of(EVERYBODY, "earlier")})
    writer, _ = await claim(clusters[1], BETWEEN, lambda _: None)
    journal = OperationJournal(clusters[1], operation_id, "a victim", writer, BETWEEN)
    opened = SiteDenials(DENIALS.principals, (TOPIC,))
    plan = Freezing(
        freezes=True, topics=(TOPIC,), target_topics=(TOPIC,), source_denials=DENIALS, target_denials=opened
    )
    freeze = Freeze(plan, stage.link, clusters, operation_id, journal.renew)
    await freeze.begin()
    return freeze, plan


STEPS: dict[str, Callable[[Freeze, Freezing], Awaitable[object]]] = {
    "freeze": lambda freeze, _: freeze.refuse_writes(),
    "undo": lambda freeze, _: freeze.undo(RuntimeError("given up")),
    "hand over": lambda freeze, plan: freeze.hand_over(plan, even_without_source=False),
    "hand over of a failover": lambda freeze, plan: freeze.hand_over(plan, even_without_source=True),
}


@pytest.mark.parametrize("step", STEPS)
async def test_of_acls_no_more_is_changed_behind_another_machine_than_was_on_its_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Before each of its requests. An ACL has no epoch: it was all of them. One request may still come, and what it
    makes is known as a freeze's.
    """
    late = 0
    async with locked(tmp_path, monkeypatch) as there:
        for at in count(1):
            operation_id = f"operation-{at}"

            async def taken_up() -> None:
                await claim(there.stage.target, BETWEEN, lambda _: None)

            async with victims(there.stage) as clusters:
                freeze, plan = await denying(there, operation_id, clusters)
                if step != "freeze":
                    await freeze.refuse_writes()
                stopped = Stopped(at, taken_up)
                with stopping(monkeypatch, stopped), suppress(OperationTakenUp, StillFrozen, ClientError):
                    await STEPS[step](freeze, plan)
            if stopped.requests < at:
                break
            assert stopped.is_gone_by, at
            assert len(stopped.changes) <= 1, at
            late += len(stopped.changes)
            for cluster, made in ((there.stage.source, there.east), (there.stage.target, there.west)):
                found = await look(cluster)
                assert EVERYBODY not in found.there or EVERYBODY in found.closed, at
                await open_again(cluster, [TOPIC])
                assert made.acls == (BEFORE if made is there.east else set()), at
    assert late >= 3, "some were on their way"


async def test_a_source_whose_denials_were_taken_back_late_is_closed_again_by_the_heir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each request of who gives up: the heir has closed the source behind its claim, and does so once more."""
    opened = 0
    async with locked(tmp_path, monkeypatch) as there:
        for at in count(1):
            operation_id = f"operation-{at}"
            async with victims(there.stage) as clusters:
                freeze, plan = await denying(there, operation_id, clusters)
                await freeze.refuse_writes()
                heirs = list[Freeze]()

                async def close_again(operation_id: str = operation_id, heirs: list[Freeze] = heirs) -> None:
                    heir, _ = await denying(there, operation_id, (there.stage.source, there.stage.target))
                    await heir.refuse_writes()
                    heirs.append(heir)

                stopped = Stopped(at, close_again)
                with stopping(monkeypatch, stopped), suppress(OperationTakenUp, StillFrozen, ClientError):
                    await freeze.undo(RuntimeError("given up"))
            if stopped.requests < at:
                break
            assert stopped.is_gone_by, at
            is_open = EVERYBODY not in (await look(there.stage.source)).there
            assert stopped.changes or not is_open, at
            opened += is_open
            await heirs[0].hand_over(plan, even_without_source=False)
            assert (await look(there.stage.source)).topics == (TOPIC,), at
            await open_again(there.stage.source, [TOPIC])
            assert there.east.acls == BEFORE
    assert opened, "one request, on its way when the heir closed it, opens it until he hands over"
