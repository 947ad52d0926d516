"""Denials that were asked for, not answered, and come while they are taken back, or when they were."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from broker.base.clock import SystemClock
from broker.client.acls import DenialsNotEverywhere, create_denials
from broker.client.cluster import Cluster
from broker.client.connection import Connection
from broker.wire.messages.create_acls import CreateAclsRequest
from broker.wire.schema import Message
from failover.errors import StillFrozen
from failover.freezing.acl_freeze import AclFreeze, open_again
from failover.freezing.acl_rights import look
from failover.freezing.choice import Freezing
from failover.freezing.denials import mark_of
from failover.freezing.freeze import Freeze
from failover.limits import LATE_DENIALS_POLL_S, LATE_DENIALS_S
from tests.failover.freezing.test_acl_freeze import BEFORE, ID, Locked, locked
from tests.failover.freezing.test_unfinished_closes import DENIALS, EVERYBODY
from tests.failover.machines import VICTIM, Lease
from tests.failover.running.test_late_promotions import Asleep, before_a_request
from tests.failover.stage import TOPIC


@pytest.mark.parametrize("acls_per_request", [1, 1_000])
@pytest.mark.parametrize("take_back", [lambda at: AclFreeze(at, ID).undo(), lambda at: open_again(at, [TOPIC])])
async def test_what_comes_amid_its_taking_back_is_gone_with_it_or_known_as_a_freezes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    take_back: Callable[[Cluster], Awaitable[None]],
    acls_per_request: int,
) -> None:
    """Behind the request for denials, and before the one for marks, it lost its mark: nobody found it again."""
    monkeypatch.setattr("broker.client.acls.ACLS_PER_REQUEST", acls_per_request)
    async with locked(tmp_path, monkeypatch) as there:
        for at in count(1):
            await create_denials(there.stage.source, {mark_of(EVERYBODY, ID)})

            async def land() -> None:
                await create_denials(there.stage.source, {EVERYBODY, mark_of(EVERYBODY, ID)})

            asleep = Asleep(at, land)
            limits = replace(there.stage.source.limits, retry_timeout_ms=1_000)
            async with Cluster(there.stage.source.site, client_id=VICTIM, limits=limits) as cluster:
                with before_a_request(monkeypatch, VICTIM, asleep), suppress(DenialsNotEverywhere):
                    await take_back(cluster)
            if asleep.requests < at:
                break
            found = await look(there.stage.source)
            if there.east.acls != BEFORE:
                assert (found.topics, found.operations(found.closed)) == ((TOPIC,), (ID,)), at
            await open_again(there.stage.source, [TOPIC])
            assert there.east.acls == BEFORE, at
        assert at > 4


@dataclass
class WaitingClock(SystemClock):
    """Time goes on only where somebody waits for it, and when `now_s` has come `then` happens."""

    now_s: float = 1_000.0
    due_s: float = float("inf")
    then: Callable[[], Awaitable[None]] | None = None

    def boottime(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        if self.now_s >= self.due_s and self.then is not None:
            then, self.then = self.then, None
            await then()


async def given_up(there: Locked, monkeypatch: pytest.MonkeyPatch, clock: WaitingClock, comes_after_s: float) -> None:
    """A freeze whose denial was asked for and not answered, and that is given up: it comes so many seconds after that
    was begun. Raises what giving up does.
    """
    under_way: asyncio.Queue[CreateAclsRequest] = asyncio.Queue()
    stage, real = there.stage, Connection.send

    async def send(
        self: Connection, message: Message, version: int | None = None, *, timeout_ms: int | None = None
    ) -> Awaitable[Any]:
        if isinstance(message, CreateAclsRequest) and any(one.principal == "User:*" for one in message.creations):
            under_way.put_nowait(message)
            return asyncio.Event().wait()
        return await real(self, message, version, timeout_ms=timeout_ms)

    async with Cluster(stage.link.source, client_id=VICTIM, clock=clock) as source:
        plan = Freezing(freezes=True, topics=(TOPIC,), source_denials=DENIALS)
        freeze = Freeze(plan, stage.link, (source, stage.target), ID, Lease().renew)
        await freeze.begin()
        with monkeypatch.context() as patched:
            patched.setattr(Connection, "send", send)
            freezing = asyncio.create_task(freeze.refuse_writes())
            late = await under_way.get()
            freezing.cancel()
            with suppress(asyncio.CancelledError):
                await freezing

        async def land() -> None:
            await (await stage.source.any_connection()).request(late)

        clock.due_s, clock.then = clock.now_s + comes_after_s, land
        await clock.sleep(0)
        await freeze.undo(RuntimeError("given up"))


@pytest.mark.parametrize("comes_after_s", [0.0, 1.0, LATE_DENIALS_S - 1])
async def test_what_comes_when_its_freeze_is_given_up_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes_after_s: float
) -> None:
    """It was looked for once, and a site that was told to be open closed a second later."""
    async with locked(tmp_path, monkeypatch) as there:
        clock = WaitingClock()
        await given_up(there, monkeypatch, clock, comes_after_s)
        assert there.east.acls == BEFORE
        assert clock.then is None, "it came"
        waited_s = clock.now_s - 1_000.0
        assert waited_s <= comes_after_s + LATE_DENIALS_POLL_S, "nothing more may come: who waits for it waits in vain"


async def test_what_may_come_behind_a_freeze_that_was_given_up_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with locked(tmp_path, monkeypatch) as there:
        clock = WaitingClock()
        with pytest.raises(StillFrozen) as told:
            await given_up(there, monkeypatch, clock, comes_after_s=LATE_DENIALS_S + 60)
        assert str(told.value) == (
            "given up; writes at east may be frozen still: ACLs that deny to write to flights were asked for, and may "
            "come yet"
        )
        assert "farshore site role --site east" in told.value.hint
        assert f"farshore site thaw --site east --topic {TOPIC}" in told.value.hint
        assert there.east.acls == BEFORE, "what is there is taken back"
        assert LATE_DENIALS_S <= clock.now_s - 1_000.0 < LATE_DENIALS_S + 1
        await clock.sleep(60)
        assert (await look(there.stage.source)).topics == (TOPIC,)
        await open_again(there.stage.source, [TOPIC])
        assert there.east.acls == BEFORE
