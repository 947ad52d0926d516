"""A move that commits nothing for a group of which a transaction at the target has an offset still."""

from __future__ import annotations

from pathlib import Path

from aiokafka.structs import TopicPartition as Place

from failover.planning.plan import plan_switchover
from tests.failover.failback.stage import transaction
from tests.failover.stage import GROUP, TOPIC, mirrored, two_sites


async def test_a_group_that_is_there_already_and_may_be_moved_by_a_transaction_is_not_verified(tmp_path: Path) -> None:
    """It was verified, with nothing skipped; the transaction, open since before the plan, moved it on behind that."""
    async with (
        two_sites(tmp_path) as stage,
        mirrored(stage),
        transaction(stage.link.target.bootstrap_servers) as producer,
    ):
        await producer.send_offsets_to_transaction({Place(TOPIC, 0): 47}, GROUP)
        plan = plan_switchover(await stage.sites.look())
        assert {move.kind.value for move in plan.moves} == {"already_there"}
        result = await stage.run(plan, stage.sites)
        assert [(one.kind.value, one.partition) for one in result.differences] == [("group_pending", 0)]
        assert not result.verified
        await producer.abort_transaction()
