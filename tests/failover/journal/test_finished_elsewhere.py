"""A command that was stopped while another machine brought its operation to the end says so when it goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.client.cluster import Cluster
from failover.errors import FailoverError, JournalUnanswered, OperationTakenUp, OperationUnderWay
from failover.journal.log import OperationJournal
from failover.journal.silence import told_who_went_on
from failover.journal.values import Event
from failover.limits import LEASE_S
from failover.observing.sites import Sites
from tests.failover.machines import VICTIM, operate, quick
from tests.failover.running.test_late_promotions import Asleep, SleepyClock, before_a_request
from tests.failover.running.test_taking_up import ID, SWITCHOVER, ready, take_up
from tests.failover.stage import now_ms, two_sites
from tests.mirror.harness import eventually


async def test_who_slept_while_another_finished_says_who_and_how_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said that the target did not take an entry of the journal, and to resume when that answers."""
    quick(monkeypatch)
    real, clock = OperationJournal.record_all, SleepyClock()
    async with ready(tmp_path) as stage:

        async def finish() -> None:
            clock.slept_s = LEASE_S
            await eventually(is_taken_up, "an heir has it")

        async def is_taken_up() -> bool:
            try:
                await take_up(stage)
            except OperationUnderWay:  # a renewal was on its way when the victim fell asleep
                return False
            return True

        asleep = Asleep(0, finish)

        async def noting(self: OperationJournal, noted: Sequence[tuple[str, Mapping[str, Any]]]) -> Any:
            entries = await real(self, noted)
            if any(event == Event.STARTED and detail["step"] == "move_groups" for event, detail in noted):
                asleep.at = asleep.at or asleep.requests + 1
            return entries

        async with (
            Cluster(stage.link.source, client_id=VICTIM) as source,
            Cluster(stage.link.target, client_id=VICTIM, clock=clock) as target,
        ):
            sites = Sites(stage.link, source, target, (), now_ms)
            with before_a_request(monkeypatch, VICTIM, asleep), monkeypatch.context() as patched:
                patched.setattr(OperationJournal, "record_all", noting)
                with pytest.raises(FailoverError) as told:
                    await operate(replace(SWITCHOVER, links=(stage.link.name,)), [sites], ID)
    assert isinstance(told.value, OperationTakenUp)
    assert str(told.value).startswith(f"{ID} was taken up elsewhere by an heir (verified by now)")


async def test_where_nobody_went_on_what_was_lost_is_said(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        journal = await stage.journal()
        await journal.record(Event.PLANNED, {"intent": SWITCHOVER.document(), "who": "a victim"})
        lost = JournalUnanswered(journal.operation_id, "west")
        assert await told_who_went_on(lost, journal, stage.sites) is lost
