"""A target partition that the promotion's fence does not reach: a mirror that hangs could write there after all."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.site import Site
from broker.wire.errors import ErrorCode
from failover.planning.plan import plan_failover
from failover.running.verification import DifferenceKind, VerificationDifference
from mirror.link import Link
from tests.broker.faults import Faults, injected
from tests.broker.running import running_server
from tests.failover.stage import PARTITIONS, TOPIC, Stage
from tests.mirror.harness import make_topic, running, some_records, wait_for_records, write


async def test_a_partition_that_takes_no_marker_is_not_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    east, west = Faults(), Faults()
    async with running_server(tmp_path / "east") as one, running_server(tmp_path / "west") as two:
        link = Link("east-west", Site("east", one.address), Site("west", two.address), (TOPIC,))
        with injected(monkeypatch, {one.broker: east, two.broker: west}):
            async with (
                Cluster(link.source, client_id="test") as source,
                Cluster(link.target, client_id="test") as target,
            ):
                for cluster in (source, target):
                    await make_topic(cluster, TOPIC, len(PARTITIONS), min_insync_replicas="2")
                async with running(link):
                    for where in PARTITIONS:
                        await write(source, where, some_records(0, 5))
                        await wait_for_records(target, where, 5)
                stage = Stage(link, source, target)
                plan = plan_failover(
                    await stage.without_source.look(), allow_data_loss=True, even_if_source_answers=False
                )
                west.short_isr.add(PARTITIONS[1])
                result = await stage.run(plan, stage.without_source)
                entries = (await stage.log(result.operation_id)).entries
    assert result.differences == (VerificationDifference(DifferenceKind.NOT_FENCED, TOPIC, 1, None, None),)
    assert not result.verified
    (told,) = [entry for entry in entries if entry.event == "not_fenced"]
    assert "NOT_ENOUGH_REPLICAS" in told.detail[f"east-west {PARTITIONS[1]}"]
    assert len(told.detail) == 1


async def test_groups_that_cannot_be_fenced_hold_up_neither_records_nor_a_failover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their transactional id may lack a right, or a coordinator, that the link's own has. The failover says so."""
    east, west = Faults(), Faults()
    async with running_server(tmp_path / "east") as one, running_server(tmp_path / "west") as two:
        link = Link("east-west", Site("east", one.address), Site("west", two.address), (TOPIC,), groups=(".*",))
        west.transactional_ids[link.groups_transactional_id] = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        with injected(monkeypatch, {one.broker: east, two.broker: west}):
            async with (
                Cluster(link.source, client_id="test") as source,
                Cluster(link.target, client_id="test") as target,
            ):
                await make_topic(source, TOPIC, len(PARTITIONS))
                async with running(link):
                    for where in PARTITIONS:
                        await write(source, where, some_records(0, 5))
                        await wait_for_records(target, where, 5)
                stage = Stage(link, source, target)
                plan = plan_failover(
                    await stage.without_source.look(), allow_data_loss=True, even_if_source_answers=False
                )
                result = await stage.run(plan, stage.without_source)
                entries = (await stage.log(result.operation_id)).entries
    subject = "groups of link east-west"
    assert result.differences == (VerificationDifference(DifferenceKind.GROUPS_NOT_FENCED, subject, -1, None, None),)
    (told,) = [entry for entry in entries if entry.event == "not_fenced"]
    assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in told.detail["east-west groups"]
    assert len(told.detail) == 1
