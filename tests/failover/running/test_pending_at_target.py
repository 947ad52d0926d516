"""A move that commits nothing for a group of which a transaction at the target has an offset still."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiokafka.structs import TopicPartition as Place

from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from failover.planning.plan import plan_switchover
from tests.broker.faults import Faults, injected
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


async def test_nor_is_one_of_which_the_target_does_not_say_whether_it_has_consumers_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken for one that has some, and commits there as it should."""
    async with (
        two_sites(tmp_path) as stage,
        mirrored(stage),
        transaction(stage.link.target.bootstrap_servers) as producer,
    ):
        await producer.send_offsets_to_transaction({Place(TOPIC, 0): 47}, GROUP)
        plan = plan_switchover(await stage.sites.look())
        west = Faults(groups={(ApiKey.DESCRIBE_GROUPS, GROUP): ErrorCode.GROUP_AUTHORIZATION_FAILED})
        with injected(monkeypatch, {stage.brokers[1]: west}):
            result = await stage.run(plan, stage.sites)
            (seen,) = [one for one in (await stage.sites.look()).groups if one.group == GROUP]
        assert seen.target_members is None
        assert [(one.kind.value, one.partition) for one in result.differences] == [("group_pending", 0)]
        await producer.abort_transaction()
