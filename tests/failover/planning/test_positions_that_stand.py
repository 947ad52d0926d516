"""What a move that ends verified must not leave unsaid: records that a group would miss, and groups that it forgets."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from broker.base.errors import FarshoreError
from broker.broker import Broker
from broker.client.groups import commit_offsets, delete_groups
from broker.client.model import CommittedOffset
from broker.client.offsets import log_start_offsets
from broker.client.topics import delete_records
from broker.handlers.handler import Handler, RequestContext
from broker.wire.api import ApiKey
from broker.wire.coordinator_keys import OFFSETS_TOPIC
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition
from failover.observing.sites import Sites
from failover.planning.plan import OperationPlan, plan_failover, plan_switchover
from failover.running.result import OperationResult
from tests.broker.faults import Faults, injected
from tests.failover.stage import GROUP, PARTITIONS, RARE, Stage, commit_group, mirrored, two_sites

BUYERS = "buyers"


def _unplanned(plan: OperationPlan) -> bool:
    """Whether it says that everything is as it should be: nothing is refused, read again or skipped."""
    told = [(total.read_again_records, total.skipped_records) for total in plan.group_totals]
    return not plan.refusals and all(counts == (0, 0) for counts in told)


def _ends_with_0(result: OperationResult) -> bool:
    return result.verified and not result.has_findings


async def _carried(stage: Stage, plan: OperationPlan, sites: Sites) -> OperationResult | None:
    """The result; None: refused."""
    if plan.refusals:
        return None
    try:
        return await stage.run(plan, sites)
    except FarshoreError:
        return None


async def test_a_group_does_not_stand_before_what_the_target_still_has(tmp_path: Path) -> None:
    """The target's retention took what the source has still, and the group has not read: its consumer finds its offset
    out of range, and begins at the log's end (`auto.offset.reset=latest`), or is told to have nothing to skip.
    """
    async with two_sites(tmp_path) as stage, mirrored(stage):
        await delete_records(stage.target, {PARTITIONS[0]: 40})
        plan = plan_switchover(await stage.sites.look())
        result = await _carried(stage, plan, stage.sites)
        if result is None or not _ends_with_0(result):
            return
        starts = await log_start_offsets(stage.target, PARTITIONS)
        stands = await stage.group_at(stage.target)
        before = {at: (stands[at], starts[at]) for at in PARTITIONS if stands[at] < starts[at]}
        assert not (before and _unplanned(plan)), f"verified, 0 to skip; offset, and where the log begins: {before}"


async def test_a_group_that_the_target_lost_is_not_forgotten_with_a_dead_source(tmp_path: Path) -> None:
    """Its offsets expired there, or somebody deleted it, when no worker lived any more: the link's state knows it, and
    where it stood.
    """
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        before = await stage.group_at(stage.target)
        assert await delete_groups(stage.target, [GROUP]) == {}
        plan = plan_failover(
            await stage.without_source.look_past_source(), allow_data_loss=True, even_if_source_answers=False
        )
        named = {group.group for group in plan.snapshot.groups} | {refusal.subject for refusal in plan.refusals}
        result = await _carried(stage, plan, stage.without_source)
        is_0 = result is not None and _ends_with_0(result)
        assert GROUP in named, f"verified, exit code 0: {is_0}"
        assert not is_0 or await stage.group_at(stage.target) == before


@dataclass
class Unlisting(Faults):
    """Brokers list the groups that they coordinate: without those whose coordinator is away, and without an error."""

    away: set[str] = field(default_factory=set)

    def coordinator_goes(self, group: str) -> None:
        self.away.add(group)
        apis = (ApiKey.DESCRIBE_GROUPS, ApiKey.OFFSET_FETCH)
        self.groups |= {(api, group): ErrorCode.COORDINATOR_NOT_AVAILABLE for api in apis}

    def offsets_topic_loses_leader(self) -> None:
        """As metadata has it."""
        self.leaderless.add(TopicPartition(OFFSETS_TOPIC, 0))

    async def answer(self, handler: Handler, served: Broker, request: Any, context: RequestContext) -> Any:
        response = await super().answer(handler, served, request, context)
        if handler.api is ApiKey.LIST_GROUPS:
            response.groups = [group for group in response.groups if group.group_id not in self.away]
        return response


async def test_a_switchover_does_not_leave_a_group_out_whose_coordinator_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition of the source's offsets topic has no leader for a while; the group had not come to the target yet."""
    east = Unlisting()
    async with two_sites(tmp_path) as stage:
        with injected(monkeypatch, {stage.brokers[0]: east}):
            async with mirrored(stage, RARE):
                await commit_offsets(stage.source, BUYERS, {PARTITIONS[0]: CommittedOffset(7)})
                assert BUYERS in {group.group for group in (await stage.sites.look()).groups}
                east.coordinator_goes(BUYERS)
                east.offsets_topic_loses_leader()
                try:
                    plan = plan_switchover(await stage.sites.look())
                except FarshoreError:
                    return  # refused
                result = await _carried(stage, plan, stage.sites)
    assert result is None or not _ends_with_0(result), f"verified without {BUYERS}: {[m.group for m in result.moves]}"


async def test_a_group_does_not_go_back_unasked_since_the_plan(tmp_path: Path) -> None:
    """The plan reads nothing again. Then its offsets at the source are gone (deleted, expired), and it stays where the
    mirror had brought it long before.
    """
    async with two_sites(tmp_path) as stage, mirrored(stage, RARE):
        await commit_group(stage.source, 40, 45)
        plan = plan_switchover(await stage.sites.look())
        goes_to = {TopicPartition(move.topic, move.partition): move.target_offset for move in plan.moves}
        assert _unplanned(plan)
        assert await delete_groups(stage.source, [GROUP]) == {}
        result = await _carried(stage, plan, stage.sites)
        stands = await stage.group_at(stage.target)
        is_0 = result is not None and _ends_with_0(result)
        assert not is_0 or stands == goes_to, f"verified, exit code 0; planned {goes_to}, stands {stands}"
