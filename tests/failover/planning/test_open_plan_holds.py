"""A plan that was made while a transaction was open at a source that answers holds as long as nothing has changed."""

from __future__ import annotations

from pathlib import Path

from failover.losses.stated_losses import counted
from failover.losses.statements import Certainty
from failover.planning.plan import plan_failover
from failover.planning.world import changes, world_of
from failover.running.link_run import LinkMove
from tests.failover.failback.stage import transaction
from tests.failover.stage import PARTITIONS, TOPIC, Stage, mirrored, two_sites
from tests.mirror.harness import some_records, write


async def planned(stage: Stage, *, is_written: bool) -> LinkMove:
    """One that is written to a file counts its loss, who is asked about it does not."""
    plan = plan_failover(await stage.sites.look(), allow_data_loss=True, even_if_source_answers=True)
    return await counted(LinkMove(plan, stage.sites), always=is_written)


async def test_what_is_behind_the_transaction_is_no_greater_loss(tmp_path: Path) -> None:
    """It was refused: a loss of 4 offsets had become one of 10, with nothing written in between. And of one that is
    shown to be asked about, they were 10, exactly.
    """
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        await write(stage.source, PARTITIONS[0], some_records(5_000, 4))
        async with transaction(stage.link.source.bootstrap_servers) as producer:
            for _ in range(6):
                await producer.send_and_wait(TOPIC, b"x", partition=0)
            before = await planned(stage, is_written=True)
            assert (before.plan.loss.offsets, before.plan.loss.open_offsets) == (4, 6)
            now = await planned(stage, is_written=False)
            loss = now.plan.loss
            assert (loss.certainty, loss.offsets, loss.open_offsets) == (Certainty.AT_LEAST, 4, 6), "as it is written"
            assert changes(world_of(before.plan, stage.link), world_of(now.plan, stage.link)) == ()
            await write(stage.source, PARTITIONS[0], some_records(6_000, 1))
            more = await planned(stage, is_written=False)
            (found,) = changes(world_of(before.plan, stage.link), world_of(more.plan, stage.link))
            assert (found.before, found.now) == ("10 offsets, at least", "11 offsets, at least")
            await producer.abort_transaction()
