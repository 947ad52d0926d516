"""A link that is promoted by an operation of which its target's journal has nothing: how far it came nobody knows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from broker.client.topics import delete_topics
from deploy.cli.gate_words import refusal_of
from failover.freezing.hooks import Hooks
from failover.journal.topic import OPERATIONS_TOPIC
from failover.journal.values import Event
from failover.planning.gates import GateRefusal, RefusalReason
from failover.planning.intent import Intent
from failover.planning.links import plan_link
from failover.planning.plan import OperationPlan, plan_failover, plan_switchover
from failover.running.steps import Operation, OperationStep
from mirror.offsets.operations import promote_link
from tests.failover.stage import GROUP, RARE, Stage, commit_group, mirrored, opening, two_sites


async def planned(stage: Stage, *groups: str) -> OperationPlan:
    intent = Intent(Operation.SWITCHOVER, (stage.link.name,), "east", "west", groups=groups)
    return (await plan_link(intent, replace(stage.sites, groups=groups), Hooks())).plan


async def test_where_the_journal_was_lost_between_fence_and_groups_nothing_is_said_to_be_moved(tmp_path: Path) -> None:
    """It was said to be moved already, by an operation that `operation show` did not find; its groups stood at the
    source.
    """
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage, RARE):
            pass
        await commit_group(stage.source, 41, 42)
        cut = await stage.journal()
        await cut.record(Event.PLANNED, opening(plan_switchover(await stage.sites.look())).detail)
        await cut.record(Event.STARTED, {"step": OperationStep.FENCE.value})
        await promote_link(stage.link, stage.target, cut.operation_id)
        assert (await planned(stage)).refusals == (), "the journal has it, and it is gone on with"
        await delete_topics(stage.target, [OPERATIONS_TOPIC])

        plan = await planned(stage)
        assert plan.refusals == (GateRefusal(RefusalReason.MOVE_UNTOLD, stage.link.name, cut.operation_id),)
        refused = refusal_of(plan)
        assert refused is not None
        assert f"promoted by {cut.operation_id}, and the journal at west has nothing of" in str(refused)
        assert "whether its groups were moved is not known" in str(refused)
        assert "operation show" not in refused.hint
        assert "--group GROUP" in refused.hint

        named = await planned(stage, GROUP)
        assert named.refusals == ()
        result = await stage.run(named, replace(stage.sites, groups=(GROUP,)))
        assert result.verified, result.differences
        assert (await planned(stage)).refusals == (
            GateRefusal(RefusalReason.LINK_NOT_RUNNING, stage.link.name, result.operation_id),
        ), "what this one did the journal says"


async def test_a_failover_of_such_a_link_is_told_the_same(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage, RARE):
            pass
        await promote_link(stage.link, stage.target, "failover-1")
        intent = Intent(Operation.FAILOVER, (stage.link.name,), "east", "west", allow_data_loss=True)
        plan = (await plan_link(intent, stage.without_source, Hooks())).plan
        assert plan.refusals == (GateRefusal(RefusalReason.MOVE_UNTOLD, stage.link.name, "failover-1"),)
        told = replace(plan.snapshot, is_untold=False)
        lost = plan_failover(told, allow_data_loss=True, even_if_source_answers=False)
        assert lost.refusals == (GateRefusal(RefusalReason.LINK_NOT_RUNNING, stage.link.name, "failover-1"),)
