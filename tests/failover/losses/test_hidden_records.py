"""What a leader of the source has and its followers have not got is lost with it, and nobody is shown it."""

from __future__ import annotations

from pathlib import Path

from failover.losses.stated_losses import stated_losses
from failover.losses.statements import Certainty
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
