"""A source's topic that is deleted and made anew behind the fence of a switchover is said to be another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from failover.errors import NotDrained
from failover.planning.plan import plan_switchover
from failover.running.link_run import LinkRun
from failover.running.steps import OperationStep
from failover.running.verification import DifferenceKind
from tests.failover.observing.test_observe import recreate
from tests.failover.stage import PARTITIONS, RARE, RECORDS, Stage, mirrored, two_sites
from tests.mirror.harness import some_records, write


@pytest.mark.parametrize("is_empty", [True, False])
async def test_a_topic_that_was_made_anew_behind_the_fence_is_a_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_empty: bool
) -> None:
    """The empty one was told as one whose last record cannot be read, the other one as one that differs in that."""
    real = LinkRun.take
    async with two_sites(tmp_path) as stage, mirrored(stage, RARE):

        async def take(self: LinkRun, step: OperationStep) -> None:
            await real(self, step)
            if step is OperationStep.MOVE_GROUPS:
                await make_anew(stage, is_empty=is_empty)

        monkeypatch.setattr(LinkRun, "take", take)
        result = await stage.run(plan_switchover(await stage.sites.look()), stage.sites)
    assert [(one.kind, one.subject, one.partition) for one in result.differences] == [
        (DifferenceKind.RECREATED, *at) for at in PARTITIONS
    ]
    assert (result.verified, result.not_compared_partitions) == (False, ())


async def make_anew(stage: Stage, *, is_empty: bool) -> None:
    await recreate(stage.source)
    for at in PARTITIONS if not is_empty else ():
        await write(stage.source, at, some_records(9_000, RECORDS + 5))


async def test_a_topic_that_is_made_anew_amid_the_drain_is_not_told_as_one_that_is_written_to(tmp_path: Path) -> None:
    """What it told to do, to stop the producers, helped nobody: the mirror stands still until somebody decides."""
    async with two_sites(tmp_path) as stage, mirrored(stage, RARE):
        plan = plan_switchover(await stage.sites.look())
        await make_anew(stage, is_empty=False)
        with pytest.raises(NotDrained, match=r"flights:0, flights:1 at .* was deleted and made anew") as refused:
            await stage.run(plan, stage.sites)
        gaps = "--gap flights:0 --gap flights:1"
        assert f"farshore link resume --link {stage.link.name} {gaps}" in refused.value.hint
