"""A move of one group by name says which others it leaves: the link is fenced for them, too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from broker.client.groups import commit_offsets
from broker.client.model import CommittedOffset
from broker.wire.vocabulary import TopicPartition
from failover.freezing.hooks import Hooks
from failover.planning.intent import Intent
from failover.planning.links import plan_link
from failover.planning.not_named import groups_not_named
from failover.running.groups_stand import GroupsStand
from failover.running.result import OperationResult
from failover.running.steps import Operation
from failover.running.taking_up import begin
from tests.failover.observing.test_pending_offsets import pending_at_source
from tests.failover.stage import GROUP, PARTITIONS, Stage, mirrored, two_sites
from tests.mirror.harness import make_topic

SECOND, THIRD, ELSEWHERE = "second", "third", "reads another topic"


async def moved(stage: Stage, group: str, told: list[GroupsStand]) -> OperationResult:
    sites = replace(stage.sites, groups=(group,))
    intent = Intent(Operation.SWITCHOVER, (stage.link.name,), stage.link.source.name, stage.link.target.name, (group,))
    move = await plan_link(intent, sites, Hooks())
    assert move.plan.refusals == ()
    (result,) = await begin([move], intent, f"operation-{group}", "tests", {}, told.append)
    assert (result.verified, result.not_named) == (True, move.plan.not_named)
    return result


async def test_whom_a_wave_leaves_is_named_in_its_plan_its_word_and_its_result(tmp_path: Path) -> None:
    told: list[GroupsStand] = []
    async with two_sites(tmp_path) as stage:
        await make_topic(stage.source, "another", 1)
        for group, at in ((SECOND, PARTITIONS[0]), (THIRD, PARTITIONS[1]), (ELSEWHERE, TopicPartition("another", 0))):
            await commit_offsets(stage.source, group, {at: CommittedOffset(3)})
        async with mirrored(stage):
            assert (await moved(stage, GROUP, told)).not_named == (SECOND, THIRD)
        assert (await moved(stage, SECOND, told)).not_named == (THIRD,)
        assert (await moved(stage, THIRD, told)).not_named == ()
    assert [stand.left_groups for stand in told] == [(SECOND, THIRD), (THIRD,), ()]


async def test_who_reads_its_first_records_in_a_transaction_is_named(tmp_path: Path) -> None:
    """Its applications were told to start at the target."""
    async with two_sites(tmp_path) as stage:
        await make_topic(stage.source, "another", 1)
        async with pending_at_source(stage, SECOND), pending_at_source(stage, ELSEWHERE, "another"):
            assert await groups_not_named(replace(stage.sites, groups=(GROUP,))) == (SECOND,)


async def test_of_a_source_that_is_gone_the_links_state_tells_them(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage, mirrored(stage):
        asked = replace(stage.without_source, groups=("another",))
        assert await groups_not_named(asked) == (GROUP,)
        assert await groups_not_named(replace(asked, groups=())) == ()
