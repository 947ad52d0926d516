"""What a plan says is said whole: each move and each loss with every field, and refusals with whom they are about."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failover.losses.statements import (
    Certainty,
    LossTotal,
    PartitionLoss,
    state_loss,
    total_loss,
    with_end,
    with_returns,
)
from failover.observing.contact import SiteFinding
from failover.observing.snapshot import GroupPartitionView, GroupView, PartitionView, Snapshot
from failover.planning.gates import GateRefusal, RefusalReason
from failover.planning.moves import GroupMove, GroupTotal, MoveKind
from failover.planning.plan import plan_failover, plan_switchover
from failover.running.steps import Operation, OperationStep

NOW_MS = 1_700_000_000_000
SEEN_MS = NOW_MS - 9
VIEW = PartitionView("flights", 3, "east.flights", 100, 98, NOW_MS - 5, SEEN_MS, 90, 93, 10)
AT = GroupPartitionView("flights", 3, "east.flights", 40, 43, None, "by analyst 7")
GROUP = GroupView("analysts", "Empty", "Dead", 0, 0, NOW_MS - 900, (AT,))
SNAPSHOT = Snapshot("east-west", "east", "west", NOW_MS, SiteFinding.ALIVE, "running", "", (VIEW,), (GROUP,))
AHEAD = replace(AT, source_offset=90, translated_offset=None)


def move_of(at: GroupPartitionView, *views: PartitionView) -> GroupMove:
    snapshot = replace(SNAPSHOT, partitions=views, groups=(replace(GROUP, partitions=(at,)),))
    (move,) = plan_switchover(snapshot).moves
    return move


def moved(
    kind: MoveKind,
    source_offset: int | None,
    target_offset: int | None,
    read_again: int | None = 0,
    skipped: int | None = 0,
) -> GroupMove:
    at = ("analysts", "flights", 3, "east.flights")
    metadata, synced_at_ms = "by analyst 7", NOW_MS - 900
    return GroupMove(*at, kind, source_offset, target_offset, metadata, synced_at_ms, read_again, skipped)


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (AT, moved(MoveKind.TRANSLATED, 40, 43)),
        (replace(AT, target_offset=42), moved(MoveKind.TRANSLATED, 40, 43)),
        (replace(AT, target_offset=43), moved(MoveKind.ALREADY_THERE, 40, 43)),
        (replace(AT, source_offset=None, translated_offset=None), moved(MoveKind.UNKNOWN, None, None, None, None)),
        (
            replace(AT, source_offset=None, translated_offset=None, target_offset=5),
            moved(MoveKind.KEPT, None, 5, None, None),
        ),
        (AHEAD, moved(MoveKind.AT_END, 90, 93)),
        (replace(AHEAD, source_offset=95, target_offset=7), moved(MoveKind.AT_END, 95, 93)),
        (replace(AT, target_offset=743), moved(MoveKind.AHEAD, 40, 743, 0, 700)),
        (replace(AT, target_offset=743, set_back=True), moved(MoveKind.TRANSLATED, 40, 43)),
        (replace(AHEAD, target_offset=95), moved(MoveKind.AHEAD, 90, 95, 0, 2)),
        (replace(AHEAD, source_offset=89), moved(MoveKind.UNKNOWN, 89, None, None, None)),
    ],
)
def test_a_move_says_all_of_where_it_comes_from_and_goes(at: GroupPartitionView, expected: GroupMove) -> None:
    found = move_of(at, replace(VIEW, partition=2, target_end=1), VIEW)
    assert found == replace(expected, stood_at=at.target_offset)


@pytest.mark.parametrize(
    "view",
    [
        replace(VIEW, trusted=False),
        replace(VIEW, has_local_writers=True),
        replace(VIEW, mirrored_source_next=None),
        replace(VIEW, target_end=None),
        replace(VIEW, partition=2),
    ],
)
def test_a_group_ahead_goes_to_the_end_only_where_that_is_what_it_has_not_read(view: PartitionView) -> None:
    assert move_of(AHEAD, view) == moved(MoveKind.UNKNOWN, 90, None, None, None)


def test_a_group_is_set_back_where_that_is_asked_for_by_name_and_what_it_reads_again_is_counted() -> None:
    ahead = replace(AT, target_offset=743)
    snapshot = replace(SNAPSHOT, groups=(replace(GROUP, partitions=(ahead, AT)),))
    for plan in (
        plan_switchover(snapshot, set_back_groups=["analysts"]),
        plan_failover(
            snapshot, allow_data_loss=True, even_if_source_answers=True, set_back_groups=["others", "analysts"]
        ),
    ):
        back = replace(moved(MoveKind.TRANSLATED, 40, 43, 700), stood_at=743)
        assert plan.moves == (back, moved(MoveKind.TRANSLATED, 40, 43))
        assert plan.group_totals == (GroupTotal("analysts", 700, 0),)
    unasked = plan_switchover(snapshot, set_back_groups=["others"])
    assert [move.commits for move in unasked.moves] == [False, True]
    assert unasked.group_totals == (GroupTotal("analysts", 0, 700),)
    assert plan_switchover(SNAPSHOT).group_totals == (GroupTotal("analysts", 0, 0),)


def test_each_refusal_names_what_it_is_about() -> None:
    busy = replace(GROUP, source_members=1, target_members=1)
    doubted = replace(VIEW, trusted=False)
    in_the_way = replace(
        SNAPSHOT, link_state="promoted", source_finding=SiteFinding.DEAD, partitions=(doubted,), groups=(GROUP, busy)
    )
    assert plan_switchover(in_the_way).refusals == (
        GateRefusal(RefusalReason.LINK_NOT_RUNNING, "east-west"),
        GateRefusal(RefusalReason.SOURCE_UNREACHABLE, "east"),
        GateRefusal(RefusalReason.OFFSETS_IN_DOUBT, "flights-3"),
        GateRefusal(RefusalReason.GROUP_ACTIVE_AT_SOURCE, "analysts"),
        GateRefusal(RefusalReason.GROUP_ACTIVE_AT_TARGET, "analysts"),
    )
    never = replace(
        in_the_way, source_finding=SiteFinding.ALIVE, partitions=(replace(VIEW, mirrored_source_next=None),)
    )
    assert plan_failover(never, allow_data_loss=False, even_if_source_answers=False).refusals == (
        GateRefusal(RefusalReason.LINK_NOT_RUNNING, "east-west"),
        GateRefusal(RefusalReason.NOTHING_MIRRORED, "east-west"),
        GateRefusal(RefusalReason.SOURCE_ANSWERS, "east"),
        GateRefusal(RefusalReason.DATA_LOSS_NOT_ALLOWED, "east"),
        GateRefusal(RefusalReason.GROUP_ACTIVE_AT_TARGET, "analysts"),
    )


def test_a_promoted_link_is_gone_on_with_where_its_operation_was_cut_short() -> None:
    assert plan_switchover(replace(SNAPSHOT, link_state="promoted", interrupted=True)).refusals == ()


def test_consent_to_loss_is_asked_for_only_where_there_can_be_one() -> None:
    whole = replace(SNAPSHOT, partitions=(replace(VIEW, mirrored_source_next=100), replace(VIEW, partition=4)))
    asked = (GateRefusal(RefusalReason.DATA_LOSS_NOT_ALLOWED, "east"),)
    assert plan_failover(whole, allow_data_loss=False, even_if_source_answers=True).refusals == asked
    none = replace(whole, partitions=whole.partitions[:1])
    assert plan_failover(none, allow_data_loss=False, even_if_source_answers=True).refusals == ()


def test_plans_say_what_they_do_from_what_they_saw() -> None:
    switchover = plan_switchover(SNAPSHOT)
    fence, groups, check = OperationStep.FENCE, OperationStep.MOVE_GROUPS, OperationStep.VERIFY
    assert (switchover.operation, switchover.snapshot) == (Operation.SWITCHOVER, SNAPSHOT)
    assert switchover.steps == (OperationStep.DRAIN, fence, groups, check)
    assert switchover.by_offset_map
    assert switchover.losses == (state_loss(VIEW, NOW_MS),)
    assert switchover.loss == LossTotal(10, None, 1, Certainty.EXACT, stated_at_ms=NOW_MS, is_source_there=True)
    failover = plan_failover(SNAPSHOT, allow_data_loss=True, even_if_source_answers=True)
    assert (failover.operation, failover.snapshot) == (Operation.FAILOVER, SNAPSHOT)
    assert failover.steps == (fence, groups, check)
    assert failover.losses == switchover.losses
    assert (failover.moves, failover.by_offset_map) == ((moved(MoveKind.TRANSLATED, 40, 43),), True)


def test_moves_to_a_datetime_replace_those_of_the_map() -> None:
    asked = moved(MoveKind.BY_TIMESTAMP, 40, 7)
    plan = plan_failover(SNAPSHOT, allow_data_loss=True, even_if_source_answers=True, moves=iter([asked]))
    assert (plan.moves, plan.by_offset_map) == ((asked,), False)
    none = plan_failover(SNAPSHOT, allow_data_loss=True, even_if_source_answers=True, moves=())
    assert (none.moves, none.by_offset_map) == ((), False)


def loss(certainty: Certainty, offsets: int | None, first: int | None, end: int | None, **times: Any) -> PartitionLoss:
    """Of a source that does not answer it is never known that no record is lost."""
    records = 0 if offsets == 0 and certainty is Certainty.EXACT else None
    return PartitionLoss("flights", 3, certainty, offsets, records, first, end, **times)


GONE = replace(VIEW, source_end=None)
YOUNGEST = {"last_timestamp_ms": NOW_MS - 5}


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (VIEW, loss(Certainty.EXACT, 10, 90, 100, seen_at_ms=NOW_MS)),
        (replace(VIEW, source_end=90), loss(Certainty.EXACT, 0, 90, 90, seen_at_ms=NOW_MS)),
        (replace(VIEW, source_end=80), loss(Certainty.EXACT, 0, 90, 90, seen_at_ms=NOW_MS)),
        (replace(VIEW, mirrored_source_next=None), loss(Certainty.EXACT, 90, 10, 100, seen_at_ms=NOW_MS)),
        (
            replace(VIEW, mirrored_source_next=None, source_start=None),
            loss(Certainty.EXACT, 100, 0, 100, seen_at_ms=NOW_MS),
        ),
        (GONE, loss(Certainty.AT_LEAST, 8, 90, 98, seen_at_ms=SEEN_MS, **YOUNGEST)),
        (
            replace(GONE, seen_beyond=3),
            loss(Certainty.AT_LEAST, 8, 90, 98, seen_at_ms=SEEN_MS, seen_beyond=3, **YOUNGEST),
        ),
        (replace(VIEW, seen_beyond=3), loss(Certainty.EXACT, 10, 90, 100, seen_at_ms=NOW_MS)),
        (replace(GONE, mirrored_source_next=97), loss(Certainty.AT_LEAST, 1, 97, 98, seen_at_ms=SEEN_MS, **YOUNGEST)),
        (replace(GONE, mirrored_source_next=98), loss(Certainty.AT_LEAST, 0, 98, 98, seen_at_ms=SEEN_MS)),
        (replace(GONE, mirrored_source_next=99), loss(Certainty.AT_LEAST, 0, 99, 99, seen_at_ms=SEEN_MS)),
        (replace(GONE, seen_source_end=None), loss(Certainty.UNKNOWN, None, 90, None)),
        (replace(VIEW, trusted=False), loss(Certainty.UNKNOWN, None, None, 100)),
        (replace(GONE, trusted=False), loss(Certainty.UNKNOWN, None, None, None)),
    ],
)
def test_a_loss_is_stated_with_what_is_known_of_it_and_no_more(view: PartitionView, expected: PartitionLoss) -> None:
    assert state_loss(view, NOW_MS) == expected


BOUND = loss(Certainty.AT_LEAST, 8, 90, 98)


@pytest.mark.parametrize(
    ("stated", "returned_at_most", "offsets", "unclear"),
    [
        (BOUND, 0, 8, 0),
        (BOUND, 3, 5, 3),
        (BOUND, 8, 0, 8),
        (BOUND, 9, 0, 8),
        (BOUND, None, 0, 8),
        (loss(Certainty.AT_LEAST, 0, 98, 98), None, 0, 0),
        (loss(Certainty.UNKNOWN, None, 90, None), None, None, 0),
        (replace(BOUND, certainty=Certainty.EXACT, records=2), None, 2, 0),
        (replace(BOUND, certainty=Certainty.EXACT, records=0), 3, 0, 0),
        (replace(BOUND, certainty=Certainty.EXACT), 3, 5, 3),
    ],
)
def test_what_may_have_come_back_is_not_stated_as_lost_unless_it_was_counted(
    stated: PartitionLoss, returned_at_most: int | None, offsets: int | None, unclear: int
) -> None:
    found = with_returns(stated, returned_at_most)
    assert (found.offsets, found.unclear_offsets) == (offsets, unclear)
    is_exact = stated.certainty is Certainty.EXACT and stated.records is not None
    assert found.certainty is (Certainty.EXACT if is_exact else with_end(stated, None).certainty)
    assert replace(found, offsets=stated.offsets, unclear_offsets=0, certainty=stated.certainty) == stated


@pytest.mark.parametrize("returned_at_most", [1, 3, 8, 9, None])
def test_what_may_have_come_back_is_taken_off_once(returned_at_most: int | None) -> None:
    """A source that is there in part is stated twice: before it is counted, and behind that."""
    once = with_returns(BOUND, returned_at_most)
    assert with_returns(once, returned_at_most) == once


def test_a_source_that_answers_is_drained_by_all_that_it_has() -> None:
    """What a link back brought there is not told apart by offsets, and a drain waits until the mirror has passed it."""
    view = replace(VIEW, returned_at_most=None)
    assert state_loss(view, NOW_MS) == state_loss(VIEW, NOW_MS)
    gone = state_loss(replace(GONE, returned_at_most=7), NOW_MS)
    assert (gone.offsets, gone.unclear_offsets, gone.certainty) == (1, 7, Certainty.AT_LEAST)


STATED = st.one_of(
    st.just((None, None)),
    st.just((0, 0)),
    st.integers(1, 99).flatmap(lambda offsets: st.tuples(st.just(offsets), st.none() | st.integers(0, offsets))),
)


@given(st.lists(st.tuples(st.sampled_from(Certainty), STATED), max_size=5))
def test_a_total_is_exact_only_where_every_partition_is(
    stated: list[tuple[Certainty, tuple[int | None, int | None]]],
) -> None:
    losses = [
        replace(loss(certainty, offsets, None, None), records=records) for certainty, (offsets, records) in stated
    ]
    total = total_loss(losses, is_source_there=True)
    seen = [(offsets, records) for _, (offsets, records) in stated if offsets is not None]
    assert total.offsets == sum(offsets for offsets, _ in seen)
    counts = [records for _, records in seen if records is not None]
    assert total.records == (sum(counts) if len(counts) == len(seen) else None)
    assert total.partitions_with_loss == len([1 for offsets, records in seen if offsets and records != 0])
    exact = {certainty for certainty, _ in stated} <= {Certainty.EXACT}
    assert total.certainty is (Certainty.EXACT if exact else Certainty.AT_LEAST)
