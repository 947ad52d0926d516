"""A group's offset at the target is judged by the record that it reads next; what is on its way is no difference."""

from __future__ import annotations

import random

import pytest

from monitoring.audit.groups import (
    Carrying,
    Compared,
    FrozenGroups,
    GroupOffset,
    GroupReason,
    GroupVerdict,
    NextRecord,
    NextRecords,
    NextState,
    OffsetsSeen,
    compare_next,
    judge,
)

END, EXPIRED = NextRecord(NextState.END), NextRecord(NextState.EXPIRED)
OPEN, DEAD = NextRecord(NextState.OPEN_TRANSACTION), NextRecord(NextState.NOT_READABLE)


def record(offset: int, digest: str = "a") -> NextRecord:
    return NextRecord(NextState.RECORD, offset, digest)


def compared(
    target: NextRecord,
    source: NextRecord,
    offsets: tuple[int, int] = (8, 8),
    expected: NextRecord | None = None,
    mapped: int | None = 3,
    *,
    comparable: bool = True,
) -> Compared:
    return compare_next(*offsets, NextRecords(target, expected or target, source, mapped, comparable))


def test_the_same_record_is_next() -> None:
    assert compared(record(8), record(3)) is Compared.SAME_RECORD


def test_an_offset_before_a_marker_reads_the_same_record() -> None:
    for offsets in ((8, 9), (9, 8)):
        assert compared(record(9), record(3), offsets, record(9)) is Compared.SAME_RECORD


def test_equal_content_at_another_place_is_not_the_same_record() -> None:
    """As with a heartbeat that is written again and again."""
    assert compared(record(9), record(3), (9, 8), record(8)) is Compared.AHEAD
    assert compared(record(7), record(3), (7, 8), record(8)) is Compared.BEHIND


def test_where_the_map_leads_to_another_record_the_offsets_agree_and_the_content_does_not() -> None:
    assert compared(record(8, "b"), record(3)) is Compared.OTHER_RECORD
    assert compared(record(8), record(2), mapped=3) is Compared.OTHER_RECORD
    assert compared(END, record(3)) is Compared.OTHER_RECORD
    assert compared(record(8), END) is Compared.OTHER_RECORD


def test_what_cannot_be_compared_by_content_is_compared_by_place() -> None:
    assert compared(record(8, "b"), record(3), comparable=False) is Compared.SAME_PLACE
    assert compared(END, END) is Compared.SAME_PLACE
    assert compared(EXPIRED, record(3)) is Compared.SAME_PLACE
    assert compared(record(8), EXPIRED) is Compared.SAME_PLACE


@pytest.mark.parametrize("unread", [OPEN, DEAD])
def test_what_was_not_read_is_never_the_same(unread: NextRecord) -> None:
    assert compared(unread, record(3)) is Compared.UNKNOWN
    assert compared(record(8), unread) is Compared.UNKNOWN
    assert compared(unread, record(3), (8, 9), unread) is Compared.BEHIND


STANDS = OffsetsSeen(3, 5, 8)


def carrying(
    *,
    seen: bool = True,
    promoted: bool = False,
    left: bool = True,
    unmapped: GroupReason | None = None,
    declined: GroupReason | None = None,
) -> Carrying:
    return Carrying(seen, promoted, left, unmapped, declined)


def test_what_stood_still_over_a_whole_pass_differs() -> None:
    found = judge(STANDS, STANDS, Compared.BEHIND, carrying())
    assert found == (GroupVerdict.BEHIND, GroupReason.NOT_CARRIED, False)
    missing = OffsetsSeen(3, None, 8)
    found = judge(missing, missing, None, carrying())
    assert found == (GroupVerdict.MISSING_AT_TARGET, GroupReason.NOT_CARRIED, False)


def test_without_a_pass_what_the_link_left_is_in_flight_and_what_others_moved_differs() -> None:
    found = judge(STANDS, STANDS, Compared.BEHIND, carrying(seen=False))
    assert found == (GroupVerdict.BEHIND, GroupReason.NOT_LOOKED_AT_YET, True)
    found = judge(STANDS, STANDS, Compared.AHEAD, carrying(seen=False, left=False))
    assert found == (GroupVerdict.AHEAD, GroupReason.MOVED_ON, False)


def test_what_the_link_declined_differs_with_its_reason() -> None:
    found = judge(STANDS, STANDS, Compared.AHEAD, carrying(declined=GroupReason.ACTIVE_AT_TARGET))
    assert found == (GroupVerdict.AHEAD, GroupReason.ACTIVE_AT_TARGET, False)


def test_a_group_that_commits_all_the_time_is_in_flight_as_far_as_the_pass_has_brought_it() -> None:
    before = OffsetsSeen(3, 5, 8)
    assert judge(before, OffsetsSeen(6, 8, 11), Compared.BEHIND, carrying())[2]
    assert judge(before, OffsetsSeen(6, 10, 11), Compared.BEHIND, carrying())[2]
    # Not even where it stood at the first look.
    assert not judge(before, OffsetsSeen(6, 5, 11), Compared.BEHIND, carrying())[2]
    assert not judge(OffsetsSeen(3, 12, 8), OffsetsSeen(6, 12, 11), Compared.AHEAD, carrying())[2]
    # It was set back meanwhile, or came into being.
    assert judge(before, OffsetsSeen(2, 8, 7), Compared.AHEAD, carrying())[2]
    assert judge(OffsetsSeen(None, None, None), OffsetsSeen(2, None, 7), None, carrying())[2]


def test_what_has_no_exact_offset_is_unmapped() -> None:
    seen = OffsetsSeen(3, 5, None)
    for reason in (GroupReason.BEFORE_THE_MIRROR, GroupReason.OFFSETS_IN_DOUBT, GroupReason.MORE_SITES):
        assert judge(seen, seen, None, carrying(unmapped=reason)) == (GroupVerdict.UNMAPPED, reason, False)
    reason = GroupReason.NOT_MIRRORED_YET
    assert judge(seen, seen, None, carrying(unmapped=reason)) == (GroupVerdict.UNMAPPED, reason, True)


def test_a_group_that_only_the_target_has_is_no_fault_and_not_due() -> None:
    seen = OffsetsSeen(None, 5, None)
    verdict, reason, is_in_flight = judge(seen, seen, None, carrying())
    item = GroupOffset("g", "t", 0, "t", None, 5, None, verdict, reason, is_in_flight)
    assert (item.verdict, item.is_finding, item.is_due) == (GroupVerdict.MISSING_AT_SOURCE, False, False)


def test_behind_a_promotion_groups_go_on_at_the_target() -> None:
    verdict, reason, is_in_flight = judge(STANDS, STANDS, Compared.AHEAD, carrying(promoted=True, left=False))
    item = GroupOffset("g", "t", 0, "t", 3, 5, 8, verdict, reason, is_in_flight)
    assert (item.reason, item.is_finding, item.is_compared) == (GroupReason.LINK_PROMOTED, False, False)


def test_of_a_group_that_the_link_could_not_carry_nothing_is_said_to_be_compared() -> None:
    """As while the broker that coordinates it is down: the next pass may come through."""
    verdict, reason, is_in_flight = judge(STANDS, STANDS, Compared.BEHIND, carrying(declined=GroupReason.PASS_FAILED))
    item = GroupOffset("g", "t", 0, "t", 3, 5, 8, verdict, reason, is_in_flight)
    assert (item.verdict, item.is_finding, item.is_compared) == (GroupVerdict.BEHIND, False, False)
    assert not groups(item).is_full_but_in_flight


def groups(*items: GroupOffset, not_listed: str = "") -> FrozenGroups:
    return FrozenGroups(1_000, 900, True, 0, not_listed, items)


def test_the_coverage_of_groups_counts_what_was_compared_of_what_is_due() -> None:
    same = GroupOffset("g", "t", 0, "t", 3, 8, 8, GroupVerdict.SAME)
    behind = GroupOffset("g", "t", 1, "t", 3, 5, 8, GroupVerdict.BEHIND, GroupReason.NOT_CARRIED)
    flying = GroupOffset("h", "t", 0, "t", 3, 5, 8, GroupVerdict.BEHIND, GroupReason.MOVING, is_in_flight=True)
    theirs = GroupOffset("w", "t", 0, "t", None, 5, None, GroupVerdict.MISSING_AT_SOURCE)
    unknown = GroupOffset("u", "t", 0, "t", None, None, None, GroupVerdict.UNKNOWN, GroupReason.NOT_READABLE)
    assert groups(same, theirs).is_full
    found = groups(same, behind, flying, theirs)
    assert (found.due, found.compared, found.findings, found.in_flight, found.groups) == (3, 2, 1, 1, 3)
    assert (found.is_full, found.is_full_but_in_flight) == (False, True)
    assert [item.group for item in found.told()] == ["g", "h", "w"]
    assert not groups(same, unknown).is_full_but_in_flight
    assert not groups(same, not_listed="node 2 does not answer").is_full_but_in_flight


@pytest.mark.parametrize("seed", range(300))
def test_a_link_that_does_what_it_should_is_never_blamed(seed: int) -> None:
    """A group that commits and is set back at random moments, a link that carries it over in passes, and two looks with
    a whole pass between them: whatever comes between what, nothing counts as a difference, but where a group is moved
    to and fro so that both looks are alike. A link that skips the group is found out where the group stood still.
    """
    rng = random.Random(seed)
    source, target = 0, 0
    looks: list[tuple[int, int]] = []
    began = 0
    is_skipping = seed % 3 == 0
    went = [0]

    def moves() -> None:
        nonlocal source
        for _ in range(rng.randrange(4)):
            source = max(0, source + rng.choice([0, 0, 1, 2, 5, -3]))
            went.append(source)

    def commits(read: int) -> None:
        nonlocal target
        if not is_skipping:
            target = read

    for _ in range(rng.randrange(3)):
        moves()
        commits(source)
    for _ in range(2):  # a pass is under way at the first look; the next one lies between both
        read = source
        moves()
        if not looks:
            read_source, began = source, len(went)
            moves()
            looks.append((read_source, target))
        commits(read)
        moves()
    read_source = source
    moves()
    looks.append((read_source, target))
    before, now = (OffsetsSeen(here, there, here) for here, there in looks)
    assert now.source is not None
    assert now.target is not None
    if now.source == now.target:
        return
    found = Compared.AHEAD if now.target > now.source else Compared.BEHIND
    _, _, is_in_flight = judge(before, now, found, carrying())
    between = went[began - 1 :]
    is_to_and_fro = between != sorted(between) and before.target == now.target
    if is_skipping and between == [now.source] * len(between) and before == now:
        assert not is_in_flight
    elif not is_skipping and not is_to_and_fro:
        assert is_in_flight
