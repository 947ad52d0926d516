"""What the ledger tells of a repair, and of what goes with the old copy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from broker.wire.vocabulary import TopicPartition
from mirror.offsets.entries import Gap, GapKind, GapStatus
from mirror.offsets.intervals import End, Interval
from mirror.offsets.offset_map import OffsetMap, PartitionMap
from mirror.offsets.state import LinkState
from mirror.offsets.state_entries import StateEntries
from monitoring.audit.model import Span
from monitoring.audit.repair_ledger import find_asked, of_state, only_at_target
from tests.mirror.harness import link_between

WHERE = TopicPartition("flights", 0)
SOURCE, TARGET = Span(10, 100), Span(0, 95)
ASKED_AT = 1_000
MIRRORED = PartitionMap([Interval(5, 0)], End(100, 95), 100)
ASKED = Gap(*WHERE, GapKind.MIRRORED_ANEW, 100, 10, -1, GapStatus.ACCEPTED, ASKED_AT, "repair")
BEGUN = replace(ASKED, status=GapStatus.PASSED, target_offset=95)
COPIED = PartitionMap([Interval(10, 95)], End(100, 185), 100)


def state_of(found: PartitionMap, gaps: Iterable[Gap] = ()) -> LinkState:
    ledger = {(gap.topic, gap.partition, gap.source_from, gap.kind.value): gap for gap in gaps}
    link = link_between("127.0.0.1:1", "127.0.0.1:2", ["flights"])
    return LinkState(StateEntries(link, gaps=ledger), OffsetMap({(WHERE.topic, WHERE.partition): found}))


def passed(kind: GapKind, source_from: int, source_to: int, target_offset: int, at_ms: int = ASKED_AT - 1) -> Gap:
    return Gap(*WHERE, kind, source_from, source_to, target_offset, GapStatus.PASSED, at_ms, "")


def only_there(
    found: PartitionMap, *gaps: Gap, source: Span | None = SOURCE, target: Span | None = TARGET
) -> int | None:
    state = state_of(found, gaps)
    return only_at_target(state, WHERE, find_asked(state, WHERE, 0), source, target)


def test_before_the_new_copy_begins_all_counts_that_the_source_has_no_more() -> None:
    assert only_there(MIRRORED) == 5
    assert only_there(MIRRORED, ASKED) == 5
    assert only_there(MIRRORED, ASKED, source=Span(20, 100)) == 15
    assert only_there(MIRRORED, target=Span(5, 95)) == 0
    assert only_there(PartitionMap()) == 0
    assert only_there(MIRRORED, source=None) is None
    assert only_there(MIRRORED, target=None) is None


def test_what_the_source_loses_of_what_came_again_is_in_the_new_copy() -> None:
    assert only_there(COPIED, BEGUN, source=Span(60, 100)) == 0


def test_what_the_source_lost_before_it_came_again_is_in_the_old_copy_alone() -> None:
    begun_late = PartitionMap([Interval(30, 95)], End(100, 165), 100)
    for start in (30, 60):
        assert only_there(begun_late, BEGUN, source=Span(start, 100)) == 20
    passed_by = passed(GapKind.TRUNCATED_START, 40, 60, 105, ASKED_AT + 1)
    assert only_there(COPIED, BEGUN, passed_by, source=Span(60, 100)) == 20
    of_before = passed(GapKind.TRUNCATED_START, 1, 5, 0)
    assert only_there(COPIED, of_before, BEGUN, source=Span(60, 100)) == 0


@pytest.mark.parametrize(
    "gap",
    [
        passed(GapKind.RECREATED, 500, 5, 40),
        passed(GapKind.MIRRORED_ANEW, 90, 5, 40),
        passed(GapKind.TRUNCATED_END, 50, 30, 40),
        passed(GapKind.TARGET_NOT_EMPTY, 5, 5, 40),
        passed(GapKind.FOREIGN_WRITER, 50, 50, 40),
    ],
)
def test_what_stands_at_such_a_gap_the_source_may_never_have_had(gap: Gap) -> None:
    found = PartitionMap([Interval(5, 40)], End(60, 95), 60)
    since = ASKED_AT - 1  # a repair of an earlier run is none of this one

    def told(target: Span, *gaps: Gap) -> int | None:
        state = state_of(found, gaps)
        return only_at_target(state, WHERE, find_asked(state, WHERE, since), SOURCE, target)

    assert told(TARGET, gap) is None
    assert told(Span(41, 95), gap) == 4, "the target has them no more"
    assert told(TARGET, replace(gap, status=GapStatus.GONE)) == 5
    later = replace(gap, at_ms=ASKED_AT + 1, source_from=gap.source_from + 1)
    if gap.kind is not GapKind.MIRRORED_ANEW:
        assert told(TARGET, replace(BEGUN, target_offset=20), later) is None, "so it is where it comes amid the copying"
        assert told(TARGET, replace(BEGUN, target_offset=40), gap) == 0, "it was consented to when it was asked for"


def test_a_map_that_reaches_before_the_gap_is_of_another_topic() -> None:
    assert only_there(MIRRORED, passed(GapKind.RECREATED, 500, 5, 40)) == 5
    state = state_of(MIRRORED, [BEGUN])
    assert find_asked(state, WHERE, 0) is None


def test_how_far_a_repair_is() -> None:
    state = state_of(COPIED, [BEGUN])
    assert find_asked(state, WHERE, ASKED_AT) is None, "the run is newer"
    assert of_state(state, WHERE, ASKED) == {
        "position": None,
        "stands_still": False,
        "is_held": False,
        "is_asked": True,
        "restarted_at": None,
        "asked_at_ms": ASKED_AT,
    }
    assert of_state(state, WHERE, find_asked(state, WHERE, 0))["restarted_at"] == 95
