"""A failback whose plan is older than what another operator did changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from failover.errors import WorldChanged
from failover.journal.standing import OperationState, standing_of
from failover.journal.values import Event
from mirror.offsets.entries import RunState
from mirror.offsets.operations import resume_link
from mirror.offsets.state import read_entries
from tests.failover.failback.returning import go_back, group_at_east, log_of, ready
from tests.failover.machines import VICTIM
from tests.failover.stage import now_ms


async def test_of_a_link_that_was_let_run_since_it_brings_no_site_back_without_its_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It made east the active site, verified, and left the group ahead of 13 records that it had not read at west."""
    async with ready(tmp_path, monkeypatch) as lost:

        async def resumed() -> None:
            await resume_link(lost.there, lost.stage.target, "resume-1")

        with pytest.raises(WorldChanged, match=f"{lost.there.name}: promoted by failover-1 -> running by resume-1"):
            await go_back(VICTIM, lost, tmp_path, meanwhile=resumed)
        log = await log_of(lost)
        assert standing_of(log, now_ms()).state is OperationState.GIVEN_UP
        assert [entry.event for entry in log.entries] == [Event.PLANNED, Event.GIVEN_UP]
        back = (await read_entries(lost.back, lost.stage.source)).run
        assert back is None or back.state is RunState.RUNNING
        assert await group_at_east(lost) == 53
