"""Groups of which a transaction at the target commits offsets while an operation moves them there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiokafka.structs import TopicPartition as Place

from broker.client.model import CommittedOffset
from failover.planning.plan import plan_failover
from failover.running.moving import UnfencedCommits
from failover.running.verification import DifferenceKind
from mirror.api import Due, OffsetsHeld
from tests.failover.failback.stage import transaction
from tests.failover.stage import GROUP, PARTITIONS, TOPIC, commit_group, mirrored, two_sites
from tests.mirror.harness import eventually, make_topic

READ = 47
HELD = {Place(TOPIC, 0): READ}


async def test_a_group_is_moved_when_the_transaction_has_ended(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        await commit_group(stage.source, 44, 45)
        async with transaction(stage.link.target.bootstrap_servers) as producer:
            await producer.send_offsets_to_transaction(HELD, GROUP)
            plan = plan_failover(await stage.sites.look(), allow_data_loss=True, even_if_source_answers=True)
            moving = asyncio.create_task(stage.run(plan, stage.sites))

            async def is_promoted() -> bool:
                return (await stage.sites.look_past_source()).link_state == "promoted"

            await eventually(is_promoted, "the promotion, behind which groups are moved")
            await producer.abort_transaction()
            result = await moving
        assert result.verified, result.differences
        for at in PARTITIONS:
            assert await stage.next_record(stage.target, at) == await stage.next_record(stage.source, at) != ()


async def test_what_a_transaction_commits_that_does_not_end_counts_in_the_end_and_the_move_is_not_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was verified, and the application's commit, which came to its end behind that, was nothing."""
    monkeypatch.setattr("failover.running.moving.HELD_S", 0.3)
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        await commit_group(stage.source, 44, 45)
        async with transaction(stage.link.target.bootstrap_servers) as producer:
            await producer.send_offsets_to_transaction(HELD, GROUP)
            plan = plan_failover(await stage.sites.look(), allow_data_loss=True, even_if_source_answers=True)
            result = await stage.run(plan, stage.sites)
            assert not result.verified
            assert {difference.kind for difference in result.differences} == {DifferenceKind.GROUP_OFFSET}
            await producer.commit_transaction()

        async def counts() -> bool:
            return (await stage.group_at(stage.target))[PARTITIONS[0]] == READ

        await eventually(counts, "the application's commit to count")


async def test_plain_commits_leave_out_what_a_transaction_has(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        await make_topic(stage.target, TOPIC, len(PARTITIONS))
        async with transaction(stage.link.target.bootstrap_servers) as producer:
            await producer.send_offsets_to_transaction(HELD, GROUP)
            offsets = {PARTITIONS[0]: CommittedOffset(4)}
            due = [Due(group, offsets, {}) for group in (GROUP, "free")]

            async def nobody_else() -> None:
                pass

            failures = (await UnfencedCommits(stage.target).commit(due, nobody_else)).failures
            assert failures.keys() == {GROUP}
            assert isinstance(failures[GROUP], OffsetsHeld)
            await producer.commit_transaction()

        async def counts() -> bool:
            return (await stage.group_at(stage.target)).get(PARTITIONS[0]) == READ

        await eventually(counts, "the application's commit to count")
