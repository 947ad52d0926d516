"""What a freeze_hook did, and what is said where no thaw_hook of this machine's file undoes it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.site_role import site_standing
from failover.errors import HookFailed, StillFrozen
from failover.freezing.choice import Freezing
from failover.freezing.hooks import Hooks
from failover.journal.hooks_run import FREEZE_HOOK, is_freeze_hook_run
from failover.journal.standing import OperationState, standing_of
from failover.journal.values import Event, OperationLog
from failover.planning.plan import plan_switchover
from failover.running.aborting import AbortKind, abort, plan_abort
from failover.running.taking_up import resume
from tests.failover.freezing.test_taken_up_frozen import noting, without_roles
from tests.failover.machines import HEIR, machine, quick
from tests.failover.running.test_taking_up import ID, die_in, ready
from tests.failover.stage import PARTITIONS, mirrored, now_ms, two_sites
from tests.mirror.harness import some_records, write


def as_earlier(log: OperationLog) -> OperationLog:
    """As a version wrote it that did not note with the freeze whether the hook ran."""
    entries = [
        replace(entry, detail={name: value for name, value in entry.detail.items() if name != FREEZE_HOOK})
        for entry in log.entries
    ]
    return replace(log, entries=tuple(entries))


@pytest.mark.parametrize("has_roles", [False, True])
async def test_an_abort_without_the_thaw_hook_does_not_say_that_the_source_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_roles: bool
) -> None:
    """It said that the source takes writes again, and that nothing stays changed; its producers were stopped."""
    quick(monkeypatch)
    if not has_roles:
        without_roles(monkeypatch)
    noted = tmp_path / "noted"
    async with ready(tmp_path) as stage:
        await die_in(stage, monkeypatch, "drain", hooks=noting(noted))
        async with machine(HEIR, stage.link) as sites:
            log = await stage.log(ID)
            planned = await plan_abort(log, sites)
            assert await abort(log, sites, planned, Hooks(), "an heir") == planned
        (told,) = [one for one in planned if one.subject == "east"]
        assert (told.kind, told.stays) == (AbortKind.SOURCE_UNKNOWN, True)
        assert "freeze_hook" in told.why
        assert noted.read_text().split() == ["freeze"]
        assert is_freeze_hook_run(as_earlier(log))
        if has_roles:  # what the brokers were told is undone all the same
            standing = await site_standing(stage.source)
            assert standing is not None
            assert standing.takes_writes


async def test_where_no_freeze_hook_was_run_none_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    noted = tmp_path / "noted"
    async with ready(tmp_path) as stage:
        await die_in(stage, monkeypatch, "before_hook", hooks=replace(noting(noted), before=("true",)))
        async with machine(HEIR, stage.link) as sites:
            log = await stage.log(ID)
            found = await abort(log, sites, await plan_abort(log, sites), Hooks(), "an heir")
        assert not any(one.stays for one in found)
        assert not noted.exists()


async def test_a_resume_that_gives_up_without_the_thaw_hook_says_that_it_may_be_frozen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended as given up: all was said to be as it was before."""
    quick(monkeypatch)
    noted = tmp_path / "noted"
    async with ready(tmp_path) as stage:
        await die_in(stage, monkeypatch, "drain", hooks=noting(noted))
        log = await stage.log(ID)
        async with machine(HEIR, stage.link) as sites:
            with pytest.raises(StillFrozen, match=r"may be frozen still: .*freeze_hook.* no thaw_hook") as told:
                await resume(log, sites, Hooks(before=("/bin/false",)), "an heir")
        assert "thaw_hook" in told.value.hint
        assert standing_of(await stage.log(ID), now_ms()).state is OperationState.CUT_SHORT
        async with machine(HEIR, stage.link) as sites:
            again = replace(noting(noted), before=("/bin/false",))
            with pytest.raises(HookFailed):
                await resume(await stage.log(ID), sites, again, "the first one's file")
        assert noted.read_text().split() == ["freeze", "thaw"]
        assert (await stage.log(ID)).entries[-1].event == Event.GIVEN_UP


async def test_nor_is_it_said_by_who_ran_it(tmp_path: Path) -> None:
    """A file that has the one and not the other is refused; a machine's file may have been another one until now."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        await write(stage.source, PARTITIONS[1], some_records(5_000, 1))
        plan = plan_switchover(await stage.sites.look(), freezing=Freezing(hooks=Hooks(freeze=("true",))))
        with pytest.raises(StillFrozen, match=r"not mirrored .*no thaw_hook"):
            await stage.run(plan, stage.sites, drain_timeout_s=0.5)
