"""What a group would read again that its plan did not say: refused before the fence, a finding behind it."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.client.groups import delete_groups
from failover.errors import NotMovable, ReadsMore
from failover.planning.moves import MoveKind
from failover.planning.plan import plan_failover, plan_switchover
from failover.planning.unplanned import UnplannedReadAgain
from failover.running.link_run import LinkRun
from failover.running.steps import OperationStep
from failover.running.verification import DifferenceKind
from tests.failover.stage import GROUP, RARE, TOPIC, Stage, commit_group, mirrored, two_sites


async def test_a_group_whose_offsets_the_source_lost_before_the_fence_is_refused(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage, mirrored(stage, RARE):
        await commit_group(stage.source, 40, 30)
        plan = plan_switchover(await stage.sites.look())
        assert await delete_groups(stage.source, [GROUP]) == {}
        with pytest.raises(ReadsMore, match=rf"again: {GROUP} on {TOPIC}-0 \(at most 20\); nothing was changed"):
            await stage.run(plan, stage.sites)
        seen = await stage.sites.look()
        assert seen.link_state == "running"
        again = plan_switchover(seen)
        assert [total.read_again_records for total in again.group_totals] == [None]
        result = await stage.run(again, stage.sites)
    assert (result.verified, result.unplanned_read_again, result.has_findings) == (True, (), False)


def loses_at_fence(stage: Stage, monkeypatch: pytest.MonkeyPatch, *, at_both: bool) -> None:
    """The source, or each site, loses the group when the fence begins."""
    real = LinkRun.take

    async def take(self: LinkRun, step: OperationStep) -> None:
        if step is OperationStep.FENCE:
            for cluster in [stage.source, stage.target] if at_both else [stage.source]:
                assert await delete_groups(cluster, [GROUP]) == {}
        await real(self, step)

    monkeypatch.setattr(LinkRun, "take", take)


async def test_one_whose_offsets_it_loses_at_the_fence_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        await commit_group(stage.source, 40, 30)
        plan = plan_failover(await stage.sites.look_past_source(), allow_data_loss=True, even_if_source_answers=True)
        loses_at_fence(stage, monkeypatch, at_both=False)
        result = await stage.run(plan, stage.sites)
    assert result.unplanned_read_again == (UnplannedReadAgain(GROUP, TOPIC, 0, 20),)
    assert (result.verified, result.has_findings) == (True, True)


async def test_one_that_is_at_neither_site_before_the_fence_is_refused_by_name(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage, mirrored(stage, RARE):
        plan = plan_switchover(await stage.sites.look())
        for cluster in (stage.source, stage.target):
            assert await delete_groups(cluster, [GROUP]) == {}
        with pytest.raises(NotMovable, match=f"where {GROUP} would go on"):
            await stage.run(plan, stage.sites)
        left = plan_switchover(plan.snapshot, left_groups=[GROUP])
        result = await stage.run(left, stage.sites)
    assert (result.verified, result.left_groups) == (True, (GROUP,))


async def test_one_that_is_at_neither_site_behind_the_fence_is_named_and_not_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        plan = plan_failover(await stage.sites.look_past_source(), allow_data_loss=True, even_if_source_answers=True)
        loses_at_fence(stage, monkeypatch, at_both=True)
        result = await stage.run(plan, stage.sites)
    assert {move.kind for move in result.moves} == {MoveKind.UNKNOWN}
    assert [one.kind for one in result.differences] == [DifferenceKind.GROUP_NOT_MOVED] * 2
