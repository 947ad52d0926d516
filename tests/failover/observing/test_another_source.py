"""A source that was built anew, empty, at its old address: it answers, and knows nothing of what was mirrored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from broker.client.cluster import Cluster
from broker.client.site import Site
from broker.client.site_role import site_standing
from failover.drilling.drill import AuditNote
from failover.drilling.looks import drill_link
from failover.freezing.hooks import Hooks
from failover.losses.statements import Certainty
from failover.observing.contact import SiteFinding
from failover.planning.gates import RefusalReason
from failover.planning.intent import Intent
from failover.planning.links import plan_link
from failover.running.steps import Operation
from mirror.heartbeat import HeartbeatWatch
from mirror.offsets.source_ends import load_observation
from mirror.offsets.topic_pauses import pause_topics
from tests.broker.running import running_server
from tests.failover.losses.test_two_way_losses import until_held
from tests.failover.stage import PARTITIONS, RECORDS, TOPIC, Stage, mirrored, two_sites
from tests.mirror.harness import eventually, running, some_records, wait_for_records, write

LOST = 7


@asynccontextmanager
async def built_anew(folder: Path) -> AsyncIterator[Stage]:
    """The mirror was behind by LOST records, which it had seen; then the site was lost with its disks."""
    async with two_sites(folder) as stage:
        async with running(stage.link) as told:
            for at in PARTITIONS:
                await wait_for_records(stage.target, at, RECORDS)
            await eventually(lambda: _is_synced(stage), "the group at the target")
            await pause_topics(stage.link, stage.target, "pause", [TOPIC])
            await until_held(told)
            await write(stage.source, PARTITIONS[0], some_records(5_000, LOST))
            await eventually(lambda: _is_seen(stage), "a look at the source's end")
        async with running_server(folder / "anew") as anew, Cluster(Site("east", anew.address)) as source:
            stage.link, stage.source = replace(stage.link, source=source.site), source
            yield stage


async def _is_synced(stage: Stage) -> bool:
    return len(await stage.group_at(stage.target)) == len(PARTITIONS)


async def _is_seen(stage: Stage) -> bool:
    seen = (await load_observation(stage.link, stage.target)).ends.get(PARTITIONS[0])
    return seen is not None and seen.end == RECORDS + LOST


def intent(stage: Stage) -> Intent:
    named = Intent(Operation.FAILOVER, (stage.link.name,), "east", "west", even_if_source_answers=True)
    return replace(named, allow_data_loss=True)


async def test_a_loss_that_the_mirror_saw_is_not_stated_as_none_by_an_empty_source(tmp_path: Path) -> None:
    async with built_anew(tmp_path) as stage:
        named = replace(intent(stage), even_if_source_answers=False)
        plan = (await plan_link(named, stage.sites, Hooks())).plan
        assert [one.reason for one in plan.refusals] == [RefusalReason.SOURCE_REPLACED]
        assert plan.snapshot.source_finding is SiteFinding.REPLACED
        named = replace(intent(stage), allow_data_loss=False)
        plan = (await plan_link(named, stage.sites, Hooks())).plan
        assert [one.reason for one in plan.refusals] == [RefusalReason.DATA_LOSS_NOT_ALLOWED]
        assert (plan.loss.certainty, plan.loss.offsets) == (Certainty.AT_LEAST, LOST)


async def test_a_failover_away_from_an_empty_source_states_what_was_seen_and_leaves_that_cluster_alone(
    tmp_path: Path,
) -> None:
    async with built_anew(tmp_path) as stage:
        move = await plan_link(intent(stage), stage.sites, Hooks())
        assert move.sites.source is None
        result = await stage.run(move.plan, move.sites)
        assert result.verified
        assert (result.loss.certainty, result.loss.offsets) == (Certainty.AT_LEAST, LOST)
        standing = await site_standing(stage.source)
        assert standing is not None
        assert standing.epoch == 0, "nobody told it anything"


async def test_a_switchover_along_it_is_refused_before_anything_changes(tmp_path: Path) -> None:
    """Without a pause it would not wait for anything: what the source does not tell counts as mirrored."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        async with running_server(tmp_path / "anew") as anew, Cluster(Site("east", anew.address)) as source:
            stage.link, stage.source = replace(stage.link, source=source.site), source
            named = Intent(Operation.SWITCHOVER, (stage.link.name,), "east", "west")
            plan = (await plan_link(named, stage.sites, Hooks())).plan
            assert (RefusalReason.SOURCE_REPLACED, "east") in [(one.reason, one.subject) for one in plan.refusals]
            watch = HeartbeatWatch(stage.target.clock)
            drilled = await drill_link(stage.link, watch, AuditNote(), stage.sites.now_ms)
            assert ("source_replaced", "east") in [(one.kind, one.subject) for one in drilled.findings]
