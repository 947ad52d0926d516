"""Whether an operation along a link has not ended, as third sites are asked it, for each link, in a few seconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import pytest

from failover.journal.standing import under_way
from failover.journal.values import Event, JournalEntry, OperationLog
from failover.planning.intent import Intent
from failover.running.steps import Operation


class Shut(Mapping[str, Any]):
    """Evidence of 1,000 groups."""

    def __getitem__(self, _name: str) -> NoReturn:
        raise AssertionError("it was opened")

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("it was opened")

    def __len__(self) -> int:
        return 1


def log_of(operation_id: str, *said: tuple[str, Mapping[str, Any]]) -> OperationLog:
    entries = (JournalEntry(at, at, operation_id, event, detail, "") for at, (event, detail) in enumerate(said))
    return OperationLog(operation_id, tuple(entries))


@pytest.mark.parametrize("end", [Event.FINISHED, Event.ABORTED, Event.GIVEN_UP])
def test_of_operations_that_have_ended_nothing_is_opened(end: Event) -> None:
    """Twenty of 1,000 groups took a second of each question: for twenty links more than all that third sites have."""
    ended = log_of("ended", (Event.PLANNED, Shut()), (Event.STARTED, Shut()), (end, Shut()))
    intent = Intent(Operation.FAILBACK, ("a",), "west", "east").document()
    back = log_of("back", (Event.PLANNED, {"intent": intent, "who": "x"}))
    operations = {log.operation_id: log for log in (ended, back)}
    assert under_way("a", operations, 0) == "back"
    assert under_way("a", operations, 0, even_failbacks=False) == ""
    assert under_way("b", operations, 0) == ""
