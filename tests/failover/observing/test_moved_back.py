"""Whether a link that was moved is so still, or its clients went back since: by what both sites say, or one of them."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from failover.observing.moved_back import moved_back_by
from failover.observing.sites import Sites
from mirror.offsets.operations import resume_link
from tests.failover.failback.stage import Lost, lost_and_back
from tests.failover.failback.test_promoted_later import NEWS, Machines
from tests.failover.stage import now_ms


def sites(lost: Lost, *, without_source: bool = False) -> Sites:
    """Of the link that was moved first."""
    return Sites(lost.there, None if without_source else lost.stage.source, lost.stage.target, (), now_ms)


async def test_a_promotion_back_counts_while_it_stands_and_when_its_link_runs_again(tmp_path: Path) -> None:
    async with lost_and_back(tmp_path, 21, (0, 0), (NEWS, 0)) as lost, AsyncExitStack() as stack:
        for without_source in (False, True):
            assert await moved_back_by(sites(lost, without_source=without_source)) == ()
        machines = Machines(stack)
        await machines.promote(lost.back, "a way back", 0)
        for without_source in (False, True):
            assert await moved_back_by(sites(lost, without_source=without_source)) == (lost.back.name,)
        await resume_link(lost.back, lost.stage.source, "resumed by mistake")
        assert await moved_back_by(sites(lost)) == (lost.back.name,)
        await resume_link(lost.there, lost.stage.target, "let run")
        assert await moved_back_by(sites(lost)) == ()
        await machines.promote(lost.there, "moved anew", 0)
        assert await moved_back_by(sites(lost)) == ()
