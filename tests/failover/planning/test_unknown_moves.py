"""A move that is not made is not verified: unknown offsets and unknown groups are refused, or left behind by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.groups import commit_offsets, committed_offsets
from broker.client.model import CommittedOffset
from broker.wire.vocabulary import TopicPartition
from failover.errors import NotMovable
from failover.observing.contact import SiteFinding
from failover.observing.snapshot import GroupPartitionView, GroupView, PartitionView, Snapshot
from failover.planning.gates import GateRefusal, RefusalReason
from failover.planning.moves import MoveKind
from failover.planning.plan import plan_failover, plan_switchover
from failover.running.steps import Operation
from failover.running.verification import DifferenceKind
from tests.failover.stage import GROUP, PARTITIONS, RECORDS, TOPIC, Stage, commit_group, mirrored, two_sites
from tests.mirror.harness import make_topic, some_records, write

VIEW = PartitionView("flights", 0, "flights", 100, 100, 1, 1, 100, 103, 0, mirrored_target_next=102)
AT = GroupPartitionView("flights", 0, "flights", 40, 43, None, "")
GROUP_VIEW = GroupView("analysts", "Empty", "Dead", 0, 0, 1, (AT,))
SNAPSHOT = Snapshot("east-west", "east", "west", 9, SiteFinding.ALIVE, "running", "", (VIEW,), (GROUP_VIEW,))
UNKNOWN = replace(AT, translated_offset=None)
NOT_MOVABLE = GateRefusal(RefusalReason.GROUP_NOT_MOVABLE, "analysts")
NOT_FOUND = GateRefusal(RefusalReason.GROUP_NOT_FOUND, "nope")


def of(at: GroupPartitionView, view: PartitionView = VIEW) -> Snapshot:
    return replace(SNAPSHOT, partitions=(view,), groups=(replace(GROUP_VIEW, partitions=(at,)),))


def refusals(operation: Operation, snapshot: Snapshot, *left: str) -> tuple[GateRefusal, ...]:
    if operation is Operation.SWITCHOVER:
        return plan_switchover(snapshot, left_groups=left).refusals
    return plan_failover(snapshot, allow_data_loss=True, even_if_source_answers=True, left_groups=left).refusals


def test_a_partition_that_is_not_there_is_refused_where_it_was_to_be_left() -> None:
    def left(*names: str) -> tuple[GateRefusal, ...]:
        plan = plan_failover(SNAPSHOT, allow_data_loss=True, even_if_source_answers=True, left_partitions=names)
        return plan.refusals

    assert left("flights:0") == ()
    assert left("flights:9", "flights:0", "fligths:0", "flights:9") == (
        GateRefusal(RefusalReason.PARTITION_NOT_FOUND, "flights:9"),
        GateRefusal(RefusalReason.PARTITION_NOT_FOUND, "fligths:0"),
    )


@pytest.mark.parametrize("operation", Operation)
@pytest.mark.parametrize(
    ("at", "view"),
    [
        pytest.param(UNKNOWN, VIEW, id="the map has no such offset"),
        pytest.param(replace(UNKNOWN, source_offset=101), VIEW, id="beyond the source's end"),
        pytest.param(UNKNOWN, replace(VIEW, partition=1), id="a partition that is not looked at"),
        pytest.param(replace(UNKNOWN, source_offset=None), VIEW, id="no offset is known at all"),
        pytest.param(replace(UNKNOWN, source_offset=None, target_offset=104), VIEW, id="kept, beyond the target's end"),
    ],
)
def test_an_unknown_move_is_refused_or_consented_to_by_name(
    operation: Operation, at: GroupPartitionView, view: PartitionView
) -> None:
    more = replace(of(at, view), partitions=(view, replace(VIEW, partition=7)))
    assert refusals(operation, more) == (NOT_MOVABLE,)
    assert set(refusals(operation, more, "nope")) == {NOT_MOVABLE, NOT_FOUND}
    assert refusals(operation, more, "analysts") == ()
    plan = plan_failover(more, allow_data_loss=True, even_if_source_answers=True, left_groups=["analysts"])
    assert (plan.left_groups, [move.kind for move in plan.moves]) == (("analysts",), [MoveKind.UNKNOWN])


def test_what_the_mirror_has_yet_to_bring_is_waited_for_and_not_refused() -> None:
    behind = replace(VIEW, mirrored_source_next=60, has_local_writers=True)
    assert refusals(Operation.SWITCHOVER, of(replace(UNKNOWN, source_offset=70), behind)) == ()
    assert refusals(Operation.SWITCHOVER, of(replace(UNKNOWN, source_offset=50), behind)) == (NOT_MOVABLE,)
    new = replace(VIEW, mirrored_source_next=None, mirrored_target_next=None)
    unmirrored = replace(of(replace(UNKNOWN, source_offset=100), new), partitions=(new, replace(VIEW, partition=1)))
    assert refusals(Operation.SWITCHOVER, unmirrored) == ()
    assert refusals(Operation.FAILOVER, unmirrored) == (NOT_MOVABLE,)
    assert refusals(Operation.FAILOVER, of(replace(UNKNOWN, source_offset=70), behind)) == (NOT_MOVABLE,)


def test_a_group_at_the_start_of_an_empty_partition_has_read_all_of_it() -> None:
    empty = replace(VIEW, source_end=0, mirrored_source_next=None, target_end=0, mirrored_target_next=None)
    whole = replace(of(replace(UNKNOWN, source_offset=0), empty), partitions=(empty, replace(VIEW, partition=1)))
    plan = plan_switchover(whole)
    assert plan.refusals == ()
    assert [(move.kind, move.target_offset) for move in plan.moves] == [(MoveKind.AT_END, 0)]


def test_a_group_ahead_goes_on_behind_the_mirrored_records_and_not_behind_the_targets_own() -> None:
    ahead = replace(UNKNOWN, source_offset=100)
    (move,) = plan_switchover(of(ahead, replace(VIEW, target_end=900))).moves
    assert (move.kind, move.target_offset) == (MoveKind.AT_END, 102)


@pytest.mark.parametrize("operation", Operation)
def test_a_group_that_was_asked_for_and_is_not_there_is_refused(operation: Operation) -> None:
    asked = replace(SNAPSHOT, asked_groups=("nope", "analysts"))
    assert refusals(operation, asked) == (NOT_FOUND,)
    assert refusals(operation, asked, "nope") == (NOT_FOUND,)


def test_a_moved_link_is_followed_by_groups_that_are_asked_for_by_name() -> None:
    moved = replace(SNAPSHOT, link_state="promoted", operation_id="one")
    assert refusals(Operation.SWITCHOVER, moved) == (
        GateRefusal(RefusalReason.LINK_NOT_RUNNING, "east-west", moved.operation_id),
    )
    assert refusals(Operation.SWITCHOVER, replace(moved, asked_groups=("analysts",))) == ()


async def commit(stage: Stage, group: str, at: TopicPartition, offset: int) -> None:
    await commit_offsets(stage.source, group, {at: CommittedOffset(offset)})


async def test_groups_that_cannot_be_moved_are_refused_left_or_moved_later(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        await commit(stage, "beyond", PARTITIONS[0], RECORDS + 1000)
        await commit(stage, "late", PARTITIONS[1], 7)
        refused = plan_switchover(await stage.sites.look()).refusals
        assert refused == (GateRefusal(RefusalReason.GROUP_NOT_MOVABLE, "beyond"),)

        only = replace(stage.sites, groups=(GROUP,))
        first = await stage.run(plan_switchover(await only.look()), only)
        assert (first.verified, first.left_groups) == (True, ())
        assert "late" not in {move.group for move in first.moves}
        await write(stage.target, PARTITIONS[1], some_records(70_000, 3))  # the applications have begun there

        rest = replace(stage.sites, groups=("late", "beyond"))
        second = await stage.run(plan_switchover(await rest.look(), left_groups=["beyond"]), rest)
        assert second.verified, second.differences
        assert second.left_groups == ("beyond",)
        assert await committed_offsets(stage.target, "beyond") == {}
        (late,) = [move for move in second.moves if move.group == "late"]
        found = await committed_offsets(stage.target, "late")
        assert {at: committed.offset for at, committed in found.items()} == {PARTITIONS[1]: late.target_offset}


async def test_a_move_that_becomes_unknown_during_the_drain_is_refused_before_the_fence(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage, mirrored(stage):
        plan = plan_switchover(await stage.sites.look())
        await commit(stage, "beyond", PARTITIONS[0], RECORDS + 1000)
        with pytest.raises(NotMovable, match="beyond") as refused:
            await stage.run(plan, stage.sites)
        assert "--leave-group beyond" in refused.value.hint
        assert (await stage.sites.look()).link_state == "running"


async def test_a_group_in_a_topic_that_was_never_mirrored_is_seen(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        link = replace(stage.link, topics=(TOPIC, "cargo"))
        await make_topic(stage.source, "cargo", 1)
        await write(stage.source, TopicPartition("cargo", 0), some_records(0, 5))
        await commit(stage, "loaders", TopicPartition("cargo", 0), 3)
        snapshot = await replace(stage.sites, link=link).look()
        plan = plan_failover(snapshot, allow_data_loss=True, even_if_source_answers=True)
        assert plan.refusals == (GateRefusal(RefusalReason.GROUP_NOT_MOVABLE, "loaders"),)


async def test_what_becomes_unknown_after_the_fence_is_not_verified(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        plan = plan_failover(await stage.sites.look(), allow_data_loss=True, even_if_source_answers=True)
        await commit_group(stage.source, RECORDS + 1000, 30)
        result = await stage.run(plan, stage.sites)
        assert [(found.kind, found.partition) for found in result.differences] == [(DifferenceKind.GROUP_NOT_MOVED, 0)]
        assert not result.verified
