"""Offsets that a transaction at the source has committed, and that do not count before it ends (KIP-447)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.structs import TopicPartition as Place

from broker.client.groups import commit_offsets, stable_offsets_of_groups
from broker.client.model import CommittedOffset
from broker.client.site import Site
from failover.errors import NotDrained, OffsetsPending
from failover.planning.plan import plan_failover, plan_switchover
from failover.running.late_commits import LateCommit, late_commits
from tests.failover.stage import GROUP, PARTITIONS, TOPIC, Stage, mirrored, two_sites
from tests.mirror.harness import eventually, make_topic

PENDING = 25


@asynccontextmanager
async def pending_at_source(stage: Stage, group: str = GROUP, topic: str = TOPIC) -> AsyncIterator[AIOKafkaProducer]:
    """A transaction that has committed an offset for the group, and wrote nothing; it is the caller's to end."""
    async with pending_at(stage.link.source, group, topic) as producer:
        yield producer


@asynccontextmanager
async def pending_at(site: Site, group: str, topic: str = TOPIC) -> AsyncIterator[AIOKafkaProducer]:
    """The same, at that site."""
    producer = AIOKafkaProducer(bootstrap_servers=site.bootstrap_servers, transactional_id=group)
    await producer.start()
    try:
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({Place(topic, 0): PENDING}, group)
        yield producer
    finally:
        await producer.stop()


async def test_what_is_pending_is_told_with_what_counts_until_then(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        async with pending_at_source(stage), pending_at_source(stage, "first"):
            found = await stable_offsets_of_groups(stage.source, [GROUP, "first", "none"])
        offsets = {name: dict(each.offsets) for name, each in found.items() if not isinstance(each, Exception)}
    assert {at: committed.offset for at, committed in offsets[GROUP].items()} == dict(
        zip(PARTITIONS, (20, 30), strict=True)
    )
    assert (offsets["first"], offsets["none"]) == ({}, {})
    pending = {name: each.pending for name, each in found.items() if not isinstance(each, Exception)}
    assert pending == {GROUP: {PARTITIONS[0]}, "first": {PARTITIONS[0]}, "none": frozenset()}


@pytest.mark.parametrize("commits", [True, False])
async def test_a_switchover_waits_until_the_transaction_ends(tmp_path: Path, commits: bool) -> None:
    """It went on with what counted until then, and ended with 0."""
    async with two_sites(tmp_path) as stage, mirrored(stage), pending_at_source(stage) as producer:
        plan = plan_switchover(await stage.sites.look())
        assert (plan.refusals, plan.snapshot.pending_groups) == ((), (GROUP,))
        moving = asyncio.create_task(stage.run(plan, stage.sites))
        done, _ = await asyncio.wait([moving], timeout=4.0)
        assert not done
        await (producer.commit_transaction() if commits else producer.abort_transaction())
        result = await moving
        assert (result.verified, result.has_findings) == (True, False)
        assert (await stage.group_at(stage.source))[PARTITIONS[0]] == (PENDING if commits else 20)
        for at in PARTITIONS:
            assert await stage.next_record(stage.target, at) == await stage.next_record(stage.source, at) != ()


async def test_a_transaction_that_does_not_end_refuses_the_switchover_and_its_group_is_named(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage, mirrored(stage), pending_at_source(stage):
        before = await stage.group_at(stage.target)
        with pytest.raises(OffsetsPending, match=rf"{GROUP}.*nothing was changed") as refused:
            await stage.run(plan_switchover(await stage.sites.look()), stage.sites, drain_timeout_s=4.0)
        assert isinstance(refused.value, NotDrained)
        assert refused.value.groups == (GROUP,)
        assert ((await stage.sites.look()).link_state, await stage.group_at(stage.target)) == ("running", before)


@pytest.mark.parametrize("as_kafka", [False, True])
async def test_a_group_whose_first_offset_is_pending_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_kafka: bool
) -> None:
    """Kafka, asked for all offsets of a group, tells no partition that has none so far: the plan did not name it."""
    if as_kafka:
        monkeypatch.setattr("broker.handlers.offset_fetch._all", lambda offsets: sorted(offsets.committed))
    async with two_sites(tmp_path) as stage, mirrored(stage), pending_at_source(stage, "first") as producer:
        plan = plan_switchover(await stage.sites.look())
        assert plan.snapshot.pending_groups == ("first",)
        assert (await replace(stage.sites, groups=(GROUP,)).look()).pending_groups == ()
        with pytest.raises(OffsetsPending, match="first"):
            await stage.run(plan, stage.sites, drain_timeout_s=5.0)
        await producer.commit_transaction()
        await eventually(lambda: _has_settled(stage, "first"), "the transaction's end")
        result = await stage.run(plan_switchover(await stage.sites.look()), stage.sites)
        assert (result.verified, result.has_findings) == (True, False)
        assert PENDING in [move.source_offset for move in result.moves if move.group == "first"]


@pytest.mark.parametrize("as_kafka", [False, True])
async def test_a_wave_behind_the_link_waits_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_kafka: bool
) -> None:
    if as_kafka:
        monkeypatch.setattr("broker.handlers.offset_fetch._all", lambda offsets: sorted(offsets.committed))
    async with two_sites(tmp_path) as stage, mirrored(stage):
        alone = replace(stage.sites, groups=(GROUP,))
        assert (await stage.run(plan_switchover(await alone.look()), alone)).verified
        await commit_offsets(stage.source, "second", {PARTITIONS[1]: CommittedOffset(30)})
        second = replace(stage.sites, groups=("second",))
        async with pending_at_source(stage, "second"):
            with pytest.raises(OffsetsPending, match="second"):
                await stage.run(plan_switchover(await second.look()), second, drain_timeout_s=1.0)


async def _has_settled(stage: Stage, group: str) -> bool:
    found = (await stable_offsets_of_groups(stage.source, [group]))[group]
    return not isinstance(found, Exception) and not found.pending


async def test_what_is_pending_in_topics_that_are_not_mirrored_holds_up_nobody(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage, mirrored(stage):
        await make_topic(stage.source, "elsewhere", 1)
        async with pending_at_source(stage, topic="elsewhere"):
            assert (await stage.sites.look()).pending_groups == ()


async def test_a_failover_of_a_source_that_lives_tells_it(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        async with pending_at_source(stage):
            seen = await stage.sites.look_past_source()
            plan = plan_failover(seen, allow_data_loss=True, even_if_source_answers=True)
            result = await stage.run(plan, stage.sites)
    assert plan.snapshot.pending_groups == (GROUP,)
    assert (result.verified, result.has_findings) == (True, True)
    assert result.late_commits == (LateCommit(GROUP, TOPIC, 0, 20, None),)


async def test_what_is_pending_behind_the_move_is_a_late_commit(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        moves = plan_switchover(await stage.sites.look()).moves
        async with pending_at_source(stage), pending_at_source(stage, "first"):
            found = await late_commits(stage.link, (stage.source, stage.target), (), moves, ())
            assert found == (LateCommit(GROUP, TOPIC, 0, 20, None), LateCommit("first", TOPIC, 0, None, None))
