"""A failback that is given up: what stays of it is told, and nothing that its machine asked for comes late."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.site_role import set_site_role, site_standing
from broker.wire.site_role import SiteRole
from broker.wire.vocabulary import EVERYBODY
from deploy.cli.site_roles import changed
from failover.errors import GateRefused, NotAborted, OperationEnded, SwitchoverOpen
from failover.failback.aborting import abort_failback, plan_failback_abort
from failover.freezing.hooks import Hooks
from failover.journal.log import load_operations
from failover.journal.standing import OperationState, standing_of
from failover.journal.values import Event
from failover.running.aborting import AbortKind, abort, plan_abort
from mirror.api import read_entries
from mirror.offsets.operations import pause_link
from tests.failover.acl_site import OWN, Authorizer, authorized, without_acl_requests
from tests.failover.failback.returning import (
    ID,
    INNER,
    die_in_step,
    expected,
    go_back,
    log_of,
    ready,
    stands,
)
from tests.failover.failback.stage import Lost
from tests.failover.machines import HEIR, machine
from tests.failover.running.test_late_promotions import no_fence
from tests.failover.stage import now_ms

TAIL, GROUPS = (AbortKind.TAIL_LEFT, "east"), (AbortKind.GROUPS_SET_BACK, "east")


async def aborted(lost: Lost, *, has_back: bool = True) -> list[tuple[AbortKind, str]]:
    """`has_back`: the heir's file has the link back."""
    async with machine(HEIR, lost.there) as (sites,):
        log, back = await log_of(lost), lost.back if has_back else None
        planned = await plan_failback_abort(log, sites, back)
        assert await abort_failback(log, sites, back, "an heir") == planned
    assert all(one.stays and one.command for one in planned)
    assert standing_of(await log_of(lost), now_ms()).state is OperationState.ABORTED
    return [(one.kind, one.subject) for one in planned]


@pytest.mark.parametrize(
    ("step", "stays"),
    [("export", []), ("leave", [TAIL]), ("carry", [TAIL]), ("set_groups", [TAIL, GROUPS])],
)
async def test_what_stays_is_told_and_another_one_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, stays: list[tuple[AbortKind, str]]
) -> None:
    async with ready(tmp_path, monkeypatch) as lost:
        wanted = await expected(lost)
        await die_in_step(lost, tmp_path, monkeypatch, step)
        assert await aborted(lost) == stays
        with pytest.raises(OperationEnded, match="has ended: aborted"):
            await aborted(lost)
        await go_back(HEIR, lost, tmp_path / "another", "failback-2")
        assert await stands(lost, "failback-2") == wanted


async def test_a_link_back_that_it_let_run_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ready(tmp_path, monkeypatch) as lost:
        await pause_link(lost.back, lost.stage.source, "pause-1")
        await die_in_step(lost, tmp_path, monkeypatch, "carry")
        assert await aborted(lost) == [TAIL, (AbortKind.LINK_RESUMED, lost.back.name)]


async def test_a_link_back_that_it_let_run_is_told_by_who_has_it_in_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs on all the same, and was not among what stays."""
    async with ready(tmp_path, monkeypatch) as lost:
        await pause_link(lost.back, lost.stage.source, "pause-1")
        await die_in_step(lost, tmp_path, monkeypatch, "carry")
        assert await aborted(lost, has_back=False) == [TAIL, (AbortKind.LINK_RESUMED, lost.back.name)]


async def test_of_a_link_back_that_it_did_not_come_to_nothing_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ready(tmp_path, monkeypatch) as lost:
        await pause_link(lost.back, lost.stage.source, "pause-1")
        await die_in_step(lost, tmp_path, monkeypatch, "resume_back")
        assert await aborted(lost) == [TAIL]
        entries = await read_entries(lost.back, lost.stage.source)
        assert entries.run is not None
        assert entries.run.state.value == "paused"


async def test_its_switchover_is_ended_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ready(tmp_path, monkeypatch) as lost:
        wanted = await expected(lost)
        await die_in_step(lost, tmp_path, monkeypatch, "drain")
        with pytest.raises(SwitchoverOpen, match=INNER) as told:
            await aborted(lost)
        assert f"`farshore operation resume {ID}`" in told.value.hint
        assert standing_of(await log_of(lost), now_ms() + 60_000).state is OperationState.CUT_SHORT
        async with machine(HEIR, lost.back) as (sites,):
            inner = (await load_operations(lost.stage.source))[INNER]
            planned = await plan_abort(inner, [sites])
            await abort(inner, [sites], planned, Hooks(), "an heir")
        assert await aborted(lost) == [TAIL, GROUPS]
        await go_back(HEIR, lost, tmp_path / "another", "failback-2")
        assert await stands(lost, "failback-2") == wanted


async def test_a_switchover_that_is_done_stays_and_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ready(tmp_path, monkeypatch) as lost:
        await die_in_step(lost, tmp_path, monkeypatch, "resume")
        assert await aborted(lost) == [TAIL, GROUPS, (AbortKind.SWITCHED_OVER, lost.back.name)]


async def test_where_the_source_is_gone_again_it_can_be_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nobody could fail over from it: what its switchover came to, that site alone knows. But that it froze the
    other site was not told, and no site took writes.
    """
    async with ready(tmp_path, monkeypatch) as lost:
        await die_in_step(lost, tmp_path, monkeypatch, "move_groups")
        async with machine(HEIR, lost.there) as (sites,):
            sites, log = replace(sites, source=None), await log_of(lost)
            planned = await plan_failback_abort(log, sites, lost.back)
            assert await abort_failback(log, sites, lost.back, "an heir") == planned
        found = [(one.kind, one.subject) for one in planned]
        unknown, frozen = (AbortKind.SWITCHOVER_UNKNOWN, lost.back.name), (AbortKind.SOURCE_REFUSES_WRITES, "west")
        assert found == [TAIL, GROUPS, unknown, frozen]
        assert planned[-1].command == "farshore site thaw --site west --topic flights --even-if-other-active"


async def test_where_the_source_is_gone_behind_the_hand_over_the_command_that_is_named_opens_the_other_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was named was refused: of a standby site somebody has to say that no other one is active. And it opened what
    was closed there before, too.
    """
    async with ready(tmp_path, monkeypatch) as lost:
        west = lost.stage.target
        await set_site_role(west, SiteRole.STANDBY, "somebody", await site_standing(west), ["hotels"])
        await die_in_step(lost, tmp_path, monkeypatch, "resume")
        async with machine(HEIR, lost.there) as (sites,):
            sites, log = replace(sites, source=None), await log_of(lost)
            thaw = (await abort_failback(log, sites, lost.back, "an heir"))[-1]
        assert thaw.command == "farshore site thaw --site west --topic flights --even-if-other-active"
        silent = replace(lost.there, source=replace(lost.there.source, bootstrap_servers="127.0.0.1:1"))
        with pytest.raises(GateRefused, match="west is a standby site"):
            await changed(lost.there.target, SiteRole.ACTIVE, "", dry_run=False, yes=True, links=[silent])
        row = await changed(lost.there.target, SiteRole.ACTIVE, "", dry_run=False, yes=True, topics=["flights"])
        assert (row.role, row.topics) == (SiteRole.STANDBY, ("hotels",))


async def test_where_the_source_is_gone_and_the_acls_of_the_other_site_are_not_shown_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was said of it, as if no site were closed."""
    async with ready(tmp_path, monkeypatch) as lost:
        await die_in_step(lost, tmp_path, monkeypatch, "move_groups")
        target = replace(lost.there.target, freeze_principals=(EVERYBODY,))
        unseen = Authorizer(operations={OWN: frozenset()})
        with authorized(monkeypatch, {lost.stage.brokers[1]: unseen}):
            async with machine(HEIR, replace(lost.there, target=target)) as (sites,):
                planned = await plan_failback_abort(await log_of(lost), replace(sites, source=None), lost.back)
        told = planned[-1]
        assert (told.kind, told.subject) == (AbortKind.SOURCE_UNKNOWN, "west")
        assert told.command == "farshore site role --site west"
        assert "may not see ACLs at west" in told.why


@pytest.mark.parametrize("step", ["move_groups", "switch_over"])
async def test_where_the_source_is_gone_and_the_other_site_answers_nothing_of_acls_it_can_be_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """It could not, however often that was tried. Where the site's role says that it is closed, that is told."""
    async with ready(tmp_path, monkeypatch) as lost:
        await die_in_step(lost, tmp_path, monkeypatch, step)
        without_acl_requests(monkeypatch)
        target = replace(lost.there.target, freeze_principals=(EVERYBODY,))
        async with machine(HEIR, replace(lost.there, target=target)) as (sites,):
            found = await abort_failback(await log_of(lost), replace(sites, source=None), lost.back, "an heir")
        kind = AbortKind.SOURCE_REFUSES_WRITES if step == "move_groups" else AbortKind.SOURCE_UNKNOWN
        assert (found[-1].kind, found[-1].subject) == (kind, "west")
        if kind is AbortKind.SOURCE_UNKNOWN:
            assert "whether ACLs of the freeze still deny writes there is not known" in found[-1].why


async def test_where_the_source_is_gone_and_the_other_site_takes_writes_that_is_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was where other topics alone are closed there: what was named opened those."""
    async with ready(tmp_path, monkeypatch) as lost:
        west = lost.stage.target
        await set_site_role(west, SiteRole.STANDBY, "somebody", await site_standing(west), ["hotels"])
        await die_in_step(lost, tmp_path, monkeypatch, "switch_over")
        async with machine(HEIR, lost.there) as (sites,):
            planned = await plan_failback_abort(await log_of(lost), replace(sites, source=None), lost.back)
        assert planned[-1].kind is AbortKind.SWITCHOVER_UNKNOWN


async def test_one_of_which_it_cannot_be_told_whether_the_link_runs_stays_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That the link may run may have been asked for, and be on its way."""
    async with ready(tmp_path, monkeypatch) as lost:
        await die_in_step(lost, tmp_path, monkeypatch, "resume")
        async with machine(HEIR, lost.there) as (sites,):
            log = await log_of(lost)
            with no_fence(monkeypatch, lost.there.transactional_id), pytest.raises(NotAborted, match=ID):
                await abort_failback(log, sites, lost.back, "an heir")
        assert (await log_of(lost)).entries[-1].event == Event.CUT_SHORT, "nobody has to wait for it"
        assert (await aborted(lost))[-1] == (AbortKind.SWITCHED_OVER, lost.back.name)
