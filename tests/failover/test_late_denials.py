"""Denials that are asked for and not answered, and that come when nobody waits for them any more."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from failover.acl_freeze import look, open_again
from failover.journal import Event, JournalEntry
from failover.journal_log import OperationJournal
from failover.result import OperationResult
from failover.steps import Operation
from tests.failover.stage import TOPIC
from tests.failover.test_acl_freeze import BEFORE, ID, Locked, locked, switch


async def failed_over(there: Locked, monkeypatch: pytest.MonkeyPatch) -> OperationResult:
    """From a source that answers nobody who asks it to deny from the hand-over on."""
    real = OperationJournal.record_all

    async def record_all(self: OperationJournal, noted: list[tuple[str, Mapping[str, Any]]]) -> list[JournalEntry]:
        entries = await real(self, noted)
        if any(event == Event.STARTED and detail["step"] == "hand_over" for event, detail in noted):
            there.east.unanswered = []
        return entries

    with monkeypatch.context() as patched:
        patched.setattr(OperationJournal, "record_all", record_all)
        return await switch(
            there.stage.link, operation=Operation.FAILOVER, allow_data_loss=True, even_if_source_answers=True
        )


async def test_what_was_asked_for_and_not_answered_is_told_as_what_may_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was said that no ACL keeps anybody from writing, and the source closed when the request was read."""
    async with locked(tmp_path, monkeypatch) as there:
        result = await failed_over(there, monkeypatch)
        assert there.east.unanswered, "the denial was asked for"
        assert (result.verified, result.takes_writes, result.denied_principals) == (True, True, ())
        told = f"ACLs that deny to write to {TOPIC} were asked for, and may come yet"
        assert told in result.not_closed
        assert "farshore site role --site east" in result.not_closed
        assert "farshore site thaw --site east" in result.not_closed


async def test_what_comes_behind_a_thaw_is_known_as_a_freezes_and_taken_back_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came without its mark, as somebody else's: no command of ours found it or took it back."""
    async with locked(tmp_path, monkeypatch) as there:
        await failed_over(there, monkeypatch)
        await open_again(there.stage.source, [TOPIC])
        assert there.east.acls == BEFORE
        there.east.land()
        assert there.east.acls > BEFORE
        found = await look(there.stage.source)
        assert (found.topics, found.operations(found.closed)) == ((TOPIC,), (ID,))
        await open_again(there.stage.source, [TOPIC])
        assert there.east.acls == BEFORE
