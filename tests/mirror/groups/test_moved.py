"""What an operation writes of a group's move: before it commits, and behind that."""

from __future__ import annotations

import pytest

from mirror.groups.moved import MovedPair, moved_groups, with_entries
from mirror.offsets.group_entries import GroupAction, GroupSync, GroupSyncs, GroupSyncTimes, Written

AT = ("t", 0)


def entries(before: Written | None, pair: MovedPair) -> tuple[list[GroupSync], list[GroupSync]]:
    known = GroupSyncs({"g": GroupSync("g", 5, {AT: before})} if before is not None else {})
    ahead = moved_groups(known, {"g": {AT: pair}}, 9, is_done=False)
    return ahead, moved_groups(with_entries(known, ahead), {"g": {AT: pair}}, 10, is_done=True)


@pytest.mark.parametrize(
    ("before", "pair", "ahead", "done"),
    [
        (None, MovedPair(7, 12, None, 0), Written(7, 12), None),
        (Written(3, 8), MovedPair(7, 12, 8, 0), Written(7, 12, 8), Written(7, 12)),
        (Written(3, 8), MovedPair(7, 12, 9, 0), Written(7, 12, stood=9), Written(7, 12)),
        (Written(3, 8), MovedPair(7, 12, 12, 0), Written(7, 12), None),
        (Written(7, 12, 8), MovedPair(7, 12, 8, 0), None, Written(7, 12)),
        (None, MovedPair(7, 12, None, 1), Written(7, 12, None, -1, 1), Written(7, 12, None, 12, 1)),
        (Written(3, 8, 2, 8, 4), MovedPair(7, 12, 8, 6), Written(7, 12, 8, 8, 6), Written(7, 12, 8, 12, 6)),
        (Written(3, 8, 2, 8, 4), MovedPair(7, 12, 9, 6), Written(7, 12, None, 9, 6), Written(7, 12, None, 12, 6)),
        (Written(7, 12, 8, 8, 6), MovedPair(7, 12, 8, 7), None, Written(7, 12, 8, 12, 6)),
        (Written(7, 12, 8, 12, 6), MovedPair(7, 12, 12, 7), None, None),
        (Written(7, 12, 8, 12, 4), MovedPair(7, 12, 12, 7), Written(7, 12, None, 12, 7), None),
    ],
)
def test_the_pair_says_what_may_still_stand_there_until_it_is_committed(
    before: Written | None, pair: MovedPair, ahead: Written | None, done: Written | None
) -> None:
    """None: nothing that the state does not say already."""
    first, second = entries(before, pair)
    assert [entry.written for entry in first] == ([{AT: ahead}] if ahead else [])
    assert [entry.written for entry in second] == ([{AT: done}] if done else [])


def test_what_the_state_says_of_the_group_beside_that_stays() -> None:
    other, at_ms = ("t", 1), 9
    waiting = {AT: GroupAction.HOLD_NOT_MIRRORED, other: GroupAction.SKIP_ACTIVE}
    before = GroupSync("g", 5, {other: Written(1, 2)}, waiting, "refused", 4)
    known = GroupSyncs({"g": before, "h": GroupSync("h", 5)}, GroupSyncTimes(looked_at_ms=8))
    moves = {"g": {AT: MovedPair(7, 12, None, 0)}}
    (entry,) = moved_groups(known, moves, at_ms, is_done=False)
    written = {other: Written(1, 2), AT: Written(7, 12)}
    assert entry == GroupSync("g", at_ms, written, waiting, "refused", 4), "it waits until it is committed"
    (entry,) = moved_groups(with_entries(known, [entry]), moves, at_ms, is_done=True)
    assert entry == GroupSync("g", at_ms, written, {other: GroupAction.SKIP_ACTIVE}, "refused", entry.synced_at_ms)
