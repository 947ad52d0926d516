"""What a group would skip that its plan did not say: refused before the fence, a finding behind it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from failover.errors import SkipsMore
from failover.planning.moves import GroupMove, MoveKind
from failover.planning.plan import plan_failover, plan_switchover
from failover.planning.to_datetime import moves_to
from failover.planning.unplanned import UnplannedSkip, unplanned_skips
from failover.running.groups_stand import GroupsStand
from failover.running.link_run import LinkRun
from failover.running.steps import OperationStep
from tests.failover.stage import GROUP, TOPIC, commit_group, mirrored, two_sites


async def test_a_group_that_went_on_at_the_target_before_the_fence_is_refused(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage, mirrored(stage):
        plan = plan_switchover(await stage.sites.look())
        assert [total.skipped_records for total in plan.group_totals] == [0]
        await commit_group(stage.target, 45, 30)
        with pytest.raises(SkipsMore, match=rf"{GROUP} on {TOPIC}-0 \(at most 24\); nothing was changed"):
            await stage.run(plan, stage.sites)
        assert (await stage.sites.look()).link_state == "running"
        again = plan_switchover(await stage.sites.look())
        assert [total.skipped_records for total in again.group_totals] == [24]
        await commit_group(stage.target, 46, 30)
        with pytest.raises(SkipsMore, match=rf"{GROUP} on {TOPIC}-0 \(at most 25\); nothing was changed"):
            await stage.run(again, stage.sites)
        again = plan_switchover(await stage.sites.look())
        result = await stage.run(again, stage.sites)
    assert (result.verified, result.unplanned_skips, result.has_findings) == (True, (), False)


def test_one_that_the_mirror_brought_meanwhile_to_where_the_plan_has_it_skips_no_more() -> None:
    """Where both sites write: a switchover was refused for that, as more stood before the group than before."""
    planned = GroupMove(GROUP, TOPIC, 0, TOPIC, MoveKind.TRANSLATED, 40, 58, "", skipped_records=14, stood_at=53)
    brought = replace(planned, kind=MoveKind.AHEAD, skipped_records=19, stood_at=58)
    assert list(unplanned_skips([planned], [brought])) == []
    went_on = replace(brought, target_offset=60, skipped_records=21, stood_at=60)
    set_back_at_source = replace(brought, source_offset=30, skipped_records=29)
    for more in (went_on, set_back_at_source):
        assert [one.skipped_records for one in unplanned_skips([planned], [more])] == [more.skipped_records]
    lost_there = replace(brought, skipped_records=20)
    stays = replace(planned, skipped_records=15)
    for more in (lost_there, stays):
        assert list(unplanned_skips([planned], [more])), "the target lost records since, of which the plan said nothing"
    on_its_way = replace(planned, skipped_records=16, stood_at=55)
    assert list(unplanned_skips([planned], [on_its_way])) == []


def test_a_count_that_became_unknown_is_more_than_any_that_the_plan_had() -> None:
    """It was taken for none: the move went on, and its result had no finding."""
    planned = GroupMove(GROUP, TOPIC, 0, TOPIC, MoveKind.AT_START, 40, 58, "", skipped_records=14, stood_at=53)
    for kind in (MoveKind.AT_START, MoveKind.AHEAD, MoveKind.TRANSLATED):
        was = replace(planned, kind=kind)
        unknown = replace(was, skipped_records=None)
        assert list(unplanned_skips([was], [unknown])) == [UnplannedSkip(GROUP, TOPIC, 0, None)]
        assert list(unplanned_skips([unknown], [unknown])) == [], "so the plan said"
        assert list(unplanned_skips([unknown], [was])) == []
    by_state = [replace(planned, kind=kind, skipped_records=None) for kind in (MoveKind.KEPT, MoveKind.RESTORED)]
    for kept in by_state:
        at_start = replace(kept, kind=MoveKind.AT_START)
        assert list(unplanned_skips([kept], [at_start])) == [], "of which nothing was known before, and no record lost"
    left = replace(planned, kind=MoveKind.UNKNOWN, target_offset=None, skipped_records=None)
    assert list(unplanned_skips([planned], [left], {GROUP})) == [], "it is not moved, as was consented to by name"


async def test_one_that_goes_on_there_behind_the_fence_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = LinkRun.take
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        await commit_group(stage.source, 22, 33)

        async def take(self: LinkRun, step: OperationStep) -> None:
            await real(self, step)
            if step is OperationStep.FENCE:
                await commit_group(stage.target, 21, 48)

        monkeypatch.setattr(LinkRun, "take", take)
        plan = plan_failover(await stage.sites.look(), allow_data_loss=True, even_if_source_answers=True)
        assert [move.kind for move in plan.moves] == [MoveKind.TRANSLATED] * 2
        stands: list[GroupsStand] = []
        result = await stage.run(plan, stage.sites, tell=stands.append)
    assert [stand.left_groups for stand in stands] == [(GROUP,)], "its applications are not told to start"
    assert result.unplanned_skips == (UnplannedSkip(GROUP, TOPIC, 1, 14),)
    assert (result.verified, result.has_findings) == (True, True)


async def test_a_group_that_was_sent_back_to_a_time_is_not_carried_over_it_by_a_later_wave(tmp_path: Path) -> None:
    """It was to read again from there, and a wave by the map moved it to where it stood at the source: 0 skipped."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        seen = await stage.without_source.look()
        moves = await moves_to(seen, stage.target, 0)
        plan = plan_failover(seen, allow_data_loss=True, even_if_source_answers=False, moves=moves)
        assert (await stage.run(plan, stage.without_source)).verified
        stood = await stage.group_at(stage.target)
        sites = replace(stage.sites, groups=(GROUP,))
        plan = plan_failover(await sites.look_past_source(), allow_data_loss=True, even_if_source_answers=True)
        assert [(move.kind, move.skipped_records) for move in plan.moves] == [(MoveKind.SET_BACK_THERE, 0)] * 2
        assert (await stage.run(plan, sites)).verified
        assert await stage.group_at(stage.target) == stood


async def test_one_that_read_on_at_the_source_since_is_carried(tmp_path: Path) -> None:
    """Of a group that a wave left behind its applications at the source say where it is."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        plan = plan_failover(await stage.sites.look(), allow_data_loss=True, even_if_source_answers=True)
        assert (await stage.run(plan, stage.sites)).verified
        await commit_group(stage.source, 33, 44)
        await commit_group(stage.target, 5, 6)
        sites = replace(stage.sites, groups=(GROUP,))
        plan = plan_failover(await sites.look_past_source(), allow_data_loss=True, even_if_source_answers=True)
        assert [move.kind for move in plan.moves] == [MoveKind.TRANSLATED] * 2
