"""A group that had no offset at the source when it was moved: what it has there by the end of another run is a reading,
but where nobody could ask the source when that was decided.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from broker.client.errors import ClusterUnreachable
from broker.client.groups import commit_offsets
from broker.client.model import CommittedOffset
from failover.errors import CutShort
from failover.freezing.hooks import Hooks
from failover.journal.log import OperationJournal
from failover.journal.values import JournalEntry
from failover.planning.intent import Intent
from failover.running.late_commits import LateCommit
from failover.running.result import OperationResult
from failover.running.taking_up import resume
from tests.failover.machines import HEIR, machine, quick
from tests.failover.running.test_taking_up import FAILOVER, ID, SWITCHOVER, die_in, ready
from tests.failover.stage import PARTITIONS, TOPIC, Stage

ALONE = "reporters"
"""A group that stands at the target alone."""
GOES_ON = LateCommit(ALONE, TOPIC, 0, None, 45)


async def read_at(stage: Stage) -> None:
    await commit_offsets(stage.source, ALONE, {PARTITIONS[0]: CommittedOffset(45)})


async def taken_up(stage: Stage) -> OperationResult:
    async with machine(HEIR, stage.link) as sites:
        (result,) = await resume(await stage.log(ID), sites, Hooks(), "an heir")
    return result


def forgetting(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an earlier version writes its journal."""
    real = OperationJournal.record_all

    async def record_all(self: OperationJournal, noted: list[tuple[str, Mapping[str, Any]]]) -> list[JournalEntry]:
        known = [(event, {name: said for name, said in one.items() if name != "source_asked"}) for event, one in noted]
        return await real(self, known)

    monkeypatch.setattr(OperationJournal, "record_all", record_all)


@pytest.mark.parametrize("step", ["hand_over", "verify"])
async def test_who_goes_on_there_between_two_runs_reads_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The second run took it for what the move was made from, and ended with 0."""
    quick(monkeypatch)
    async with ready(tmp_path) as stage:
        await commit_offsets(stage.target, ALONE, {PARTITIONS[0]: CommittedOffset(10)})
        await die_in(stage, monkeypatch, step)
        await read_at(stage)
        result = await taken_up(stage)
    assert (result.verified, result.late_commits, result.has_findings) == (True, (GOES_ON,), True)


async def test_it_is_known_to_the_third_machine_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the second one writes down of moves that it did not make is what the first one had said of them."""
    quick(monkeypatch)
    async with ready(tmp_path) as stage:
        await commit_offsets(stage.target, ALONE, {PARTITIONS[0]: CommittedOffset(10)})
        await die_in(stage, monkeypatch, "hand_over")
        log = await stage.log(ID)
        (made,) = [one.detail for one in log.entries if one.event == "done" and one.detail["step"] == "move_groups"]
        assert made["source_asked"] == [stage.link.name]
        await read_at(stage)
        result = await taken_up(stage)
        log = await stage.log(ID)
    *_, again = [one.detail for one in log.entries if one.event == "done" and one.detail["step"] == "move_groups"]
    assert again["source_asked"] == [stage.link.name]
    assert result.late_commits == (GOES_ON,)


@pytest.mark.parametrize(("intent", "is_old"), [(FAILOVER, False), (SWITCHOVER, True)])
async def test_what_it_had_read_before_anybody_could_ask_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, intent: Intent, is_old: bool
) -> None:
    """Nor is it where the journal, as an earlier version wrote it, does not say whether anybody could."""
    quick(monkeypatch)
    if is_old:
        forgetting(monkeypatch)
    async with ready(tmp_path) as stage:
        await commit_offsets(stage.target, ALONE, {PARTITIONS[0]: CommittedOffset(10)})
        if not is_old:
            await read_at(stage)
        await die_in(stage, monkeypatch, "hand_over" if is_old else "verify", intent, source_lives=is_old)
        if is_old:
            await read_at(stage)
        result = await taken_up(stage)
    assert GOES_ON not in result.late_commits
    assert result.verified


async def test_who_decides_anew_when_the_source_is_back_has_asked_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first run could not ask stood for what the second one had asked, and the third saw nobody go on."""
    quick(monkeypatch)
    async with ready(tmp_path) as stage:
        await commit_offsets(stage.target, ALONE, {PARTITIONS[0]: CommittedOffset(10)})
        await die_in(stage, monkeypatch, "move_groups", FAILOVER, source_lives=False)
        real = OperationJournal.record_all

        async def record_all(self: OperationJournal, noted: list[tuple[str, Mapping[str, Any]]]) -> list[JournalEntry]:
            if any(event == "started" and said["step"] == "verify" for event, said in noted):
                raise ClusterUnreachable("west is gone")
            return await real(self, noted)

        with monkeypatch.context() as patched:
            patched.setattr(OperationJournal, "record_all", record_all)
            with pytest.raises(CutShort):
                await taken_up(stage)
        await read_at(stage)
        result = await taken_up(stage)
    assert result.verified
    assert GOES_ON in result.late_commits
