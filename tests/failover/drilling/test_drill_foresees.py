"""Each refusal of a switchover, a failover and a failback is foreseen by a drill, or there is a reason why not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker.client.site import Site
from broker.wire.site_role import SiteRole, SiteStanding
from failover.drilling.drill import AuditNote, TargetGates, judge_drill
from failover.drilling.findings import DrillFinding
from failover.drilling.foreseen import of_other_types, of_seen_by_worker, of_switchover, of_way_back
from failover.errors import FailoverError
from failover.failback.plan import FailbackRefusal
from failover.freezing.choice import UNFROZEN, Freezing
from failover.observing.contact import SiteFinding
from failover.observing.open_transactions import PendingOffsets
from failover.observing.snapshot import Snapshot
from failover.planning.gates import RefusalReason
from failover.planning.plan import Elsewhere
from mirror.api import CarriedBack, DeclaredOtherwise, DeclaredPart, LinkStatus, SourceParting
from mirror.heartbeat import judge_heartbeat
from mirror.lag import LagReport
from mirror.link import Link
from mirror.looking import LinkLook
from mirror.offsets.entries import LinkRun, Owner, RunState, Writer
from mirror.offsets.state_entries import StateEntries
from mirror.offsets.topic_entries import TopicPause
from mirror.status import summarise
from mirror.worker.parted import PartingKind
from tests.failover.drilling.test_drill import BLIND, GROUP, LINK, LIVE, NOW_MS, SYNCED, VIEW, status

BACK, OTHER = (Link(name, Site("west", "w:1"), Site("east", "e:1"), ("flights",)) for name in ("back", "other"))
AWAY = Elsewhere("east-north", "north", is_active=None)


def kinds(
    blind: Snapshot = BLIND,
    live: Snapshot | None = LIVE,
    gates: TargetGates = TargetGates(UNFROZEN),  # noqa: B008 it is a value that never changes
    freezing: Freezing = UNFROZEN,
    back: CarriedBack = CarriedBack(),  # noqa: B008 as above
    held: frozenset[str] = frozenset(),
    seen: LinkStatus | None = None,
) -> set[str]:
    pending = PendingOffsets(held, held)
    found = judge_drill(seen or status(), blind, live, SYNCED, AuditNote(), NOW_MS, gates=gates, pending=pending)
    more: list[DrillFinding] = [*of_other_types(live), *of_way_back("east-west", "east", back)]
    more += of_switchover(live, freezing, gates.elsewhere)
    return {one.kind for one in (*found.findings, *more)}


def elsewhere(*found: Elsewhere) -> TargetGates:
    return TargetGates(UNFROZEN, elsewhere=found)


def group(**changes: Any) -> Snapshot:
    return replace(BLIND, groups=(replace(GROUP, **changes),))


def paused(**changes: Any) -> LinkStatus:
    entries = replace(StateEntries(LINK, exists=True, owner=Owner(Writer(7, 3), "mirror-0", NOW_MS)), **changes)
    look = LinkLook(LagReport((), {}), ())
    return summarise(LINK, (True, True), entries, look, judge_heartbeat(entries.owner, NOW_MS), "")


CLOSED = TargetGates(Freezing(target=SiteStanding(SiteRole.STANDBY, 3, "", ("other", "flights")), target_topics=("x",)))
PROMOTED = replace(BLIND, link_state="promoted", operation_id="failover-1")
PARTING = SourceParting("flights", 0, PartingKind.CUT, 5, 9, "it ends there")
DECLARED = (DeclaredOtherwise(DeclaredPart.TOPICS, "flights", "gates"),)
RUN = LinkRun(RunState.PAUSED, "pause-1", NOW_MS)
TO_BE_SET = replace(GROUP.partitions[0], target_offset=None, brought_offset=43)
"""The target lost the offset, and the link's state says where the mirror had brought the group."""

FORESEEN: dict[RefusalReason, tuple[dict[str, Any], str]] = {
    RefusalReason.SOURCE_UNREACHABLE: ({"live": None, "seen": status(answers=(False, True))}, "site_lost"),
    RefusalReason.LINK_NOT_RUNNING: ({"blind": PROMOTED}, "link_not_running"),
    RefusalReason.MOVE_UNTOLD: ({"blind": replace(PROMOTED, is_untold=True)}, "move_untold"),
    RefusalReason.TARGET_WAS_LEFT: ({"blind": PROMOTED, "gates": CLOSED}, "target_was_left"),
    RefusalReason.MOVED_BACK: ({"blind": replace(PROMOTED, moved_back_by=("back",))}, "moved_back"),
    RefusalReason.LINK_PAUSED: ({"seen": paused(run=RUN)}, "paused"),
    RefusalReason.TOPIC_PAUSED: (
        {"seen": paused(paused={"flights": TopicPause("flights", "pause-1", NOW_MS)})},
        "topic_paused",
    ),
    RefusalReason.NOTHING_MIRRORED: (
        {"blind": replace(BLIND, partitions=(replace(VIEW, mirrored_source_next=None),))},
        "nothing_mirrored",
    ),
    RefusalReason.MAP_LOST: ({"blind": replace(BLIND, is_map_lost=True)}, "map_lost"),
    RefusalReason.GROUP_ACTIVE_AT_TARGET: (
        {"blind": group(target_members=1, partitions=(TO_BE_SET,))},
        "group_active_at_target",
    ),
    RefusalReason.MEMBERS_UNKNOWN_AT_TARGET: (
        {"blind": group(target_members=None, partitions=(TO_BE_SET,))},
        "members_unknown_at_target",
    ),
    RefusalReason.OFFSETS_IN_DOUBT: (
        {"blind": replace(BLIND, partitions=(replace(VIEW, trusted=False),))},
        "offsets_in_doubt",
    ),
    RefusalReason.MEMBERS_UNKNOWN_AT_SOURCE: (
        {"live": replace(LIVE, groups=(replace(GROUP, source_members=None),))},
        "members_unknown_at_source",
    ),
    RefusalReason.GROUP_OF_OTHER_TYPE: (
        {"live": replace(LIVE, groups=(replace(GROUP, other_type="share"),))},
        "group_of_other_type",
    ),
    RefusalReason.OFFSETS_PENDING: ({"held": frozenset({"analysts"})}, "offsets_pending"),
    RefusalReason.GROUP_NOT_MOVABLE: (
        {"blind": group(partitions=(replace(GROUP.partitions[0], target_offset=None),))},
        "group_unknown",
    ),
    RefusalReason.FROZEN_FOR_OTHERS: (
        {"freezing": Freezing(SiteStanding(SiteRole.FROZEN, 3, "", ("gates",)), topics=("flights",))},
        "frozen_for_others",
    ),
    RefusalReason.CLOSED_AT_TARGET: ({"gates": CLOSED}, "closed_at_target"),
    RefusalReason.ACTIVE_ELSEWHERE: ({"gates": elsewhere(replace(AWAY, is_active=True))}, "active_elsewhere"),
    RefusalReason.MAYBE_ELSEWHERE: (
        {"gates": elsewhere(AWAY), "freezing": Freezing(SiteStanding(SiteRole.STANDBY, 3))},
        "maybe_elsewhere",
    ),
    RefusalReason.MOVING_ELSEWHERE: ({"gates": elsewhere(replace(AWAY, operation_id="s-1"))}, "moving_elsewhere"),
    RefusalReason.PARTITION_UNANSWERED: (
        {"blind": replace(BLIND, partitions=(replace(VIEW, unanswered="no leader"),))},
        "partition_unanswered",
    ),
    RefusalReason.GROUP_UNANSWERED: ({"blind": group(unanswered="no coordinator")}, "group_unanswered"),
    RefusalReason.TARGET_LACKS: ({"gates": TargetGates(UNFROZEN, lacks=(PARTING,))}, "target_lacks"),
    RefusalReason.TARGET_NOT_COMPARED: (
        {"gates": TargetGates(UNFROZEN, lacks=(replace(PARTING, kind=PartingKind.NOT_COMPARED),))},
        "target_not_compared",
    ),
    RefusalReason.SOURCE_REPLACED: ({"live": replace(LIVE, source_finding=SiteFinding.REPLACED)}, "source_replaced"),
    RefusalReason.DECLARED_OTHERWISE: ({"blind": replace(BLIND, declared_otherwise=DECLARED)}, "declared_otherwise"),
    RefusalReason.OPERATION_UNDER_WAY: (
        {"gates": TargetGates(UNFROZEN, under_way=FailoverError("failover-1 has not ended"))},
        "operation_under_way",
    ),
}
FORESEEN_BACK: dict[FailbackRefusal, tuple[dict[str, Any], str]] = {
    FailbackRefusal.SEVERAL_LINKS_BACK: ({"back": CarriedBack((BACK, OTHER))}, "several_links_back"),
    FailbackRefusal.BACK_IN_PART: ({"back": CarriedBack((BACK,), ("gates",))}, "back_in_part"),
}
LATER = "of the way back: it stands or falls with what happens behind a failover, and its dry run tells it then"
AT_ONCE = "of one command's run: what changes while it runs, or what was typed"
NOT_FORESEEN: dict[RefusalReason, str] = {
    RefusalReason.SOURCE_ANSWERS: "a drill is made while it answers, and takes it for dead",
    RefusalReason.SOURCE_PARTLY_THERE: "a drill takes it for dead; what could not be looked at of it is a finding",
    RefusalReason.SOURCE_SEEN_BY_WORKER: "foreseen, by a look at a dead source: the test below",
    RefusalReason.GROUP_ACTIVE_AT_SOURCE: "applications read before the day; a switchover wants them stopped",
    RefusalReason.DATA_LOSS_NOT_ALLOWED: "a consent; the drill states the loss",
    RefusalReason.GROUP_NOT_FOUND: AT_ONCE,
    RefusalReason.PARTITION_NOT_FOUND: AT_ONCE,
    RefusalReason.NOT_DRAINED: AT_ONCE,
    RefusalReason.NO_CONSENT: AT_ONCE,
    RefusalReason.SITE_UNANSWERED: AT_ONCE,
    RefusalReason.GROUP_WENT_ON: AT_ONCE,
    RefusalReason.GROUP_OFFSET_LOST: AT_ONCE,
    RefusalReason.HOOK_FAILED: "a hook is not run but by a move",
    RefusalReason.TOPICS_CUT: "of a selection of topics that was typed",
    RefusalReason.WHOLE_SITE_CUT: "of an option that was typed",
    RefusalReason.NOTHING_SELECTED: "of a selection that was typed",
    RefusalReason.WORLD_CHANGED: AT_ONCE,
    RefusalReason.OPERATION_ENDED: "of an operation that is taken up",
    RefusalReason.PROMOTED_MEANWHILE: AT_ONCE,
    RefusalReason.OTHER_FILE: "of an operation that is taken up",
    RefusalReason.FREEZE_NOT_ALLOWED: "of a freeze by ACLs: whether they may be altered shows only the attempt",
    RefusalReason.STRANDED_UNKNOWN: "of `stranded`, behind a failover",
    RefusalReason.BACK_TAIL_UNDECIDED: LATER,
    RefusalReason.EXPORT_REFUSED: "of `stranded export`, behind a failover",
    RefusalReason.REPLAY_REFUSED: "of `stranded replay`, behind a failover",
}
NOT_FORESEEN_BACK: dict[FailbackRefusal, str] = {
    FailbackRefusal.NOT_PROMOTED: "there is no way back before there was a way there",
    FailbackRefusal.NAMES_DIFFER: "the file says so, and means it: prefixed names have no failback",
    FailbackRefusal.NO_LINK_BACK: "one may be declared behind a failover, whose answer has its lines",
} | dict.fromkeys(
    (
        FailbackRefusal.LINK_BACK_SILENT,
        FailbackRefusal.LINK_BACK_TOPIC_PAUSED,
        FailbackRefusal.LINK_BACK_STANDS_STILL,
        FailbackRefusal.TRANSACTION_OPEN,
        FailbackRefusal.TAIL_NOT_SHOWN,
        FailbackRefusal.TAIL_END_UNTOLD,
        FailbackRefusal.TAIL_UNKNOWN,
        FailbackRefusal.ORDER_UNKNOWN,
        FailbackRefusal.BACK_TAIL_UNDECIDED,
        FailbackRefusal.SOURCE_LACKS,
        FailbackRefusal.SOURCE_NOT_COMPARED,
        FailbackRefusal.ACTIVE_ELSEWHERE,
        FailbackRefusal.OPERATION_UNDER_WAY,
        FailbackRefusal.TOPICS_GONE,
        FailbackRefusal.NOTHING_TO_BRING,
        FailbackRefusal.OFFSETS_IN_DOUBT,
        FailbackRefusal.GROUP_NOT_MOVABLE,
        FailbackRefusal.GROUPS_IN_USE,
    ),
    LATER,
)


def test_each_refusal_is_foreseen_or_there_is_a_reason_why_not() -> None:
    assert sorted([*FORESEEN, *NOT_FORESEEN]) == sorted(RefusalReason)
    assert sorted([*FORESEEN_BACK, *NOT_FORESEEN_BACK]) == sorted(FailbackRefusal)


@pytest.mark.parametrize(("changes", "kind"), [*FORESEEN.values(), *FORESEEN_BACK.values()])
def test_what_is_foreseen_is_a_finding_of_a_drill(changes: dict[str, Any], kind: str) -> None:
    assert kind not in kinds()
    assert kind in kinds(**changes)


def test_the_step_about_a_group_is_a_line_for_a_shell_whatever_the_group_is_called() -> None:
    live = replace(LIVE, groups=(replace(GROUP, group="my readers; reboot", source_members=None),))
    [step] = [one.next_step for one in of_switchover(live, UNFROZEN, ()) if one.kind == "members_unknown_at_source"]
    assert step == "farshore group describe --site east --group 'my readers; reboot'"


def test_that_of_a_source_that_this_machine_alone_does_not_reach() -> None:
    assert [one.kind for one in of_seen_by_worker(LINK)] == ["source_seen_by_worker"]


@pytest.mark.parametrize("members", [1, None])
def test_who_reads_at_the_target_is_found_where_a_failover_has_an_offset_to_set_alone(members: int | None) -> None:
    """Links between sites that each have a group of one name were never ready, and no failover minded."""
    read = replace(GROUP, target_members=members)
    assert kinds(replace(BLIND, groups=(read,)), replace(LIVE, groups=(read,))) == set()
