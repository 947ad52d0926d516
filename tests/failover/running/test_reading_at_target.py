"""The source is dead, and nothing is committed for a group: one that reads at the target is not in the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from failover.planning.moves import MoveKind
from failover.planning.plan import plan_failover
from failover.running.link_run import LinkRun
from failover.running.read_on import ReadOn
from failover.running.steps import OperationStep
from failover.running.verification import DifferenceKind
from tests.failover.stage import GROUP, TOPIC, commit_group, mirrored, two_sites


@pytest.mark.parametrize("is_back", [False, True])
async def test_a_reader_at_the_target_that_reads_on_is_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_back: bool
) -> None:
    """It was, exit code 1, and so each time that the command was given again. One that went back is still."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        seen = await stage.without_source.look_past_source()
        plan = plan_failover(seen, allow_data_loss=True, even_if_source_answers=False)
        assert {move.kind for move in plan.moves} == {MoveKind.KEPT}
        first, second = [move.target_offset or 0 for move in plan.moves]
        real = LinkRun.take

        async def take(self: LinkRun, step: OperationStep) -> None:
            if step is OperationStep.VERIFY:
                await commit_group(stage.target, first + (-1 if is_back else 1), second + 2)
            await real(self, step)

        monkeypatch.setattr(LinkRun, "take", take)
        result = await stage.run(plan, stage.without_source)
    on_second = ReadOn(GROUP, TOPIC, 1, second, second + 2)
    if is_back:
        assert [(one.kind, one.partition) for one in result.differences] == [(DifferenceKind.GROUP_OFFSET, 0)]
        assert result.read_on == (on_second,)
    else:
        assert (result.verified, result.has_findings) == (True, False)
        assert result.read_on == (ReadOn(GROUP, TOPIC, 0, first, first + 1), on_second)
