"""What a failback had found before its machine died is found, and told, by the machine that takes it up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.client.groups import commit_offsets
from broker.client.model import CommittedOffset
from failover.failback.way_back import SwitchoverEnd
from failover.journal.log import OperationJournal
from failover.journal.standing import OperationState, standing_of
from failover.journal.values import Event, JournalEntry
from mirror.offsets.entries import RunState
from mirror.offsets.state import read_entries
from tests.failover.failback.returning import ID, INNER, die_in_step, expected, go_back, log_of, ready, stands
from tests.failover.failback.stage import Lost
from tests.failover.machines import HEIR
from tests.failover.stage import GROUP, PARTITIONS, now_ms
from tests.mirror.harness import some_records, write


def reads_on_at_west(lost: Lost, monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer that joined no group commits there behind its move, which the switchover finds."""
    real = OperationJournal.record_all

    async def record_all(self: OperationJournal, noted: Any) -> list[JournalEntry]:
        told = list(noted)
        if self.operation_id == INNER and Event.GROUPS_VERIFIED in [event for event, _ in told]:
            await commit_offsets(lost.stage.target, GROUP, {PARTITIONS[0]: CommittedOffset(42)})
        return await real(self, told)

    monkeypatch.setattr(OperationJournal, "record_all", record_all)


def late_at_west(lost: Lost, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that no role keeps from it writes there behind the fence of the link back."""
    real = OperationJournal.record_all

    async def record_all(self: OperationJournal, noted: Any) -> list[JournalEntry]:
        told = list(noted)
        if self.operation_id == ID and (Event.STARTED, {"step": "resume"}) in told:
            await write(lost.stage.target, PARTITIONS[0], some_records(90_000, 2))
        return await real(self, told)

    monkeypatch.setattr(OperationJournal, "record_all", record_all)


async def test_what_the_other_site_alone_has_is_told_when_the_link_runs_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It died between letting the link run and its end: who took it up said that all was verified, and looked at
    nothing.
    """
    async with ready(tmp_path, monkeypatch) as lost:
        late_at_west(lost, monkeypatch)
        await die_in_step(lost, tmp_path, monkeypatch, "resume", Event.DONE)
        came_back = await go_back(HEIR, lost, tmp_path / "another machine")
        assert [tail.records for tail in came_back.stranded_at_target] == [2]
        assert standing_of(await log_of(lost), now_ms()).state is OperationState.FINDINGS


async def test_a_finding_of_its_switchover_ends_it_for_whoever_takes_it_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link was let run, and all was said to be verified, while a group read on at the site that was left."""
    async with ready(tmp_path, monkeypatch) as lost:
        wanted = await expected(lost)
        reads_on_at_west(lost, monkeypatch)
        await die_in_step(lost, tmp_path, monkeypatch, "switch_over", Event.DONE)
        came_back = await go_back(HEIR, lost, tmp_path / "another machine")
        assert (came_back.switchover, came_back.steps_done) == (SwitchoverEnd.FINDINGS, [])
        told = came_back.switched_over_before
        assert told is not None
        assert (told["operation_id"], [one["group"] for one in told["late_commits"]]) == (INNER, [GROUP])
        run = (await read_entries(lost.there, lost.stage.target)).run
        assert run is not None
        assert run.state is RunState.PROMOTED
        assert standing_of(await log_of(lost), now_ms()).state is OperationState.FINDINGS
        await go_back(HEIR, lost, tmp_path / "another machine", "failback-2")
        assert (await stands(lost, "failback-2")) == wanted
