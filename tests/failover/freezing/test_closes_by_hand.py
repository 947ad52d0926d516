"""`site standby` and `site freeze` at a site that does not answer what it is asked for: how it stands then is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.wire.site_role import SiteRole
from deploy.cli.site_denials import change_denials
from failover.errors import NotClosed
from tests.failover.freezing.test_acl_freeze import BEFORE, locked
from tests.failover.freezing.test_unfinished_closes import patient
from tests.failover.observing.test_silent_broker import impatient, silent
from tests.failover.stage import TOPIC
from tests.mirror.harness import eventually


@asynccontextmanager
async def unanswered(cluster: Cluster) -> AsyncIterator[Cluster]:
    short = dict.fromkeys(("request_timeout_ms", "retry_timeout_ms", "delivery_timeout_ms"), 1_000)
    limits = replace(cluster.limits, **short)
    async with Cluster(cluster.site, client_id="farshore-test", limits=limits) as other:
        yield other


@pytest.mark.parametrize("role", [SiteRole.STANDBY, SiteRole.FROZEN])
async def test_denials_that_nobody_answered_are_told_as_what_may_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: SiteRole
) -> None:
    """It was said that no broker had answered, and the site closed behind that."""
    async with locked(tmp_path, monkeypatch) as there, unanswered(there.stage.source) as cluster:
        there.east.unanswered = []
        with pytest.raises(NotClosed) as told:
            await change_denials(cluster, role, [TOPIC], lambda _: None)
        assert f"ACLs that deny to write to {TOPIC} were asked for, and may come yet" in str(told.value)
        assert "`farshore site role --site east` says how it stands" in str(told.value)
        assert f"`farshore site thaw --site east --topic {TOPIC}` takes them back" in str(told.value)
        there.east.land()
        assert there.east.acls > BEFORE


async def test_which_brokers_have_not_said_that_they_go_by_them_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with locked(tmp_path, monkeypatch) as there:
        with silent(there) as port:
            async with impatient(there.stage.source) as cluster:
                with pytest.raises(NotClosed) as told:
                    await change_denials(cluster, SiteRole.STANDBY, [TOPIC], lambda _: None)
    assert f"ACLs deny clients of east to write to {TOPIC}, and brokers {port} have not said" in str(told.value)
    assert "may come yet" not in str(told.value)


async def test_who_interrupts_it_is_told_what_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ended without a word."""
    monkeypatch.setattr("failover.freezing.acl_freeze.LOCK_OUT_LOOK_S", 0.2)
    monkeypatch.setattr("failover.freezing.closing.SOURCE_ROLE_S", 0.2)
    async with locked(tmp_path, monkeypatch) as there, patient(there.stage.source) as waiting:
        there.east.unanswered = []

        async def is_asked() -> bool:
            return bool(there.east.unanswered)

        closing = asyncio.create_task(change_denials(waiting, SiteRole.STANDBY, [TOPIC], lambda _: None))
        await eventually(is_asked, "the denial to be asked for")
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
    told = " ".join(capsys.readouterr().err.split())
    assert "whether ACLs keep clients from writing at east is not known (it was interrupted)" in told
    assert f"ACLs that deny to write to {TOPIC} were asked for, and may come yet" in told
    assert "whether they deny farshore itself to write there, too, is not known" in told
    assert f"`farshore site thaw --site east --topic {TOPIC}` takes them back" in told
