"""A broker of farshore's own source takes connections and says nothing: the source becomes standby all the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.limits import ClientLimits
from broker.client.site_role import site_standings
from broker.wire.site_role import SiteRole
from failover.freezing.choice import read_roles
from failover.limits import SOURCE_ROLE_S
from failover.observing import contact
from failover.observing.contact import SOURCE_LIMITS
from failover.planning.plan import plan_failover
from failover.running.link_run import LinkRun
from failover.running.result import OperationResult
from failover.running.steps import OperationStep
from tests.broker.cluster.test_three_replicas import NODES
from tests.broker.running import running_server
from tests.broker.running_cluster import RunningCluster, running_cluster
from tests.failover.observing.test_contact import MUTE_MS, Far, mute, served
from tests.failover.stage import PARTITIONS, RECORDS, TOPIC, Stage, commit_group, mirrored
from tests.mirror.harness import link_between, make_topic, some_records, write

LAST = NODES[-1]
IMPATIENT = replace(
    SOURCE_LIMITS,
    connect_timeout_ms=1_000,
    request_timeout_ms=1_000,
    delivery_timeout_ms=1_000,
    retry_timeout_ms=1_500,
    partition_patience_ms=1_000,
)
SLOW_S = 1.0
"""Of each answer: who is called anew, and asked, has answered after twice that."""


@dataclass
class Three:
    """A source of three brokers and what it is mirrored to."""

    stage: Stage
    east: RunningCluster

    @property
    def standing(self) -> dict[int, SiteRole]:
        return {node: self.east.broker(node).broker_configs.site.role for node in NODES}

    async def failed_over(self, way_to_last: str, limits: ClientLimits = SOURCE_LIMITS) -> OperationResult:
        """While the last broker is called by another way than before; `limits`: of all but the look at the roles."""
        stage, servers = self.stage, self.east.servers
        reached = replace(
            stage.link.source,
            bootstrap_servers=servers[NODES[0]].address,
            address_map={servers[LAST].address: way_to_last},
        )
        link = replace(stage.link, source=reached)
        async with Cluster(reached, client_id="farshore-failover", limits=SOURCE_LIMITS) as source:
            roles = await read_roles(link, source, stage.target, even_without_source=True)
        async with Cluster(reached, client_id="farshore-failover", limits=limits) as source:
            sites = replace(stage.sites, link=link, source=source)
            seen = await sites.look_past_source()
            plan = plan_failover(
                seen,
                allow_data_loss=True,
                even_if_source_answers=True,
                even_if_source_partly_there=True,
                freezing=replace(roles, freezes=True),
            )
            return await stage.run(plan, sites.as_found(seen))


@asynccontextmanager
async def three_brokers(folder: Path) -> AsyncIterator[Three]:
    async with running_cluster(folder / "east", *NODES) as east, running_server(folder / "west") as west:
        link = replace(link_between(east.servers[NODES[0]].address, west.address, [TOPIC]), groups=(".*",))
        async with (
            Cluster(link.source, client_id="farshore-test") as source,
            Cluster(link.target, client_id="farshore-test") as target,
        ):
            await make_topic(source, TOPIC, len(PARTITIONS))
            for number, at in enumerate(PARTITIONS):
                await write(source, at, some_records(number * 1000, RECORDS))
            await commit_group(source, 20, 30)
            stage = Stage(link, source, target)
            async with mirrored(stage):
                pass
            yield Three(stage, east)


async def test_a_failover_closes_the_brokers_that_answer_and_names_the_one_that_did_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its silence outlasted the look, so that the source counted as one without roles, and nobody was told anything."""
    monkeypatch.setattr(contact, "SOURCE_PROBE_MS", MUTE_MS)
    called: list[str] = []
    steps: list[int] = []
    real = LinkRun.take

    async def take(self: LinkRun, step: OperationStep) -> None:
        steps.append(len(called))
        await real(self, step)

    monkeypatch.setattr(LinkRun, "take", take)
    async with three_brokers(tmp_path) as there, mute(lambda: called.append("")) as silent:
        result = await there.failed_over(silent, IMPATIENT)
        standing = there.standing
    assert steps[0] == len(called) > 0, "it was waited for in the plan's look, and in no other: each took half a minute"
    assert set(standing.values()) == {SiteRole.STANDBY}, "only farshore it does not tell"
    assert (result.verified, result.is_source_open, result.has_findings) == (True, True, True)
    assert f"east is standby, and brokers {LAST} have not said that they go by it" in result.not_closed
    assert "farshore site role --site east" in result.not_closed


async def test_a_broker_that_is_slow_is_waited_for(tmp_path: Path) -> None:
    async with three_brokers(tmp_path) as there:
        slow = Far(there.east.servers[LAST].address, quiet_s=0.01, delay_s=SLOW_S)
        async with served(slow) as way:
            result = await there.failed_over(way)
        standing = there.standing
    assert set(standing.values()) == {SiteRole.STANDBY}
    assert (result.verified, result.is_source_open, result.not_closed) == (True, False, "")


async def test_a_look_does_not_wait_long_for_it_and_says_what_the_others_go_by(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, *NODES) as east, mute() as silent:
        first = east.servers[NODES[0]].address
        site = replace(link_between(first, first, [TOPIC]).source, address_map={east.servers[LAST].address: silent})
        async with Cluster(site, client_id="farshore-test") as cluster:
            async with asyncio.timeout(SOURCE_ROLE_S):
                told = await site_standings(cluster)
    assert {node for node, said in told.items() if isinstance(said, Exception)} == {LAST}
