"""What an operator accepts while a link runs: one gap, as it stood, and no other that comes in its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from mirror.link import Link
from mirror.offsets.acceptance import GapKey, accepted, decisions, gap_key, with_accepted
from mirror.offsets.acceptance_entries import Acceptance
from mirror.offsets.entries import Gap, GapKind, GapStatus, VoidEntry
from mirror.offsets.state_entries import StateEntries
from tests.mirror.harness import link_between

GAP = Gap("flights", 2, GapKind.REFUSED_BATCH, 5, 9, 4, GapStatus.STOPPED, 1_800, "too large")
ASKED = Acceptance("flights", 2, 5, GapKind.REFUSED_BATCH, 1_800, 9, "resume-1")
LINK: Link = link_between("e:1", "w:1", [".*"])


def test_what_was_asked_for_is_the_gap_with_where_it_goes_on() -> None:
    assert accepted(GAP, replace(ASKED, source_to=7)) == replace(GAP, status=GapStatus.ACCEPTED, source_to=7)


OTHERS: Mapping[str, Gap | None] = {
    "none": None,
    "stopped later": replace(GAP, at_ms=1_801),
    "of another kind": replace(GAP, kind=GapKind.RECREATED),
    "elsewhere": replace(GAP, source_from=6),
    **{status.value: replace(GAP, status=status) for status in GapStatus if status is not GapStatus.STOPPED},
}


@pytest.mark.parametrize("name", OTHERS)
def test_no_other_gap_is_accepted(name: str) -> None:
    gap = OTHERS[name]
    assert accepted(gap, ASKED) is None
    ledger = {gap_key(gap): gap} if gap is not None else {}
    assert with_accepted(ledger, [ASKED]) == ledger


def entries_of(gap: Gap) -> StateEntries:
    asked: dict[GapKey, Acceptance] = {gap_key(ASKED): ASKED}
    return StateEntries(LINK, gaps=with_accepted({gap_key(gap): gap}, asked.values()), acceptances=asked)


def decided(gap: Gap, partition: int = 2) -> list[Gap | VoidEntry]:
    entries = entries_of(gap)
    return decisions(entries.gaps, entries.acceptances, ("flights", partition))


def test_the_owner_writes_the_gap_and_takes_the_entry_back() -> None:
    now_accepted = replace(GAP, status=GapStatus.ACCEPTED)
    assert decided(GAP) == [now_accepted, VoidEntry(ASKED)]
    assert not entries_of(GAP).open_gaps()
    assert not decided(GAP, 1)


def test_what_does_not_count_any_more_is_taken_back_alone() -> None:
    assert decided(replace(GAP, at_ms=1_801)) == [VoidEntry(ASKED)]


def test_of_repairs_that_are_heard_twice_or_asked_for_at_once_one_counts() -> None:
    repair = Acceptance("flights", 2, 5, GapKind.MIRRORED_ANEW, 1_900, 0, "repair-1")
    at_once = replace(repair, source_from=9, stopped_at_ms=1_901, operation_id="repair-2")
    ledger = with_accepted({}, [repair, repair, at_once])
    (gap,) = ledger.values()
    assert (gap.status, gap.detail) == (GapStatus.ACCEPTED, "repair-1")
    done = {gap_key(gap): replace(gap, status=GapStatus.PASSED)}
    assert with_accepted(done, [repair, at_once]) == done
    entries = StateEntries(LINK, gaps=done, acceptances={gap_key(at_once): at_once})
    assert decisions(entries.gaps, entries.acceptances, ("flights", 2)) == [VoidEntry(at_once)]
    behind = replace(at_once, after_ms=1_900)
    assert with_accepted(done, [behind])[gap_key(behind)].status is GapStatus.ACCEPTED
