"""The source's freeze, where the machine that began it is gone: who takes the operation up undoes it, or leaves it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.site_role import set_site_role, site_standing
from broker.wire.site_role import SiteRole
from failover.errors import HookFailed
from failover.freezing.hooks import Hooks
from failover.journal.standing import OperationState, standing_of
from failover.running.aborting import AbortKind, abort, plan_abort
from failover.running.taking_up import resume
from failover.running.verification import DifferenceKind
from tests.failover.machines import HEIR, machine, quick
from tests.failover.running.test_taking_up import ID, die_in, ready
from tests.failover.stage import now_ms

NOTE = "import sys; print(sys.argv[2], file=open(sys.argv[1], 'a'))"


def noting(path: Path) -> Hooks:
    """Each of the two says in the file that it ran."""
    command = (sys.executable, "-c", NOTE, str(path))
    return Hooks(freeze=(*command, "freeze"), thaw=(*command, "thaw"))


def without_roles(monkeypatch: pytest.MonkeyPatch) -> None:
    """The brokers' answers are read as Apache Kafka's, in which there is no role."""
    monkeypatch.setattr("broker.client.site_role.SITE_ROLE", "a config that no broker has")


@pytest.mark.parametrize("has_roles", [True, False])
async def test_behind_the_fence_an_abort_does_not_thaw_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_roles: bool
) -> None:
    """Without roles only the hook keeps clients away; with them somebody may have thawed the site by hand."""
    quick(monkeypatch)
    noted = tmp_path / "noted"
    if not has_roles:
        without_roles(monkeypatch)
    async with ready(tmp_path) as stage:
        await die_in(stage, monkeypatch, "verify", hooks=noting(noted))
        assert (await stage.sites.look()).link_state == "promoted"
        if has_roles:
            await set_site_role(stage.source, SiteRole.ACTIVE, "by hand", await site_standing(stage.source))
        async with machine(HEIR, stage.link) as sites:
            log = await stage.log(ID)
            planned = await plan_abort(log, sites)
            assert await abort(log, sites, planned, noting(noted), "an heir") == planned
        assert noted.read_text().split() == ["freeze"]
        assert [(one.kind, one.stays) for one in planned if one.subject == "east"] == [
            (AbortKind.SOURCE_TAKES_WRITES if has_roles else AbortKind.SOURCE_UNKNOWN, True)
        ]
        assert standing_of(await stage.log(ID), now_ms()).state is OperationState.ABORTED


async def test_where_the_source_died_behind_the_fence_its_end_is_not_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    async with ready(tmp_path) as stage:
        await die_in(stage, monkeypatch, "verify")
        async with machine(HEIR, stage.link) as (sites,):
            (result,) = await resume(await stage.log(ID), [replace(sites, source=None)], Hooks(), "an heir")
        assert not result.verified
        assert [(one.kind, one.subject) for one in result.differences] == [(DifferenceKind.SOURCE_NOT_COMPARED, "east")]


async def test_before_the_fence_an_abort_runs_the_thaw_hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    without_roles(monkeypatch)
    noted = tmp_path / "noted"
    async with ready(tmp_path) as stage:
        await die_in(stage, monkeypatch, "drain", hooks=noting(noted))
        async with machine(HEIR, stage.link) as sites:
            log = await stage.log(ID)
            found = await abort(log, sites, await plan_abort(log, sites), noting(noted), "an heir")
        assert noted.read_text().split() == ["freeze", "thaw"]
        assert not any(one.stays for one in found)


async def test_a_resume_that_is_given_up_thaws_what_the_first_machine_froze(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails in the step before the freeze: that was begun all the same."""
    quick(monkeypatch)
    noted = tmp_path / "noted"
    async with ready(tmp_path) as stage:
        await die_in(stage, monkeypatch, "drain", hooks=noting(noted))
        frozen = await site_standing(stage.source)
        assert frozen is not None
        assert not frozen.takes_writes
        async with machine(HEIR, stage.link) as sites:
            with pytest.raises(HookFailed, match="before_hook"):
                await resume(await stage.log(ID), sites, replace(noting(noted), before=("/bin/false",)), "an heir")
        thawed = await site_standing(stage.source)
        assert thawed is not None
        assert thawed.takes_writes
        assert noted.read_text().split() == ["freeze", "thaw"]
        assert standing_of(await stage.log(ID), now_ms()).state is OperationState.GIVEN_UP
        assert (await stage.sites.look()).link_state == "running"
