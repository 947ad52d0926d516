"""A failover to a time of a source that lives: what the mirror carries until the fence is no reading at the target."""

from __future__ import annotations

from pathlib import Path

import pytest

from failover.planning.moves import MoveKind
from failover.planning.plan import OperationPlan, plan_failover
from failover.planning.to_datetime import moves_to
from failover.planning.unplanned import UnplannedSkip
from failover.running.groups_stand import GroupsStand
from failover.running.link_run import LinkRun
from tests.failover.stage import FIRST_TIMESTAMP_MS, GROUP, TOPIC, Stage, commit_group, mirrored, two_sites
from tests.mirror.harness import eventually


async def planned(stage: Stage, *, is_source_there: bool = True) -> OperationPlan:
    """To the time of the first record, so that each group is set back."""
    snapshot = await (stage.sites if is_source_there else stage.without_source).look()
    moves = await moves_to(snapshot, stage.target, FIRST_TIMESTAMP_MS)
    return plan_failover(snapshot, allow_data_loss=True, even_if_source_answers=True, moves=moves)


async def test_a_group_that_the_mirror_carried_on_since_the_plan_is_set_to_the_time(tmp_path: Path) -> None:
    """It counted as one that had read on at the target, stayed there, and that was verified."""
    async with two_sites(tmp_path) as stage, mirrored(stage):
        plan = await planned(stage)
        before = await stage.group_at(stage.target)
        await commit_group(stage.source, 25, 37)

        async def is_carried() -> bool:
            found = await stage.group_at(stage.target)
            return all(found[at] > before[at] for at in before)

        await eventually(is_carried, "the pass over groups")
        result = await stage.run(plan, stage.sites)
        assert {move.kind for move in result.moves} == {MoveKind.BY_TIMESTAMP}
        assert [(move.source_offset, move.skipped_records) for move in result.moves] == [(25, 0), (37, 0)]
        assert [move.read_again_records for move in result.moves] == [
            (move.stood_at or 0) - (move.target_offset or 0) for move in result.moves
        ]
        assert await stage.group_at(stage.target) == {at: plan.moves[at.partition].target_offset for at in before}
        assert (result.verified, result.unplanned_skips) == (True, ())


@pytest.mark.parametrize("is_source_there", [True, False])
async def test_one_that_reads_on_behind_the_fence_is_not_set_back_and_that_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_source_there: bool
) -> None:
    """Of a source that does not tell nobody knows how many it skips, and that was none."""
    real = LinkRun._move_groups

    async def read_on(self: LinkRun) -> None:
        await commit_group(stage.target, 48, 47)
        await real(self)

    monkeypatch.setattr(LinkRun, "_move_groups", read_on)
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        plan = await planned(stage, is_source_there=is_source_there)
        stands: list[GroupsStand] = []
        sites = stage.sites if is_source_there else stage.without_source
        result = await stage.run(plan, sites, tell=stands.append)
    assert {move.kind for move in result.moves} == {MoveKind.AHEAD}
    goes_to = [move.target_offset or 0 for move in plan.moves]
    skipped = (48 - goes_to[0], 47 - goes_to[1]) if is_source_there else (None, None)
    assert result.unplanned_skips == tuple(UnplannedSkip(GROUP, TOPIC, at, skipped[at]) for at in (0, 1))
    assert (result.verified, result.has_findings) == (True, True)
    assert [stand.left_groups for stand in stands] == [(GROUP,)]
