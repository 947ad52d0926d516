"""Which groups went and came back, from the journals of both sites."""

from __future__ import annotations

from failover.failback.waves import MovedGroups, groups_back, moved_along
from failover.journal.values import GENESIS_HASH, Event, JournalEntry, OperationLog
from failover.planning.intent import Intent
from failover.planning.moves import GroupMove, MoveKind
from failover.running.steps import Operation, OperationStep
from mirror.api import LinkRun, RunState


def log(
    name: str,
    *groups: str,
    before: str = "",
    moves: bool = True,
    verified: bool = True,
    left: tuple[str, ...] = (),
) -> OperationLog:
    """`before`: the operation that had promoted the link. It came to its groups, or not. `left`: by consent."""
    intent = Intent(Operation.SWITCHOVER, ("link",), "east", "west", groups=groups, left_groups=left)
    seen = {"link": "link", "link_state": "promoted" if before else "running", "operation_id": before or "resume-1"}
    told: list[tuple[str, dict[str, object]]] = [
        (Event.PLANNED, {"intent": intent.document(), "plans": [{"snapshot": seen}]}),
        (Event.STARTED, {"step": OperationStep.FENCE.value}),
        (Event.FINISHED, {"verified": verified, "has_findings": False, "results": []}),
    ]
    if moves:
        of_link = [move_of(group, MoveKind.TRANSLATED).document() for group in groups or ("a",)]
        of_link += [move_of(group, MoveKind.UNKNOWN).document() for group in left]
        told.insert(2, (Event.STARTED, {"step": OperationStep.MOVE_GROUPS.value, "moves": {"link": of_link}}))
    return OperationLog(
        name, tuple(JournalEntry(at, 1, name, event, detail, GENESIS_HASH) for at, (event, detail) in enumerate(told))
    )


def move_of(group: str, kind: MoveKind) -> GroupMove:
    return GroupMove(group, "flights", 0, "flights", kind, 1, 1, "")


def moved(last: str, *logs: OperationLog, only_verified: bool = False) -> MovedGroups:
    run = LinkRun(RunState.PROMOTED, last, 1)
    return moved_along("link", run, {one.operation_id: one for one in logs}, only_verified=only_verified)


def test_waves_add_up_to_where_the_link_ran_and_no_further() -> None:
    old = log("old", "long-ago")
    first, second = log("first", "a"), log("second", "b", before="first")
    assert moved("second", old, first, second) == MovedGroups(frozenset("ab"))
    assert moved("first", old, first, second) == MovedGroups(frozenset("a"))
    assert moved("rest", first, log("rest", before="first")) == MovedGroups(is_all=True)


def test_what_did_not_come_to_its_groups_moved_none_and_what_was_not_verified_is_not_back() -> None:
    first = log("first", "a")
    assert moved("second", first, log("second", "b", before="first", moves=False)).names == {"a"}
    late = log("second", "b", before="first", verified=False)
    assert moved("second", first, late).names == {"a", "b"}
    assert moved("second", first, late, only_verified=True).names == {"a"}


def test_a_group_that_was_left_behind_by_consent_did_not_go() -> None:
    assert moved("first", log("first", left=("x",))) == MovedGroups(frozenset("a"))


def test_what_no_journal_tells_is_said_to_be_unknown_and_taken_to_be_all() -> None:
    unknown = MovedGroups(is_all=True, is_known=False)
    assert moved("failover-1") == unknown
    assert moved("second", log("second", "b", before="first")) == unknown
    running = LinkRun(RunState.RUNNING, "first", 1)
    assert moved_along("link", running, {"first": log("first", "a")}) == MovedGroups()


def test_those_that_went_and_those_that_were_born_there_come_but_none_twice_and_none_that_never_went() -> None:
    none = MovedGroups()
    found = groups_back("abc", "ab", MovedGroups(frozenset("a")), none, none)
    assert (found.coming, found.untouched, found.staying, found.named) == (("a", "c"), ("a", "c"), ("b",), ("a", "c"))
    everything = groups_back("abc", "ab", MovedGroups(is_all=True), none, none)
    assert (everything.coming, everything.staying, everything.named) == (tuple("abc"), (), ())
    begun = MovedGroups(frozenset("ab"))
    rest = groups_back("abc", "abc", MovedGroups(is_all=True), MovedGroups(frozenset("a")), begun)
    assert (rest.coming, rest.untouched, rest.named) == (("b", "c"), ("c",), ("b", "c"))
    gone = groups_back("b", "ab", MovedGroups(frozenset("a")), none, none, "ab")
    assert (gone.coming, gone.staying, gone.gone, gone.named, gone.is_none) == ((), ("b",), ("a",), (), True)
    assert [one.is_none for one in (found, everything, rest)] == [False] * 3
    unknown = groups_back("ab", "ab", MovedGroups(is_all=True, is_known=False), none, none)
    assert (unknown.coming, unknown.named, unknown.is_known) == (("a", "b"), (), False)


def test_those_that_went_and_are_only_at_the_old_site_are_told() -> None:
    everybody, none = MovedGroups(is_all=True), MovedGroups()
    assert groups_back("a", "abc", everybody, none, none, "abd").gone == ("b",), "c is nowhere, d never went"
    assert groups_back("a", "abc", everybody, MovedGroups(frozenset("b")), none, "ab").gone == (), "it was back"
