"""What a leader of the source has and its followers have not got is lost with it, and nobody is shown it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from failover.losses.stated_losses import counted, stated_losses
from failover.losses.statements import Certainty
from failover.planning.gates import RefusalReason
from failover.planning.plan import plan_failover
from failover.running.link_run import LinkMove
from tests.failover.on_its_way import hold_drain
from tests.failover.stage import PARTITIONS, mirrored, two_sites


async def test_records_that_no_consumer_is_shown_leave_no_loss_exact(tmp_path: Path) -> None:
    """They were acknowledged to who writes with acks=1: "0 records" was said of a source that had one more."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        await hold_drain(stage)
        losses = await stated_losses(stage.sites, await stage.sites.look())
    found = {(loss.topic, loss.partition): (loss.certainty, loss.records) for loss in losses}
    assert found == {PARTITIONS[0]: (Certainty.AT_LEAST, 0), PARTITIONS[1]: (Certainty.EXACT, 0)}


@pytest.mark.parametrize("is_shown", [True, False])
async def test_they_are_a_loss_that_a_failover_asks_consent_for(tmp_path: Path, is_shown: bool) -> None:
    """Its gate let it begin as one that loses nothing, and its result said "at least 0 records"."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        plan = plan_failover(await stage.sites.look(), allow_data_loss=False, even_if_source_answers=True)
        before = await counted(LinkMove(plan, stage.sites), always=is_shown)
        assert (before.plan.refusals, before.plan.loss.certainty) == ((), Certainty.EXACT)
        await hold_drain(stage)
        now = await counted(LinkMove(plan, stage.sites), always=is_shown)
        assert [one.reason for one in now.plan.refusals] == [RefusalReason.DATA_LOSS_NOT_ALLOWED]
        assert now.plan.loss.certainty is Certainty.AT_LEAST
        consented = replace(plan, allows_data_loss=True)
        assert (await counted(LinkMove(consented, stage.sites), always=is_shown)).plan.refusals == ()
