"""A switchover whose source just loses a broker: it is planned when the others have taken over, or refused in words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from deploy.cli.gate_words import refusal_of
from deploy.cli.refusals import refusals_of
from failover.freezing.hooks import Hooks
from failover.limits import PLANNED_AGAIN_S
from failover.observing import contact
from failover.observing.contact import SiteFinding
from failover.observing.sites import Sites
from failover.planning import settling
from failover.planning.gates import GateRefusal, RefusalReason
from failover.planning.intent import Intent
from failover.planning.links import plan_or_refuse
from failover.planning.settling import SiteUnanswered
from failover.running.steps import Operation
from tests.broker.faults import Faults, injected
from tests.failover.freezing.test_silent_roles import IMPATIENT, LAST, Three, three_brokers
from tests.failover.observing.test_contact import MUTE_MS, Far, mute, served
from tests.failover.observing.test_leaderless_source import GONE, is_held
from tests.failover.observing.test_leaderless_source import IMPATIENT as AT_ONCE
from tests.failover.stage import PARTITIONS, mirrored, now_ms, two_sites
from tests.mirror.harness import eventually

INTENT = Intent(Operation.SWITCHOVER, ("east-west",), "east", "west")


class Silent(Far):
    """Connections are taken, and nothing is ever said, until it is `back`."""

    back = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.back:
            await super().serve(reader, writer)
            return
        await reader.read()
        writer.close()


class AskedAgain(Cluster):
    """A broker is back when those who were set aside for their silence are asked again."""

    way: Silent | None = None

    def set_aside(self, addresses: Iterable[str]) -> None:
        before = self._aside
        super().set_aside(addresses)
        if before and not self._aside and self.way is not None:
            self.way.back = True


@asynccontextmanager
async def looking(there: Three, way_to_last: str) -> AsyncIterator[tuple[Sites, AskedAgain]]:
    """The sites, with a broker of the source that is called by this way, though its cluster names it by its own."""
    first, last = (there.east.servers[node].address for node in (min(there.east.servers), LAST))
    site = replace(there.stage.link.source, bootstrap_servers=first, address_map={last: way_to_last})
    link = replace(there.stage.link, source=site)
    async with AskedAgain(site, client_id="farshore-test", limits=IMPATIENT) as source:
        yield replace(there.stage.sites, link=link, source=source), source


async def test_a_source_that_has_not_noticed_that_a_broker_is_gone_is_asked_until_it_tells_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was refused, or ended with the broker's own error, 18 s before the cluster would have gone on without it."""
    monkeypatch.setattr(contact, "SOURCE_PROBE_MS", MUTE_MS)
    async with three_brokers(tmp_path) as there:
        way = Silent(there.east.servers[LAST].address, quiet_s=0.01)
        async with served(way) as last, looking(there, last) as (sites, source):
            source.way = way
            move = await plan_or_refuse(INTENT, sites, Hooks())
    assert way.back
    assert (move.plan.snapshot.source_finding, move.plan.refusals) == (SiteFinding.ALIVE, ())


async def test_one_that_is_named_for_good_is_refused_with_the_broker_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contact, "SOURCE_PROBE_MS", MUTE_MS)
    monkeypatch.setattr(settling, "PLANNED_AGAIN_S", 0.0)
    async with three_brokers(tmp_path) as there, mute() as silent, looking(there, silent) as (sites, _):
        plan = (await plan_or_refuse(INTENT, sites, Hooks())).plan
    assert plan.refusals[0] == GateRefusal(RefusalReason.SOURCE_PARTLY_THERE, "east", silent)
    refused = refusal_of(plan)
    assert refused is not None
    said = "the source site east is there in part: it answers, but not everything that was asked"
    assert str(refused).startswith(f"{said}: {silent} gave no answer")
    assert refused.hint.startswith("nothing was changed; bring back what does not answer")


async def test_what_answers_behind_a_plan_that_failed_is_planned_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of before was told of a source that answered by then."""
    looks = 0

    def now() -> int:
        nonlocal looks
        looks += 1
        if looks > 1:
            east.heal()
        return now_ms()

    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        east = Faults()
        east.partitions[ApiKey.LIST_OFFSETS, PARTITIONS[1]] = ErrorCode.KAFKA_STORAGE_ERROR
        with injected(monkeypatch, {stage.brokers[0]: east}):
            async with Cluster(stage.link.source, client_id="farshore-test", limits=AT_ONCE) as source:
                sites = replace(stage.sites, source=source, now_ms=now)
                move = await plan_or_refuse(replace(INTENT, links=(stage.link.name,)), sites, Hooks())
    assert looks > 1
    assert (move.plan.snapshot.source_finding, move.plan.refusals) == (SiteFinding.ALIVE, ())


async def test_the_worker_has_the_time_to_compare_the_logs_of_new_leaders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seconds behind the election the plan was refused for what the worker still held."""
    looks = 0

    def now() -> int:
        nonlocal looks
        looks += 1
        if looks > 1:
            east.heal()
        return now_ms()

    async with two_sites(tmp_path) as stage:
        east = Faults()
        with injected(monkeypatch, {stage.brokers[0]: east}):
            async with mirrored(stage):
                east.leaderless.add(GONE)
                await eventually(lambda: is_held(stage), "a hold")
                async with Cluster(stage.link.source, client_id="farshore-test", limits=AT_ONCE) as source:
                    sites = replace(stage.sites, source=source, now_ms=now)
                    move = await plan_or_refuse(replace(INTENT, links=(stage.link.name,)), sites, Hooks())
    assert (move.plan.snapshot.source_finding, move.plan.refusals) == (SiteFinding.ALIVE, ())


async def test_a_hold_of_a_worker_that_is_gone_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody takes it away: each command waited half a minute for that, and all other links of it."""
    async with two_sites(tmp_path) as stage:
        east = Faults()
        with injected(monkeypatch, {stage.brokers[0]: east}):
            async with mirrored(stage):
                east.leaderless.add(GONE)
                await eventually(lambda: is_held(stage), "a hold")
            east.heal()
            sites = replace(stage.sites, now_ms=lambda: now_ms() + 60_000)
            began_s = asyncio.get_running_loop().time()
            move = await plan_or_refuse(replace(INTENT, links=(stage.link.name,)), sites, Hooks())
    assert asyncio.get_running_loop().time() - began_s < PLANNED_AGAIN_S / 2
    assert RefusalReason.OFFSETS_IN_DOUBT in {refusal.reason for refusal in move.plan.refusals}


async def test_a_part_of_the_target_that_does_not_answer_is_a_refusal_that_says_that_nothing_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was the error of one of its partitions, with exit code 1."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        west = Faults()
        west.partitions[ApiKey.LIST_OFFSETS, PARTITIONS[1]] = ErrorCode.KAFKA_STORAGE_ERROR
        with injected(monkeypatch, {stage.brokers[1]: west}):
            async with Cluster(stage.link.target, client_id="farshore-test", limits=AT_ONCE) as target:
                sites = replace(stage.sites, target=target)
                with pytest.raises(SiteUnanswered, match=r"nothing was changed$") as refused:
                    await plan_or_refuse(replace(INTENT, links=(stage.link.name,)), sites, Hooks())
    assert refusals_of(refused.value) == [GateRefusal(RefusalReason.SITE_UNANSWERED, "west")]
    assert "`farshore status --all`" in refused.value.hint
