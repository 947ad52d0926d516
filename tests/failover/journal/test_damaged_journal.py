"""A journal that somebody else wrote to: it is said, and it keeps nobody from moving on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.log import append
from broker.client.topics import NewTopic, create_topic
from broker.wire.records import Record, encode_batch
from failover.errors import JournalDamaged
from failover.freezing.hooks import Hooks
from failover.journal.log import claim, load_operations
from failover.journal.topic import OPERATIONS_TOPIC, WHERE
from failover.planning.intent import Intent
from failover.planning.links import plan_link
from failover.running.steps import Operation
from failover.running.taking_up import begin
from tests.broker.running import running_server
from tests.failover.machines import quick
from tests.failover.stage import GROUP, PARTITIONS, Stage, mirrored, two_sites
from tests.mirror.harness import link_between


async def damage(target: Cluster, operation_id: str) -> None:
    """Take back its second entry."""
    log = (await load_operations(target))[operation_id]
    key = log.entries[1].records()[0][0]
    await append(target, WHERE, encode_batch([Record(0, 1, key, None)]))


async def switch(stage: Stage, operation_id: str) -> None:
    intent = Intent(Operation.SWITCHOVER, (stage.link.name,), "east", "west", groups=(GROUP,))
    move = await plan_link(intent, replace(stage.sites, groups=(GROUP,)), Hooks())
    assert move.plan.refusals == ()
    (result,) = await begin([move], intent, operation_id, "tests", {})
    assert result.verified, result.differences


async def test_a_link_whose_last_journal_is_damaged_is_moved_on_and_each_group_to_its_next_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No verb ran along it any more, whether it had ended or not, and nothing said what would help."""
    quick(monkeypatch)
    async with two_sites(tmp_path) as stage, mirrored(stage):
        await switch(stage, "one")
        await damage(stage.target, "one")
        monkeypatch.setattr("failover.journal.standing.UNHEARD_S", 0.0)  # its machine is gone for long
        with pytest.raises(JournalDamaged) as told:
            (await load_operations(stage.target))["one"].whole()
        assert "farshore switchover" in told.value.hint
        seen = await plan_link(Intent(Operation.SWITCHOVER, ("east-west",), "east", "west"), stage.sites, Hooks())
        assert seen.plan.snapshot.interrupted
        await switch(stage, "two")
        for at in PARTITIONS:
            assert await stage.next_record(stage.target, at) == await stage.next_record(stage.source, at)


async def test_no_operation_begins_where_retention_would_delete_its_beginning(tmp_path: Path) -> None:
    async with running_server(tmp_path / "west") as server:
        site = link_between(server.address, server.address, ["flights"]).target
        async with Cluster(site) as target:
            await create_topic(
                target, NewTopic(OPERATIONS_TOPIC, 1, 1, {"cleanup.policy": "delete"}), if_not_exists=False
            )
            with pytest.raises(ClientError, match=r"cleanup\.policy=delete") as refused:
                await claim(target, ("east", "west"), lambda _: None)
            assert "set cleanup.policy=compact" in refused.value.hint
