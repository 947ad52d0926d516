"""Whether an operation along a link has not ended, as third sites are asked it, for each link, in a few seconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import pytest

from broker.client.site import Site
from failover.failback.operation import open_switchover
from failover.journal.standing import refuse_amid, to_forget, under_way
from failover.journal.values import Event, JournalEntry, Lease, OperationLog
from failover.planning.intent import Intent
from failover.running.steps import Operation
from mirror.link import Link


class Shut(Mapping[str, Any]):
    """Evidence of 1,000 groups."""

    def __getitem__(self, _name: str) -> NoReturn:
        raise AssertionError("it was opened")

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("it was opened")

    def __len__(self) -> int:
        return 1


EAST, WEST = Site("east", "127.0.0.1:9"), Site("west", "127.0.0.1:9")
A, B = (Link(name, EAST, WEST, (".*",)) for name in ("a", "b"))
UNHEARD_MS = 3_600_000
NEWER = 1_000


def log_of(operation_id: str, *said: tuple[str, Mapping[str, Any]], newer: int = 0, damage: str = "") -> OperationLog:
    """Its machine was heard of when the epoch began."""
    entries = (JournalEntry(at, at, operation_id, event, detail, "") for at, (event, detail) in enumerate(said))
    lease = Lease("x", 0, ("east", "west"))
    return OperationLog(operation_id, tuple(entries), lease, damage, newer_version=newer)


@pytest.mark.parametrize("end", [Event.FINISHED, Event.ABORTED, Event.GIVEN_UP])
def test_of_operations_that_have_ended_nothing_is_opened(end: Event) -> None:
    """Twenty of 1,000 groups took a second of each question: for twenty links more than all that third sites have. And
    `link resume` took ten seconds and 600 MB.
    """
    ended = log_of("ended", (Event.PLANNED, Shut()), (Event.STARTED, Shut()), (end, Shut()))
    intent = Intent(Operation.FAILBACK, ("a",), "west", "east").document()
    back = log_of("back", (Event.PLANNED, {"intent": intent, "who": "x"}))
    operations = {log.operation_id: log for log in (ended, back)}
    assert under_way(A, operations, 0) == "back"
    assert under_way(A, operations, 0, even_failbacks=False) == ""
    assert under_way(B, operations, 0) == ""
    refuse_amid("a", {"ended": ended}, 0)
    assert open_switchover(A, {"ended": ended}, 0) is None
    assert to_forget({"ended": ended}, ("west", "east"), 1) == []


PLANNED = (Event.PLANNED, {"intent": Intent(Operation.FAILOVER, ("a", "b"), "east", "west").document(), "who": "x"})


@pytest.mark.parametrize(
    "log",
    [
        log_of("op", PLANNED, newer=NEWER),
        log_of("op", newer=NEWER),
        log_of("op", PLANNED, damage="entry 1 is missing"),
        log_of("op", damage="entry 0 is missing"),
    ],
)
def test_one_that_cannot_be_read_is_under_way_while_its_machine_is_heard_of(log: OperationLog) -> None:
    """A move to another site was planned, and fenced, beside that of a newer version."""
    assert under_way(A, {"op": log}, 1_000) == "op"
    assert under_way(A, {"op": log}, UNHEARD_MS) == ""
    assert under_way(Link("a", WEST, EAST, (".*",)), {"op": log}, 1_000) == ("op" if log.entries else "")


def test_what_it_gave_up_is_its_own_no_more() -> None:
    operations = {"op": log_of("op", PLANNED, (Event.LINK_GIVEN_UP, {"link": "b", "why": "its drain"}))}
    assert [under_way(one, operations, UNHEARD_MS) for one in (A, B)] == ["op", ""]
