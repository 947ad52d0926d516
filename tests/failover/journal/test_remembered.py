"""What an operation remembers of a link stays remembered when a later run of it came on without that link."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from failover.journal.standing import done_moves, uncommitted_groups
from failover.journal.values import Event, JournalEntry, OperationLog
from failover.planning.moves import GroupMove, MoveKind
from failover.running.read_on import verified_offsets
from failover.running.steps import OperationStep

MOVE = GroupMove("analysts", "flights", 0, "flights", MoveKind.TRANSLATED, 20, 23, "")
LATER = replace(MOVE, target_offset=24)


def log_of(*said: tuple[str, Mapping[str, Any]]) -> OperationLog:
    entries = (JournalEntry(at, at, "op", event, detail, "") for at, (event, detail) in enumerate(said))
    return OperationLog("op", tuple(entries))


def moved(*links: str, move: GroupMove = MOVE, **more: Any) -> dict[str, Any]:
    return {"step": "move_groups", "moves": {link: [move.document()] for link in links}, **more}


def test_a_run_that_one_link_was_missing_from_forgets_none_of_its_moves() -> None:
    """Of three runs the second failed at the fence of one link: the third set that link's groups back once more."""
    left = {"flights": ["analysts"], "orders": ["billing"]}
    log = log_of(
        (Event.STARTED, moved("flights", "orders")),
        (Event.DONE, moved("flights", "orders", uncommitted=left)),
        (Event.GROUPS_VERIFIED, {"offsets": {"flights": [], "orders": [["analysts", "orders", 0, 23]]}}),
        (Event.STARTED, moved("flights", move=LATER)),
        (Event.DONE, moved("flights", move=LATER, uncommitted={"flights": []})),
        (Event.GROUPS_VERIFIED, {"offsets": {"flights": [["analysts", "flights", 0, 24]]}}),
    )
    for event in (Event.STARTED, Event.DONE):
        assert done_moves(log, OperationStep.MOVE_GROUPS, event) == {"flights": (LATER,), "orders": (MOVE,)}
    assert uncommitted_groups(log) == {"flights": frozenset(), "orders": frozenset({"billing"})}
    assert verified_offsets(log) == {
        "flights": {("analysts", "flights", 0): 24},
        "orders": {("analysts", "orders", 0): 23},
    }


def test_an_earlier_versions_later_run_of_a_link_left_no_group_of_it() -> None:
    log = log_of(
        (Event.DONE, moved("flights", uncommitted={"flights": ["analysts"]})),
        (Event.DONE, moved("flights")),
    )
    assert uncommitted_groups(log) == {"flights": frozenset()}


def test_a_step_that_was_not_taken_remembers_nothing() -> None:
    log = log_of((Event.STARTED, {"step": "move_groups"}), (Event.DONE, {"step": "fence"}))
    assert done_moves(log, OperationStep.MOVE_GROUPS) == {}
    assert done_moves(log, OperationStep.MOVE_GROUPS, Event.STARTED) == {}
    assert (uncommitted_groups(log), verified_offsets(log)) == ({}, {})
