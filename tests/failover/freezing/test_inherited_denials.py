"""Denials that a machine may have asked for which is gone: whoever takes its operation up looks, and says so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.acls import create_denials
from broker.client.cluster import Cluster
from failover.errors import JournalDamaged
from failover.freezing.acl_freeze import open_again
from failover.freezing.acl_rights import look
from failover.freezing.denials import mark_of
from failover.freezing.hooks import Hooks
from failover.journal.standing import OperationState, late_denials, standing_of
from failover.journal.values import LATE_DENIALS, Event, JournalEntry, OperationLog
from failover.limits import LATE_DENIALS_S
from failover.running.aborting import AbortFinding, AbortKind, abort, plan_abort
from tests.failover.freezing.test_acl_freeze import BEFORE, ID, Locked, die_at, locked
from tests.failover.freezing.test_undone_denials import WaitingClock
from tests.failover.freezing.test_unfinished_closes import EVERYBODY
from tests.failover.machines import HEIR
from tests.failover.stage import TOPIC, now_ms

MAY_COME = AbortFinding(AbortKind.DENIALS_MAY_COME, "east", stays=True, command="farshore site role --site east")


async def aborted(there: Locked, then: Callable[[], Awaitable[None]] | None = None) -> tuple[AbortFinding, ...]:
    """And `then` happens a second after it began to look for what may come."""
    stage, clock = there.stage, WaitingClock()
    async with Cluster(stage.link.source, client_id=HEIR, clock=clock) as source:
        clock.due_s, clock.then = clock.now_s + 1, then
        log, sites = await stage.log(ID), [replace(stage.sites, source=source)]
        found = await abort(log, sites, planned := await plan_abort(log, sites), Hooks(), "an heir")
        assert found == planned
        assert clock.then is None or then is None
        assert (clock.now_s - 1_000.0 >= LATE_DENIALS_S) == (MAY_COME in found)
    return found


@pytest.mark.parametrize("is_in_time", [True, False])
async def test_an_abort_says_that_denials_may_come_of_a_machine_that_died_asking_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_in_time: bool
) -> None:
    """It said that the source was thawed and nothing stays, and clients were denied to write a second later."""
    async with locked(tmp_path, monkeypatch) as there:
        assert await die_at(there.stage, monkeypatch, "freeze", 3, answered=True)

        async def land() -> None:
            await create_denials(there.stage.source, {EVERYBODY, mark_of(EVERYBODY, ID)})

        found = await aborted(there, land if is_in_time else None)
        assert found[-2:] == (AbortFinding(AbortKind.SOURCE_THAWED, "east", stays=False), MAY_COME)
        assert standing_of(await there.stage.log(ID), now_ms()).state is OperationState.ABORTED
        assert there.east.acls == BEFORE
        if not is_in_time:
            await land()
            assert (await look(there.stage.source)).topics == (TOPIC,)
            await open_again(there.stage.source, [TOPIC])
            assert there.east.acls == BEFORE


async def test_of_a_machine_that_was_told_of_all_its_denials_none_may_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with locked(tmp_path, monkeypatch) as there:
        assert await die_at(there.stage, monkeypatch, "drain", 3, answered=True)
        assert MAY_COME not in await aborted(there)
        assert there.east.acls == BEFORE


def test_what_was_said_last_of_late_denials_counts() -> None:
    def log(*said: object) -> OperationLog:
        details: list[dict[str, object]] = [
            {"step": "freeze"},
            *({"step": "freeze", LATE_DENIALS: one} for one in said),
        ]
        entries = [JournalEntry(at, 0, ID, Event.DONE, detail, "") for at, detail in enumerate(details)]
        return OperationLog(ID, tuple(entries))

    assert late_denials(log()) == ()
    assert late_denials(log(["a", "b.*"])) == ("a", "b.*")
    assert late_denials(log(["a"], [])) == ()
    with pytest.raises(JournalDamaged, match="entry 1 has topics that are none"):
        late_denials(log("a"))
