"""A switchover whose source is there in part: a refusal that says what to do, and no error of one of its partitions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.errors import KafkaError
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition
from deploy.cli.failover_tables import show_plan
from deploy.cli.gate_words import refusal_of
from failover.freezing.hooks import Hooks
from failover.losses.stated_losses import counted
from failover.observing.contact import SiteFinding
from failover.planning.gates import GateRefusal, RefusalReason
from failover.planning.intent import Intent
from failover.planning.links import plan_links, plan_or_refuse
from failover.planning.site_plan import SourceNames, plan_site
from failover.running.steps import Operation
from tests.broker.faults import Faults, injected
from tests.failover.observing.test_leaderless_source import IMPATIENT, half_gone
from tests.failover.stage import PARTITIONS, mirrored, two_sites
from tests.mirror.harness import make_topic, running, some_records, wait_for_records, write

INTENT = Intent(Operation.SWITCHOVER, ("east-west",), "east", "west")


@pytest.mark.parametrize("has_leader", [False, True])
async def test_a_switchover_of_a_partly_lost_source_is_refused_and_names_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], has_leader: bool
) -> None:
    """It was an error of the first partition that did not answer, with the hint to read its broker's log."""
    async with half_gone(tmp_path, monkeypatch, has_leader=has_leader) as stage:
        move = await plan_or_refuse(replace(INTENT, links=(stage.link.name,)), stage.sites, Hooks())
        plan = (await counted(move, always=True)).plan
    assert plan.snapshot.source_finding is SiteFinding.PARTLY_THERE
    assert plan.refusals[0] == GateRefusal(RefusalReason.SOURCE_PARTLY_THERE, "east")
    refused = refusal_of(plan)
    assert refused is not None
    assert "the source site east is there in part" in str(refused)
    assert "`farshore failover` with --even-if-source-partly-there" in refused.hint
    show_plan(plan)
    told = " ".join(capsys.readouterr().err.split())
    assert "nothing is lost" not in told
    assert "as east does not answer wholly. Missing at west: " in told


async def test_of_a_site_the_links_go_whose_partitions_all_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that nobody leads keeps its own link."""
    async with half_gone(tmp_path, monkeypatch, has_leader=False) as stage:
        whole = replace(stage.link, name="whole", topics=("whole",), groups=())
        await make_topic(stage.source, "whole")
        async with running(whole):
            await write(stage.source, at := TopicPartition("whole", 0), some_records(0, 2))
            await wait_for_records(stage.target, at, 2)
            intent = replace(INTENT, links=(stage.link.name, whole.name), is_site=True)
            moves, failed = await plan_links(intent, [stage.sites, replace(stage.sites, link=whole)], Hooks())
    plan = plan_site(intent, moves, failed, [stage.link, whole], SourceNames())
    assert (plan.moving, plan.refused, plan.refusals) == (("whole",), (stage.link.name,), ())


async def test_what_the_source_refuses_to_tell_is_the_error_that_it_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there: who takes it for lost would lose records for the want of a right."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        east = Faults()
        east.partitions[ApiKey.LIST_OFFSETS, PARTITIONS[1]] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        with injected(monkeypatch, {stage.brokers[0]: east}):
            async with Cluster(stage.link.source, client_id="farshore-test", limits=IMPATIENT) as source:
                sites = replace(stage.sites, source=source)
                with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
                    await plan_or_refuse(replace(INTENT, links=(stage.link.name,)), sites, Hooks())


async def test_a_topic_that_the_source_has_and_does_not_describe_is_no_topic_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link selects it, and has not mirrored it yet: the switchover went without it."""
    async with two_sites(tmp_path) as stage:
        stage.link = replace(stage.link, topics=("flights.*",))
        async with mirrored(stage):
            pass
        await make_topic(stage.source, "flights-late")
        await make_topic(stage.source, "other")
        east = Faults()
        east.topics[ApiKey.METADATA, "other"] = ErrorCode.LEADER_NOT_AVAILABLE
        with injected(monkeypatch, {stage.brokers[0]: east}):
            async with Cluster(stage.link.source, client_id="farshore-test", limits=IMPATIENT) as source:
                asked = replace(INTENT, links=(stage.link.name,)), replace(stage.sites, source=source), Hooks()
                plan = (await plan_or_refuse(*asked)).plan
                assert plan.refusals == (), "it is none of the link's"
                east.topics[ApiKey.METADATA, "flights-late"] = ErrorCode.LEADER_NOT_AVAILABLE
                plan = (await plan_or_refuse(*asked)).plan
    assert plan.refusals[0] == GateRefusal(RefusalReason.SOURCE_PARTLY_THERE, "east")
