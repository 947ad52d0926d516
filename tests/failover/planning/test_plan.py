"""Plans, gates and loss statements: what an operator is shown before saying yes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.wire.site_role import SiteRole, SiteStanding
from failover.freezing.choice import Freezing
from failover.losses.statements import Certainty, state_loss, total_loss
from failover.observing.contact import SiteFinding
from failover.observing.snapshot import GroupPartitionView, GroupView, PartitionView, Snapshot
from failover.planning.gates import GateRefusal, RefusalReason
from failover.planning.moves import MoveKind
from failover.planning.plan import plan_failover, plan_switchover
from failover.running.verification import DifferenceKind, verify_readers

NOW_MS = 1_700_000_000_000

MIRRORED = PartitionView("flights", 0, "flights", 100, 100, NOW_MS - 5, NOW_MS - 1, 100, 103)
BEHIND = replace(MIRRORED, partition=1, mirrored_source_next=90, target_end=93)

GROUP_AT = GroupPartitionView("flights", 0, "flights", 40, 43, None, "")
GROUP = GroupView("analysts", "Empty", "Dead", 0, 0, NOW_MS - 900, (GROUP_AT,))

SNAPSHOT = Snapshot("east-west", "east", "west", NOW_MS, SiteFinding.ALIVE, "running", "", (MIRRORED, BEHIND), (GROUP,))


def source_gone(snapshot: Snapshot) -> Snapshot:
    return replace(
        snapshot,
        source_finding=SiteFinding.DEAD,
        partitions=tuple(replace(view, source_end=None) for view in snapshot.partitions),
        groups=tuple(
            replace(
                group, source_state=None, partitions=tuple(replace(at, source_offset=None) for at in group.partitions)
            )
            for group in snapshot.groups
        ),
    )


def reasons(plan_refusals: tuple[GateRefusal, ...]) -> set[RefusalReason]:
    return {refusal.reason for refusal in plan_refusals}


def test_a_living_source_gives_an_exact_statement() -> None:
    loss = state_loss(BEHIND, NOW_MS)
    assert (loss.certainty, loss.offsets, loss.first_offset, loss.end_offset) == (Certainty.EXACT, 10, 90, 100)
    assert not loss.is_none
    assert state_loss(MIRRORED, NOW_MS).is_none


def test_a_lost_source_gives_a_lower_bound_and_never_says_none() -> None:
    loss = state_loss(replace(MIRRORED, source_end=None), NOW_MS)
    assert (loss.certainty, loss.offsets) == (Certainty.AT_LEAST, 0)
    assert not loss.is_none
    assert loss.seen_at_ms == NOW_MS - 1


def test_a_source_never_observed_is_unknown() -> None:
    view = replace(MIRRORED, source_end=None, seen_source_end=None, seen_timestamp_ms=None, seen_at_ms=None)
    loss = state_loss(view, NOW_MS)
    assert (loss.certainty, loss.offsets) == (Certainty.UNKNOWN, None)


def test_one_uncertain_partition_makes_the_total_a_lower_bound() -> None:
    total = total_loss([state_loss(BEHIND, NOW_MS), state_loss(replace(MIRRORED, source_end=None), NOW_MS)])
    assert (total.offsets, total.partitions_with_loss, total.certainty) == (10, 1, Certainty.AT_LEAST)


def test_switchover_moves_an_empty_group_to_its_translated_offset() -> None:
    plan = plan_switchover(SNAPSHOT)
    assert plan.refusals == ()
    (move,) = plan.moves
    assert (move.kind, move.target_offset) == (MoveKind.TRANSLATED, 43)


def test_a_group_that_read_further_at_both_sites_goes_on_and_is_told_what_only_the_target_saw_it_read() -> None:
    """It stood at 30 there, of which it had not read 12 and what follows at the source, where it read up to 40 (43)."""
    read_at_both = replace(GROUP_AT, target_offset=30, ahead_from=12)
    snapshot = replace(SNAPSHOT, groups=(replace(GROUP, partitions=(read_at_both,)),))
    (move,) = plan_switchover(snapshot).moves
    assert (move.kind, move.target_offset, move.skipped_records) == (MoveKind.TRANSLATED, 43, 18)
    (move,) = plan_switchover(snapshot, set_back_groups=["analysts"]).moves
    assert (move.kind, move.target_offset) == (MoveKind.TRANSLATED, 12)
    assert (move.read_again_records, move.skipped_records) == (31, 0)


def test_switchover_refuses_while_a_group_reads_at_the_source_or_the_source_is_gone() -> None:
    active = replace(SNAPSHOT, groups=(replace(GROUP, source_state="Stable", source_members=2),))
    assert reasons(plan_switchover(active).refusals) == {RefusalReason.GROUP_ACTIVE_AT_SOURCE}
    assert RefusalReason.SOURCE_UNREACHABLE in reasons(plan_switchover(source_gone(SNAPSHOT)).refusals)


def test_failover_refuses_a_source_that_answers_unless_told() -> None:
    plan = plan_failover(SNAPSHOT, allow_data_loss=True, even_if_source_answers=False)
    assert reasons(plan.refusals) == {RefusalReason.SOURCE_ANSWERS}
    told = plan_failover(SNAPSHOT, allow_data_loss=True, even_if_source_answers=True)
    assert told.refusals == ()


def test_failover_needs_consent_to_loss_by_name_wherever_loss_cannot_be_excluded() -> None:
    synced = replace(GROUP, partitions=(replace(GROUP_AT, target_offset=41),))
    gone = source_gone(replace(SNAPSHOT, partitions=(MIRRORED,), groups=(synced,)))
    plan = plan_failover(gone, allow_data_loss=False, even_if_source_answers=False)
    assert reasons(plan.refusals) == {RefusalReason.DATA_LOSS_NOT_ALLOWED}
    assert plan_failover(gone, allow_data_loss=True, even_if_source_answers=False).refusals == ()


def test_a_promoted_link_and_an_unmirrored_one_are_refused() -> None:
    promoted = replace(SNAPSHOT, link_state="promoted")
    assert RefusalReason.LINK_NOT_RUNNING in reasons(plan_switchover(promoted).refusals)
    paused = replace(SNAPSHOT, link_state="paused")
    assert RefusalReason.LINK_PAUSED in reasons(plan_switchover(paused).refusals)
    lost = plan_failover(source_gone(paused), allow_data_loss=True, even_if_source_answers=False)
    assert RefusalReason.LINK_PAUSED not in reasons(lost.refusals)
    never = replace(SNAPSHOT, partitions=(replace(MIRRORED, mirrored_source_next=None),))
    assert RefusalReason.NOTHING_MIRRORED in reasons(plan_switchover(never).refusals)


@pytest.mark.parametrize(
    ("moved_back_by", "target", "reason"),
    [
        ((), SiteRole.ACTIVE, GateRefusal(RefusalReason.LINK_NOT_RUNNING, "east-west", "op")),
        (("back",), SiteRole.ACTIVE, GateRefusal(RefusalReason.MOVED_BACK, "east-west", "back")),
        ((), SiteRole.STANDBY, GateRefusal(RefusalReason.TARGET_WAS_LEFT, "east-west", "flights, fl.*")),
        (("back",), SiteRole.STANDBY, GateRefusal(RefusalReason.TARGET_WAS_LEFT, "east-west", "flights, fl.*")),
    ],
)
def test_what_became_of_a_link_that_was_moved_is_told_once(
    moved_back_by: tuple[str, ...], target: SiteRole, reason: GateRefusal
) -> None:
    """A source that is lost anew has another way on where the target was left: it takes writes again then."""
    moved = replace(SNAPSHOT, link_state="promoted", operation_id="op", moved_back_by=moved_back_by)
    freezing = Freezing(target=SiteStanding(target, 3, "", ("hotels", "flights", "fl.*")))
    told = {reason.reason, RefusalReason.LINK_NOT_RUNNING, RefusalReason.MOVED_BACK, RefusalReason.TARGET_WAS_LEFT}
    plan = plan_failover(source_gone(moved), allow_data_loss=True, even_if_source_answers=False, freezing=freezing)
    assert [one for one in plan.refusals if one.reason in told] == [reason]
    planned = plan_switchover(moved, freezing=freezing)
    of_planned = RefusalReason.MOVED_BACK if moved_back_by else RefusalReason.LINK_NOT_RUNNING
    assert [one.reason for one in planned.refusals if one.reason in told] == [of_planned]
    named = replace(source_gone(moved), asked_groups=(GROUP.group,))
    plan = plan_failover(named, allow_data_loss=True, even_if_source_answers=False, freezing=freezing)
    assert [one for one in plan.refusals if one.reason in told] == []


def test_a_switchover_is_refused_while_a_topic_is_paused_and_a_failover_is_not() -> None:
    paused = replace(SNAPSHOT, paused_topics=("flights", "gates"))
    refused = [one.subject for one in plan_switchover(paused).refusals if one.reason is RefusalReason.TOPIC_PAUSED]
    assert refused == ["flights", "gates"]
    lost = plan_failover(source_gone(paused), allow_data_loss=True, even_if_source_answers=False)
    assert RefusalReason.TOPIC_PAUSED not in reasons(lost.refusals)
    moved = replace(paused, link_state="promoted", interrupted=True)
    assert RefusalReason.TOPIC_PAUSED not in reasons(plan_switchover(moved).refusals), "the drain was before the fence"


def test_a_group_with_members_at_the_target_is_refused() -> None:
    active = replace(SNAPSHOT, groups=(replace(GROUP, target_state="Stable", target_members=1),))
    assert RefusalReason.GROUP_ACTIVE_AT_TARGET in reasons(plan_switchover(active).refusals)


def test_a_reader_at_the_target_is_in_nobodys_way_where_the_source_is_dead_and_nothing_is_committed() -> None:
    reading = replace(GROUP, target_members=1, partitions=(replace(GROUP_AT, target_offset=41),))
    gone = source_gone(replace(SNAPSHOT, groups=(reading,)))
    assert plan_failover(gone, allow_data_loss=True, even_if_source_answers=False).refusals == ()
    (kept,) = plan_failover(gone, allow_data_loss=True, even_if_source_answers=False).moves
    by_time = replace(kept, kind=MoveKind.BY_TIMESTAMP)
    plan = plan_failover(gone, allow_data_loss=True, even_if_source_answers=False, moves=[by_time])
    assert reasons(plan.refusals) == {RefusalReason.GROUP_ACTIVE_AT_TARGET}


def test_members_that_cannot_be_told_are_not_taken_for_none() -> None:
    unknown = replace(SNAPSHOT, groups=(replace(GROUP, source_members=None, target_members=None),))
    assert reasons(plan_switchover(unknown).refusals) == {
        RefusalReason.MEMBERS_UNKNOWN_AT_SOURCE,
        RefusalReason.MEMBERS_UNKNOWN_AT_TARGET,
    }
    failover = plan_failover(unknown, allow_data_loss=True, even_if_source_answers=True)
    assert reasons(failover.refusals) == {RefusalReason.MEMBERS_UNKNOWN_AT_TARGET}
    assert [found.kind for found in verify_readers(unknown)] == [DifferenceKind.READS_AT_SOURCE]
    assert verify_readers(SNAPSHOT) == []


def test_a_group_of_another_type_is_named_with_it_and_let_be_by_name_where_nothing_of_it_is_to_be_moved() -> None:
    """The hint led to an error, and no option did."""
    streams = replace(GROUP, group="s", source_members=None, target_members=None, partitions=(), other_type="streams")
    seen = replace(SNAPSHOT, groups=(GROUP, streams))
    assert plan_switchover(seen).refusals == (GateRefusal(RefusalReason.GROUP_OF_OTHER_TYPE, "s", "streams"),)
    assert plan_switchover(seen, left_groups=("s",)).refusals == ()
    assert [found.subject for found in verify_readers(seen)] == ["s"]
    assert verify_readers(seen, ("s",)) == []
    with_offsets = replace(SNAPSHOT, groups=(GROUP, replace(streams, partitions=GROUP.partitions, target_members=0)))
    assert RefusalReason.GROUP_OF_OTHER_TYPE in reasons(plan_switchover(with_offsets, left_groups=("s",)).refusals)


def test_a_share_group_at_the_target_is_in_nobodys_way_since_nothing_is_committed_for_it() -> None:
    share = replace(GROUP, group="s", source_members=0, target_members=2, partitions=(), has_offsets=False)
    seen = replace(SNAPSHOT, groups=(GROUP, share))
    assert plan_switchover(seen).refusals == ()
    assert reasons(plan_switchover(replace(seen, groups=(replace(share, source_members=2),))).refusals) == {
        RefusalReason.GROUP_ACTIVE_AT_SOURCE
    }


def test_a_group_ahead_of_the_mirror_goes_on_at_the_end_of_what_is_there() -> None:
    ahead = replace(GROUP_AT, partition=1, source_offset=95, translated_offset=None)
    (move,) = plan_switchover(replace(SNAPSHOT, groups=(replace(GROUP, partitions=(ahead,)),))).moves
    assert (move.kind, move.target_offset) == (MoveKind.AT_END, 93)


def test_with_the_source_gone_the_synced_offset_stays_and_an_absent_one_is_unknown() -> None:
    kept = replace(GROUP_AT, target_offset=41)
    plan = plan_failover(
        source_gone(replace(SNAPSHOT, groups=(replace(GROUP, partitions=(kept, GROUP_AT)),))),
        allow_data_loss=True,
        even_if_source_answers=False,
    )
    assert [move.kind for move in plan.moves] == [MoveKind.KEPT, MoveKind.UNKNOWN]
    assert not any(move.commits for move in plan.moves)


def test_offsets_in_doubt_are_never_told_as_no_loss_and_refuse_a_switchover() -> None:
    doubted = replace(MIRRORED, trusted=False)
    loss = state_loss(doubted, NOW_MS)
    assert (loss.certainty, loss.offsets, loss.is_none) == (Certainty.UNKNOWN, None, False)
    snapshot = replace(SNAPSHOT, partitions=(doubted,))
    assert RefusalReason.OFFSETS_IN_DOUBT in reasons(plan_switchover(snapshot).refusals)
    failover = plan_failover(snapshot, allow_data_loss=False, even_if_source_answers=True)
    assert reasons(failover.refusals) == {RefusalReason.DATA_LOSS_NOT_ALLOWED}


def test_a_partition_that_was_never_mirrored_loses_what_its_source_still_has() -> None:
    view = replace(MIRRORED, mirrored_source_next=None, target_end=None, source_start=70)
    loss = state_loss(view, NOW_MS)
    assert (loss.certainty, loss.offsets, loss.first_offset, loss.end_offset) == (Certainty.EXACT, 30, 70, 100)


def test_of_a_link_that_has_to_run_first_no_group_is_said_not_to_be_movable() -> None:
    """The hint for that, to leave the group behind, was no way on: where it goes on is brought when the link runs."""
    unknown = (replace(GROUP, partitions=(replace(GROUP_AT, translated_offset=None),)),)
    moved = replace(SNAPSHOT, groups=unknown, link_state="promoted", operation_id="switchover-1")
    back = replace(moved, moved_back_by=("west-east",))
    assert reasons(plan_switchover(moved).refusals) >= {RefusalReason.GROUP_NOT_MOVABLE}
    assert reasons(plan_switchover(back).refusals) == {RefusalReason.MOVED_BACK}
    lost = plan_failover(back, allow_data_loss=True, even_if_source_answers=True)
    assert reasons(lost.refusals) == {RefusalReason.MOVED_BACK}
