"""A group of which it is not known that it was moved is moved by whoever takes the operation up."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from failover.errors import JournalDamaged
from failover.freezing.hooks import Hooks
from failover.journal.log import OperationJournal
from failover.journal.standing import uncommitted_groups
from failover.journal.values import Event, JournalEntry, OperationLog
from failover.running.taking_up import resume
from tests.failover.machines import HEIR, Death, machine, mortal, quick, until_death
from tests.failover.running.test_taking_up import ID, SWITCHOVER, ready
from tests.failover.stage import GROUP, PARTITIONS, RARE, reading


async def test_a_group_whose_commit_was_refused_is_moved_when_the_operation_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counted as moved, and the resumed operation ended without it, not verified: here a consumer that came behind
    the fence kept the group from it, and left again.
    """
    quick(monkeypatch)
    death = Death()
    real = OperationJournal.record_all
    async with ready(tmp_path, RARE) as stage:
        async with AsyncExitStack() as readers:

            async def record_all(self: OperationJournal, noted: list[tuple[str, Mapping[str, Any]]]) -> Any:
                begun = {detail["step"] for event, detail in noted if event == Event.STARTED}
                if "move_groups" in begun:
                    await readers.enter_async_context(reading(stage.link.target.bootstrap_servers))
                entries = await real(self, noted)
                if "verify" in begun:
                    death.at = death.requests + 1
                return entries

            with mortal(monkeypatch, death), monkeypatch.context() as patched:
                patched.setattr(OperationJournal, "record_all", record_all)
                await until_death(SWITCHOVER, stage, ID)
        assert death.is_dead
        log = await stage.log(ID)
        assert uncommitted_groups(log) == {stage.link.name: frozenset({GROUP})}
        async with machine(HEIR, stage.link) as sites:
            (result,) = await resume(log, sites, Hooks(), "an heir")
        assert result.verified, result.differences
        assert uncommitted_groups(await stage.log(ID)) == {stage.link.name: frozenset()}
        for at in PARTITIONS:
            assert await stage.next_record(stage.target, at) == await stage.next_record(stage.source, at)


@pytest.mark.parametrize("said", [{"l": "analysts"}, {"l": [1]}, ["analysts"]])
def test_groups_that_are_none_are_damage(said: object) -> None:
    detail = {"step": "move_groups", "moves": {}, "uncommitted": said}
    log = OperationLog("op", (JournalEntry(0, 0, "op", Event.DONE, detail, ""),))
    with pytest.raises(JournalDamaged, match="groups that are none"):
        uncommitted_groups(log)


def test_an_earlier_version_said_nothing_of_them() -> None:
    log = OperationLog("op", (JournalEntry(0, 0, "op", Event.DONE, {"step": "move_groups", "moves": {}}, ""),))
    assert uncommitted_groups(log) == {}
