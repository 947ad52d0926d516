"""What a drill finds, from what was seen: each thing that would be in the way, by its name, and nothing else. Pure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.client.site import Site
from failover.drilling.drill import AuditNote, LinkDrill, TargetGates, judge_drill
from failover.drilling.findings import DrillFinding, counts_by_kind
from failover.freezing.choice import UNFROZEN
from failover.limits import DRILL_ENDS_MAX_AGE_MS, DRILL_GROUP_SYNC_MAX_AGE_MS
from failover.observing.contact import SiteFinding
from failover.observing.snapshot import GroupPartitionView, GroupView, PartitionView, Snapshot
from failover.planning.plan import Elsewhere
from mirror.api import GroupSyncs, LastLook, LinkCondition, LinkStatus
from mirror.heartbeat import judge_heartbeat
from mirror.lag import LagReport
from mirror.link import Link
from mirror.looking import LinkLook
from mirror.offsets.entries import Owner, Writer
from mirror.offsets.group_entries import GroupAction, GroupSync, GroupSyncTimes
from mirror.offsets.source_ends import Growth
from mirror.offsets.state_entries import StateEntries
from mirror.status import summarise

NOW_MS = 1_700_000_000_000
LINK = Link("east-west", Site("east", "e:1"), Site("west", "w:1"), (".*",))
VIEW = PartitionView("flights", 0, "flights", None, 100, NOW_MS - 5, NOW_MS - 200, 90, 93)
AT = GroupPartitionView("flights", 0, "flights", None, None, 43, "")
GROUP = GroupView("analysts", None, "Empty", 0, 0, NOW_MS - 900, (AT,))
LAST = LastLook(NOW_MS - 200, None, (Growth(60_000, 500),), 50.0)
BLIND = Snapshot(
    "east-west", "east", "west", NOW_MS, SiteFinding.DEAD, "running", "", (VIEW,), (GROUP,), last_look=LAST
)
LIVE = replace(
    BLIND, source_finding=SiteFinding.ALIVE, partitions=(replace(VIEW, source_end=100, source_start=0),), last_look=None
)
SYNCED = GroupSyncs({"analysts": GroupSync("analysts", NOW_MS - 900)}, GroupSyncTimes(looked_at_ms=NOW_MS - 900))


def status(*, answers: tuple[bool, bool] = (True, True), age_ms: int = 0) -> LinkStatus:
    owner = Owner(Writer(7, 3), "mirror-0", NOW_MS - age_ms)
    entries = StateEntries(LINK, exists=True, owner=owner)
    look = LinkLook(LagReport((), {}), ()) if all(answers) else None
    return summarise(LINK, answers, entries, look, judge_heartbeat(owner, NOW_MS), "")


def drilled(
    blind: Snapshot | None = BLIND,
    live: Snapshot | None = LIVE,
    syncs: GroupSyncs = SYNCED,
    audit: AuditNote = AuditNote(),  # noqa: B008 it is a value that never changes
    seen: LinkStatus | None = None,
) -> LinkDrill:
    return judge_drill(seen or status(), blind, live, syncs, audit, NOW_MS)


def kinds(found: LinkDrill) -> list[tuple[str, str]]:
    return [(finding.kind, finding.subject) for finding in found.findings]


def test_a_link_that_is_ready_says_what_would_be_lost_and_has_no_finding() -> None:
    found = drilled()
    assert (found.findings, found.is_ready) == ((), True)
    assert (found.loss.offsets, found.loss.likely_offsets) == (10, 20) if found.loss else False
    assert (found.ends_age_ms, found.worker, found.heartbeat_age_ms) == (200, "mirror-0", 0)
    (group,) = found.groups
    assert (group.group, group.sync_age_ms, group.kept_partitions, group.unknown_partitions) == ("analysts", 900, 1, 0)


def test_an_operation_that_is_about_to_take_the_topics_elsewhere_would_refuse_a_failover() -> None:
    """The drill said that the link is ready."""
    moving = Elsewhere("east-north", "north", is_active=False, operation_id="switchover-7")
    found = judge_drill(
        status(), BLIND, LIVE, SYNCED, AuditNote(), NOW_MS, "", TargetGates(UNFROZEN, elsewhere=(moving,))
    )
    (finding,) = found.findings
    assert (finding.kind, finding.subject) == ("moving_elsewhere", "switchover-7")
    assert "to north" in finding.detail
    assert finding.next_step == "farshore operation show switchover-7"


@pytest.mark.parametrize(("age_ms", "found"), [(10_000, False), (10_001, True), (-5_000, False), (-3_600_000, True)])
def test_ends_that_were_seen_nobody_can_tell_when_are_found(age_ms: int, found: bool) -> None:
    """A worker whose clock is an hour ahead may have seen them an hour ago."""
    looked = drilled(replace(BLIND, last_look=replace(LAST, at_ms=NOW_MS - age_ms)))
    assert kinds(looked) == ([("ends_not_seen", "east")] if found else [])


def test_where_the_worker_is_silent_too_that_is_what_is_to_be_seen_to() -> None:
    """A worker that was stopped has no line in its output that would say so."""
    blind = replace(BLIND, last_look=replace(LAST, at_ms=NOW_MS - 12_000))
    (lively,) = drilled(blind).findings
    assert "event=ends_not_kept" in lively.next_step
    (found,) = drilled(blind, seen=status(age_ms=12_000)).findings
    assert found.kind == "ends_not_seen"
    assert found.next_step == "no heartbeat of mirror-0 for 12.0 s: restart it, `farshore mirror run --link east-west`"


def test_a_paused_links_worker_is_not_to_be_started_anew() -> None:
    """The command that paused it passed for a worker without a heartbeat, and a second mirror was to be run."""
    blind = replace(BLIND, last_look=replace(LAST, at_ms=NOW_MS - 12_000))
    paused = replace(status(age_ms=12_000), worker="operation pause-1", condition=LinkCondition.PAUSED)
    (found,) = drilled(blind, seen=paused).findings
    assert found.kind == "ends_not_seen"
    assert "farshore mirror run" not in found.next_step
    assert "a paused link's worker looks, too, where it is no older version: see that it runs" in found.next_step


def waiting(action: GroupAction, **more: object) -> GroupSyncs:
    entry = GroupSync("analysts", NOW_MS, waiting={("flights", 0): action}, **more)  # type: ignore[arg-type]  # its own
    return GroupSyncs({"analysts": entry}, GroupSyncTimes(looked_at_ms=NOW_MS))


@pytest.mark.parametrize(
    ("group", "syncs", "expected"),
    [
        (GROUP, SYNCED, ""),
        (GROUP, waiting(GroupAction.HOLD_NOT_MIRRORED), ""),  # it is on its way
        (GROUP, waiting(GroupAction.HOLD_BEFORE_MIRROR), "group_held"),
        (replace(GROUP, synced_at_ms=None), waiting(GroupAction.HOLD_NOT_MIRRORED), "group_held"),
        (replace(GROUP, synced_at_ms=NOW_MS - DRILL_GROUP_SYNC_MAX_AGE_MS), SYNCED, ""),
        (replace(GROUP, synced_at_ms=NOW_MS - DRILL_GROUP_SYNC_MAX_AGE_MS - 1), SYNCED, "group_sync_old"),
        (replace(GROUP, synced_at_ms=None), SYNCED, "group_sync_old"),
        (replace(GROUP, synced_at_ms=NOW_MS + 5_000), SYNCED, ""),
        (replace(GROUP, synced_at_ms=NOW_MS + 5_001), SYNCED, "group_sync_old"),
        (
            replace(GROUP, partitions=(AT, replace(AT, partition=1, target_offset=None))),
            waiting(GroupAction.HOLD_BEFORE_MIRROR),
            "group_unknown",
        ),
        (replace(GROUP, target_members=1), SYNCED, ""),  # nothing is to be committed for it
    ],
)
def test_each_group_is_told_once_by_what_matters_most(group: GroupView, syncs: GroupSyncs, expected: str) -> None:
    found = drilled(replace(BLIND, groups=(group,)), syncs=syncs)
    assert kinds(found) == ([(expected, "analysts")] if expected else [])


def test_what_would_be_nothing_to_fail_over_to_is_told_with_the_command_of_that_link() -> None:
    never = replace(BLIND, link_state="promoted", partitions=(replace(BLIND.partitions[0], mirrored_source_next=None),))
    steps = {finding.kind: finding.next_step for finding in drilled(never).findings}
    assert steps["link_not_running"] == "farshore link describe --link east-west"
    assert steps["nothing_mirrored"] == "farshore mirror run --link east-west"


def test_an_unknown_group_is_told_with_how_many_partitions_and_why() -> None:
    lost = replace(GROUP, partitions=(replace(AT, target_offset=None),))
    (finding,) = drilled(replace(BLIND, groups=(lost,)), syncs=waiting(GroupAction.HOLD_BEFORE_MIRROR)).findings
    assert finding == DrillFinding(
        "group_unknown",
        "analysts",
        "where it would go on is unknown in 1 partition (1 hold_before_mirror)",
        "farshore group describe --link east-west --group analysts",
    )


def test_a_group_that_only_the_source_knows_is_found_while_it_answers() -> None:
    late = replace(GROUP, group="late")
    assert kinds(drilled(live=replace(LIVE, groups=(GROUP, late)))) == [("group_not_carried", "late")]
    assert kinds(drilled(live=None, seen=status(answers=(False, True)))) == [("site_lost", "")]


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (VIEW, []),
        (replace(VIEW, mirrored_source_next=None), ["not_mirrored"]),
        (replace(VIEW, mirrored_source_next=None, seen_source_end=0), []),
        (replace(VIEW, mirrored_source_next=None, source_start=7, source_end=7), []),
        (replace(VIEW, mirrored_source_next=None, seen_source_end=None), ["not_mirrored"]),
        (replace(VIEW, trusted=False), ["offsets_in_doubt"]),
    ],
)
def test_partitions_that_have_records_and_are_not_mirrored_are_found(view: PartitionView, expected: list[str]) -> None:
    other = replace(VIEW, partition=1)
    found = drilled(replace(BLIND, groups=(), partitions=(view, other)), None, seen=status(answers=(False, True)))
    assert kinds(found) == [("site_lost", ""), *((kind, "flights-0") for kind in expected)]
    assert found.partitions_not_mirrored == (("flights-0",) if expected == ["not_mirrored"] else ())


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (LAST, []),
        (replace(LAST, at_ms=NOW_MS - DRILL_ENDS_MAX_AGE_MS), []),
        (replace(LAST, at_ms=NOW_MS - DRILL_ENDS_MAX_AGE_MS - 1), ["ends_not_seen"]),
        (None, ["ends_not_seen"]),
    ],
)
def test_a_source_whose_ends_are_not_seen_is_found_where_a_worker_should_see_them(
    last: LastLook | None, expected: list[str]
) -> None:
    blind = replace(BLIND, last_look=last)
    assert [kind for kind, _ in kinds(drilled(blind))] == expected
    assert [kind for kind, _ in kinds(drilled(blind, seen=status(age_ms=60_000)))] == ["silent"]
    assert [kind for kind, _ in kinds(drilled(blind, None, seen=status(answers=(False, True))))] == ["site_lost"]


def test_what_the_status_finds_is_found_and_no_target_is_no_plan() -> None:
    found = drilled(None, None, seen=status(answers=(True, False)))
    assert (kinds(found), found.loss, found.groups) == ([("site_lost", "")], None, ())
    assert not found.is_ready
    promoted = drilled(replace(BLIND, link_state="promoted", last_look=None))
    assert [kind for kind, _ in kinds(promoted)] == ["link_not_running"]


def test_what_could_not_be_looked_at_is_found_wherever_no_lost_site_says_it() -> None:
    assert kinds(drilled(None, None)) == [("not_looked_at", "east-west")]
    assert kinds(drilled(live=None)) == [("not_looked_at", "east-west")]
    assert kinds(drilled(None, None, seen=status(answers=(False, True)))) == [
        ("site_lost", ""),
        ("not_looked_at", "east-west"),
    ]
    told = judge_drill(status(), BLIND, None, SYNCED, AuditNote(), NOW_MS, "no rights to group analysts")
    assert [finding.detail for finding in told.findings] == [
        "east could not be looked at, so what only it knows is not told: no rights to group analysts"
    ]


def test_an_audit_that_differs_is_found_and_one_that_never_was_is_not() -> None:
    assert kinds(drilled(audit=AuditNote("differs", NOW_MS, is_equal=False))) == [("audit_differs", "east-west")]
    assert kinds(drilled(audit=AuditNote("equal", NOW_MS))) == []
    assert counts_by_kind([DrillFinding("a", "x", ""), DrillFinding("b", "x", ""), DrillFinding("a", "y", "")]) == {
        "a": 2,
        "b": 1,
    }
