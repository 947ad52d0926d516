"""What can be repaired, how far it is, and what stands in the way: a function of what was seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from monitoring.audit.model import Kind, Span
from monitoring.audit.repair import (
    PASSING,
    Consents,
    Found,
    GroupPlace,
    GroupStays,
    LinkSeen,
    PartitionRepair,
    PartitionSeen,
    RepairBlocker,
    RepairStage,
    found_of,
    frozen_at_ms,
    plan_repair,
)
from monitoring.errors import AuditResultDamaged

PLACE = ("flights", 3)
FOUND = Found(PLACE, {Kind.CHANGED: 2}, Span(40, 42), Span(41, 43), is_whole=True)
SEEN = PartitionSeen("flights", Span(10, 100), Span(0, 95), 100, needed_to=100)
LINK = LinkSeen("east-west", may_run=True, is_running=True, shared_targets=False)
ASKED = replace(SEEN, is_asked=True)
COPYING = replace(ASKED, restarted_at=95, position=50, target=Span(0, 135))
COPIED = replace(COPYING, position=100, target=Span(0, 185))
DELETED = replace(COPIED, target=Span(95, 185))


def planned(
    seen: PartitionSeen = SEEN, found: Found = FOUND, link: LinkSeen = LINK, consents: Consents | None = None
) -> PartitionRepair:
    linked = replace(link, partitions={PLACE: seen})
    (one,) = plan_repair("run-1", [found], linked, consents or Consents()).partitions
    return one


def test_all_that_the_source_has_comes_again_and_what_is_there_goes() -> None:
    one = planned()
    assert (one.blockers, one.in_the_way) == ((), None)
    assert (one.records_again, one.target_moves_by, one.deleted_to) == (90, 95, 95)
    assert (one.source_start, one.mirrored_to) == (10, 100)
    assert (one.found, one.source_offsets, one.target_offsets) == ({"changed": 2}, Span(40, 42), Span(41, 43))


@pytest.mark.parametrize(
    ("seen", "stage", "again"),
    [
        (SEEN, RepairStage.NOT_ASKED, 90),
        (ASKED, RepairStage.ASKED, 90),
        (COPYING, RepairStage.COPYING, 50),
        (COPIED, RepairStage.COPIED, 0),
        (DELETED, RepairStage.OLD_COPY_DELETED, 0),
        (replace(COPYING, target=Span(95, 135)), RepairStage.COPYING, 50),  # a target that had lost all
        (replace(COPIED, needed_to=None, source=None), RepairStage.COPYING, 0),  # the source does not answer now
    ],
)
def test_how_far_it_is_follows_from_what_is_seen(seen: PartitionSeen, stage: RepairStage, again: int) -> None:
    one = planned(seen)
    assert (one.stage, one.records_again, one.deleted_to) == (stage, again, 95)


STOPS: dict[RepairBlocker, PartitionSeen | LinkSeen] = {
    RepairBlocker.LINK_STOPPED: replace(LINK, may_run=False),
    RepairBlocker.LINK_NOT_RUNNING: replace(LINK, is_running=False),
    RepairBlocker.SHARED_TARGET: replace(LINK, shared_targets=True),
    RepairBlocker.SITE_DID_NOT_SAY: replace(SEEN, target=None, only_at_target=None),
    RepairBlocker.NOT_AT_BOTH_SITES: replace(SEEN, source=None, is_at_both=False),
    RepairBlocker.NEVER_MIRRORED: replace(SEEN, position=None),
    RepairBlocker.STANDS_STILL: replace(SEEN, stands_still=True),
    RepairBlocker.HELD: replace(SEEN, is_held=True),
    RepairBlocker.MIRRORED_ON: replace(SEEN, links_on=("west-north",)),
    RepairBlocker.CONFIGS_NOT_KNOWN: replace(SEEN, is_compacted=None),
    RepairBlocker.COMPACTED: replace(SEEN, is_compacted=True),
    RepairBlocker.ONLY_AT_TARGET: replace(SEEN, only_at_target=1),
    RepairBlocker.GROUPS_NOT_KNOWN: replace(SEEN, groups=(GroupPlace("away", None, None, GroupStays.NOT_KNOWN),)),
    RepairBlocker.GROUPS_STAY: replace(SEEN, groups=(GroupPlace("own", None, 5, GroupStays.NOT_CARRIED),)),
}


@pytest.mark.parametrize("blocker", RepairBlocker)
def test_each_reason_stops_it_and_says_what_to_do(blocker: RepairBlocker) -> None:
    world = STOPS[blocker]
    one = planned(link=world) if isinstance(world, LinkSeen) else planned(world)
    assert one.blockers == (blocker,)
    assert one.in_the_way is blocker
    assert blocker.explanation
    assert one.is_retriable is (blocker in PASSING)


def test_once_asked_what_may_pass_is_waited_for() -> None:
    silent = replace(LINK, is_running=False)
    assert planned(COPYING, link=silent).in_the_way is None
    assert planned(COPYING, link=silent).blockers, "and nothing is deleted meanwhile"
    untold = replace(COPYING, source=None, only_at_target=None)
    assert planned(untold).blockers == (RepairBlocker.SITE_DID_NOT_SAY,), "for a moment no leader, say"
    assert planned(untold).in_the_way is None
    untold = replace(COPIED, is_compacted=None, groups=(GroupPlace("away", 5, 5, GroupStays.NOT_KNOWN),))
    assert planned(untold).in_the_way is None, "nor is what was not told for a moment a reason to end"
    assert planned(untold).is_retriable
    assert planned(COPYING, link=replace(LINK, may_run=False)).in_the_way is RepairBlocker.LINK_STOPPED
    assert planned(replace(COPYING, stands_still=True)).in_the_way is RepairBlocker.STANDS_STILL
    assert not planned(DELETED, link=silent).blockers, "done is done"


def test_what_only_the_target_has_goes_by_consent_alone() -> None:
    extra = replace(FOUND, kinds={Kind.EXTRA: 3, Kind.DUPLICATED: 1})
    assert planned(found=extra).only_at_target == 3, "a second copy is no loss"
    assert planned(replace(SEEN, only_at_target=10), extra).only_at_target == 13
    for unknown in (planned(found=replace(FOUND, is_whole=False)), planned(replace(SEEN, only_at_target=None))):
        assert unknown.only_at_target is None
        assert unknown.blockers == (RepairBlocker.ONLY_AT_TARGET,)
    assert not planned(found=extra, consents=Consents(loses_data=True)).blockers


def test_groups_follow_before_the_old_copy_goes_or_are_left_by_name() -> None:
    follows = GroupPlace("analysts", 50, 45, None)
    groups = (follows, replace(follows, group="there", is_placed=True), GroupPlace("own", None, 5, GroupStays.SET_BACK))
    one = planned(replace(COPIED, groups=groups))
    assert one.awaits_groups == ("analysts",)
    assert one.in_the_way is RepairBlocker.GROUPS_STAY
    assert not planned(replace(COPIED, groups=groups), consents=Consents(False, frozenset({"own"}))).blockers


def document(**changes: Any) -> dict[str, Any]:
    def difference(kind: str, source: int | None, target: int | None) -> dict[str, Any]:
        return {"topic": "flights", "partition": 3, "kind": kind, "source_offset": source, "target_offset": target}

    verdicts = {2: "equal", 3: "differs", 4: "moved"}
    return {
        "run_id": "run-1",
        "frozen_at": "2026-01-01T00:00:00.007Z",
        "partitions": [{"topic": "flights", "partition": n, "verdict": verdict} for n, verdict in verdicts.items()],
        "differences": [difference("lost", 7, None), difference("changed", 12, 11), difference("changed", 9, 8)],
        "differences_found": {"lost": 1, "changed": 2},
        **changes,
    }


def test_a_runs_document_says_what_differs_where() -> None:
    differs, moved = found_of(document())
    assert differs == Found(PLACE, {Kind.LOST: 1, Kind.CHANGED: 2}, Span(7, 13), Span(8, 12), is_whole=True)
    assert moved == Found(("flights", 4), {}, None, None, is_whole=True)
    assert frozen_at_ms(document()) == 1_767_225_600_007
    for cut in ({"differences_found": {"lost": 1, "changed": 2_000}}, {"sample": {"ranges": 5}}):
        assert not any(found.is_whole for found in found_of(document(**cut)))


@pytest.mark.parametrize("broken", [{"partitions": None}, {"differences": [{}]}])
def test_a_document_that_does_not_say_it_is_an_error(broken: dict[str, Any]) -> None:
    with pytest.raises(AuditResultDamaged, match="run-1"):
        found_of(document(**broken))
    with pytest.raises(AuditResultDamaged, match="run-1"):
        frozen_at_ms(document(frozen_at=None))
