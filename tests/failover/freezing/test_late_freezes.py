"""A freeze by role that was asked for and not answered, and that comes when the operation was given up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.client.cluster import Cluster
from broker.client.connection import Connection
from broker.client.site_role import set_site_role, site_standing
from broker.wire.errors import ErrorCode
from broker.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from broker.wire.schema import Message
from broker.wire.site_role import SiteRole
from failover.freezing.choice import read_roles
from failover.freezing.freeze import Freeze
from tests.failover.machines import VICTIM, Lease
from tests.failover.running.test_late_promotions import takes_writes
from tests.failover.running.test_taking_up import ID
from tests.failover.stage import two_sites


async def test_a_freeze_that_comes_behind_its_undoing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was looked at once, stood as before, and nothing was done: the freeze came later, and nobody owned it."""
    under_way: asyncio.Queue[IncrementalAlterConfigsRequest] = asyncio.Queue()
    real = Connection.send

    async def send(
        self: Connection, message: Message, version: int | None = None, *, timeout_ms: int | None = None
    ) -> Awaitable[Any]:
        if self._client_id == VICTIM and isinstance(message, IncrementalAlterConfigsRequest):
            under_way.put_nowait(message)
            return asyncio.Event().wait()
        return await real(self, message, version, timeout_ms=timeout_ms)

    async with two_sites(tmp_path) as stage, Cluster(stage.link.source, client_id=VICTIM) as source:
        before = await site_standing(source)
        assert before is not None
        plan = replace(await read_roles(stage.link, source, stage.target), freezes=True)
        freeze = Freeze(plan, stage.link, (source, stage.target), ID, Lease().renew)
        await freeze.begin()
        with monkeypatch.context() as patched:
            patched.setattr(Connection, "send", send)
            freezing = asyncio.create_task(freeze.refuse_writes())
            late = await under_way.get()
            freezing.cancel()
            with suppress(asyncio.CancelledError):
                await freezing
        await freeze.undo(RuntimeError("given up"))
        (answer,) = (await (await stage.source.any_connection()).request(late)).responses
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert await takes_writes(stage)
        now = await site_standing(stage.source)
        assert now is not None
        assert now.is_as(before)


@pytest.mark.parametrize("role", [SiteRole.ACTIVE, SiteRole.FROZEN])
async def test_a_role_that_was_never_changed_keeps_its_reason_when_the_freeze_is_given_up(
    tmp_path: Path, role: SiteRole
) -> None:
    """It was said to be given up by the operation: who had set it, and why, nobody could tell any more, and another
    operation did not know its own freeze again.
    """
    async with two_sites(tmp_path) as stage:
        topics = () if role is SiteRole.ACTIVE else ("other",)
        before = await set_site_role(stage.source, role, "operation-7", await site_standing(stage.source), topics)
        plan = replace(await read_roles(stage.link, stage.source, stage.target), freezes=True)
        freeze = Freeze(plan, stage.link, (stage.source, stage.target), ID, Lease().renew)
        freeze.take_up()
        await freeze.undo(RuntimeError("given up"))
        now = await site_standing(stage.source)
        assert now is not None
        assert now.epoch > before.epoch, "a freeze that comes late is refused"
        assert replace(now, epoch=before.epoch) == before
