"""Along a link that an operation moves, and that may not have ended, nobody else lets a mirror run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from failover.errors import NewerVersion, OperationUnderWay
from failover.journal.standing import refuse_amid
from failover.journal.values import Event, JournalEntry, OperationLog
from failover.planning.intent import Intent
from failover.running.steps import Operation

PLANNED = (Event.PLANNED, {"intent": Intent(Operation.FAILOVER, ("a", "b"), "east", "west").document(), "who": "x"})
GIVEN_UP = (Event.LINK_GIVEN_UP, {"link": "b", "why": "its drain"})
LATER_MS = 3_600_000
NEWER = 1_000


def refuse(link: str, *said: tuple[str, Mapping[str, Any]], newer: int = 0) -> None:
    entries = (JournalEntry(at, at, "op", event, detail, "") for at, (event, detail) in enumerate(said))
    log = OperationLog("op", tuple(entries), newer_version=newer)
    refuse_amid(link, {"op": log}, LATER_MS)


def test_each_of_its_links_is_its_own_until_it_has_ended_but_for_one_that_it_gave_up() -> None:
    for link in ("a", "b"):
        with pytest.raises(OperationUnderWay, match="op moves a, b and was cut short"):
            refuse(link, PLANNED)
    refuse("another", PLANNED)
    with pytest.raises(OperationUnderWay):
        refuse("a", PLANNED, GIVEN_UP)
    refuse("b", PLANNED, GIVEN_UP)
    refuse("a", PLANNED, (Event.ABORTED, {"who": "x", "findings": []}))


def test_whether_one_has_ended_that_a_newer_version_carries_on_is_not_guessed() -> None:
    with pytest.raises(NewerVersion):
        refuse("a", PLANNED, newer=NEWER)
