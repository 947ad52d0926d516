"""A group whose next records the target has no more goes on at the first that is there, and is told what it skips."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.topics import delete_records
from failover.drilling.drill import OPEN, AuditNote, judge_drill
from failover.drilling.looks import drill_link
from failover.observing.contact import SiteFinding
from failover.observing.snapshot import GroupPartitionView, GroupView, PartitionView, Snapshot
from failover.planning.moves import MoveKind, plan_moves
from failover.planning.plan import plan_failover, plan_switchover
from failover.running.link_run import LinkRun
from failover.running.steps import OperationStep
from failover.running.verification import DifferenceKind
from mirror.heartbeat import HeartbeatWatch
from mirror.offsets.group_entries import GroupAction, GroupSync, GroupSyncs, GroupSyncTimes
from mirror.offsets.state import read_entries
from mirror.status import link_status
from tests.failover.drilling.test_drill import BLIND, LIVE, NOW_MS, SYNCED, status
from tests.failover.stage import GROUP, PARTITIONS, TOPIC, mirrored, now_ms, two_sites
from tests.mirror.harness import eventually

VIEW = PartitionView("flights", 0, "flights", 100, 100, 1, 1, 100, 103, 0, mirrored_target_next=102, target_start=60)
AT = GroupPartitionView("flights", 0, "flights", 40, 43, 43, "")


def snapshot(at: GroupPartitionView, view: PartitionView = VIEW, **fields: object) -> Snapshot:
    group = GroupView("analysts", "Empty", "Empty", 0, 0, 1, (at,))
    seen = Snapshot("east-west", "east", "west", 9, SiteFinding.ALIVE, "running", "", (view,), (group,))
    return replace(seen, **fields)  # type: ignore[arg-type]  # its own


@pytest.mark.parametrize(
    ("at", "view", "expected"),
    [
        pytest.param(AT, VIEW, (MoveKind.AT_START, 60, 0, 17), id="it stands there already"),
        pytest.param(replace(AT, target_offset=21), VIEW, (MoveKind.AT_START, 60, 0, 17), id="it is to be moved"),
        pytest.param(AT, replace(VIEW, target_start=43), (MoveKind.ALREADY_THERE, 43, 0, 0), id="the first one"),
        pytest.param(AT, replace(VIEW, target_start=None), (MoveKind.ALREADY_THERE, 43, 0, 0), id="not told"),
        pytest.param(
            replace(AT, source_offset=100, translated_offset=102, target_offset=102),
            replace(VIEW, target_start=103),
            (MoveKind.AT_START, 103, 0, 0),
            id="a marker is no record",
        ),
        pytest.param(
            replace(AT, source_offset=100, translated_offset=102, target_offset=102),
            replace(VIEW, target_start=103, has_local_writers=True),
            (MoveKind.AT_START, 103, 0, 1),
            id="what others wrote is one",
        ),
        pytest.param(replace(AT, target_offset=50), VIEW, (MoveKind.AT_START, 60, 0, 17), id="ahead, and lost"),
        pytest.param(replace(AT, target_offset=70), VIEW, (MoveKind.AHEAD, 70, 0, 27), id="further ahead"),
    ],
)
def test_the_place_is_one_at_which_a_record_is(
    at: GroupPartitionView, view: PartitionView, expected: tuple[MoveKind, int, int, int]
) -> None:
    (move,) = plan_moves(snapshot(at, view))
    assert (move.kind, move.target_offset, move.read_again_records, move.skipped_records) == expected
    assert move.commits == (move.kind is MoveKind.AT_START)


def test_one_that_is_set_back_reads_again_what_is_there_of_it() -> None:
    (move,) = plan_moves(snapshot(replace(AT, target_offset=70)), ["analysts"])
    assert (move.kind, move.target_offset) == (MoveKind.AT_START, 60)
    assert (move.read_again_records, move.skipped_records) == (10, 17)


def test_one_that_was_set_back_there_behind_a_move_begins_where_the_log_does() -> None:
    back = replace(AT, target_offset=21, is_set_back_there=True)
    (move,) = plan_moves(snapshot(back, link_state="promoted"))
    assert (move.kind, move.target_offset, move.skipped_records) == (MoveKind.AT_START, 60, 39)


@pytest.mark.parametrize("is_dead", [False, True])
async def test_a_move_goes_on_at_the_first_record_there_is(tmp_path: Path, is_dead: bool) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        before = await stage.group_at(stage.target)
        await delete_records(stage.target, {PARTITIONS[0]: 40})
        sites = stage.without_source if is_dead else stage.sites
        seen = await sites.look_past_source()
        plan = plan_failover(seen, allow_data_loss=True, even_if_source_answers=True)
        (total,) = plan.group_totals
        assert (total.read_again_records, total.skipped_records) == (
            (None, None) if is_dead else (0, 40 - before[PARTITIONS[0]])
        )
        assert [(move.kind, move.skipped_records) for move in plan.moves] == [
            (MoveKind.AT_START, 40 - before[PARTITIONS[0]]),
            (MoveKind.KEPT, None) if is_dead else (MoveKind.ALREADY_THERE, 0),
        ]
        result = await stage.run(plan, sites)
        assert result.verified, result.differences
        assert await stage.group_at(stage.target) == {**before, PARTITIONS[0]: 40}


async def test_a_running_mirror_does_not_call_it_equal(tmp_path: Path) -> None:
    """Nor do status, the drill and whoever else goes by what the link's state says of groups."""
    async with two_sites(tmp_path, site_start_frozen=True) as stage, mirrored(stage):
        stands = (await stage.group_at(stage.target))[PARTITIONS[0]]
        await delete_records(stage.target, {PARTITIONS[0]: 40})

        async def is_told() -> bool:
            groups = (await read_entries(stage.link, stage.target)).groups
            return groups.by_group[GROUP].waiting == {(TOPIC, 0): GroupAction.BEFORE_LOG}

        await eventually(is_told, "the group's offset to be seen before the target's log")
        drill = await drill_link(stage.link, HeartbeatWatch(stage.target.clock), AuditNote(), now_ms)
        assert [(one.kind, one.subject) for one in drill.findings] == [("group_before_log", GROUP)]
        assert (await link_status(stage.link, HeartbeatWatch(stage.target.clock))).groups_waiting == 1
        assert (await stage.group_at(stage.target))[PARTITIONS[0]] == stands, "no other offset is equal"


async def test_records_that_go_between_the_plan_and_the_fence_are_not_skipped_unsaid(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        plan = plan_failover(await stage.sites.look_past_source(), allow_data_loss=True, even_if_source_answers=True)
        await delete_records(stage.target, {PARTITIONS[0]: 40})
        result = await stage.run(plan, stage.sites)
        assert [(skip.group, skip.partition) for skip in result.unplanned_skips] == [(GROUP, 0)]
        assert (result.verified, result.has_findings) == (True, True)


async def test_records_that_go_behind_the_moves_are_a_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = LinkRun.take
    async with two_sites(tmp_path) as stage, mirrored(stage):

        async def take(self: LinkRun, step: OperationStep) -> None:
            await real(self, step)
            if step is OperationStep.MOVE_GROUPS:
                await delete_records(stage.target, {PARTITIONS[0]: 40})

        monkeypatch.setattr(LinkRun, "take", take)
        stands = (await stage.group_at(stage.target))[PARTITIONS[0]]
        result = await stage.run(plan_switchover(await stage.sites.look()), stage.sites)
    (found,) = result.differences
    assert (found.kind, found.expected, found.found) == (DifferenceKind.GROUP_BEFORE_LOG, 40, stands)


@pytest.mark.parametrize("waits_since_ms", [None, NOW_MS - 900, 0], ids=["not seen", "for a second", "for long"])
@pytest.mark.parametrize(("source_start", "expected"), [(0, ["group_before_log"]), (41, [])])
def test_a_drill_finds_it_once_where_the_source_has_those_records_still(
    source_start: int, expected: list[str], waits_since_ms: int | None
) -> None:
    """Also when the worker's passes see it, and do not call the group equal: that is no other finding."""
    syncs = SYNCED
    if waits_since_ms is not None:
        waiting = GroupSync("analysts", NOW_MS - 900, waiting={("flights", 0): GroupAction.BEFORE_LOG})
        syncs = GroupSyncs({"analysts": waiting}, GroupSyncTimes(looked_at_ms=NOW_MS))
    view, (group,) = replace(BLIND.partitions[0], target_start=60), BLIND.groups
    group = replace(group, synced_at_ms=NOW_MS - 900 if waits_since_ms is None else waits_since_ms)
    live = replace(
        LIVE,
        partitions=(replace(LIVE.partitions[0], source_start=source_start),),
        groups=(replace(group, partitions=(replace(group.partitions[0], source_offset=40),)),),
    )
    found = judge_drill(
        status(), replace(BLIND, partitions=(view,), groups=(group,)), live, syncs, AuditNote(), NOW_MS, gates=OPEN
    ).findings
    assert [(one.kind, one.subject) for one in found] == [(kind, "analysts") for kind in expected]
    assert all("skip at most 17 records" in one.detail for one in found)
