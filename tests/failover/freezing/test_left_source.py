"""A failover away from a source that answers: who still writes and reads there is a finding, and so is a loss that
nobody consented to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from broker.base.documents import to_document
from broker.client.cluster import Cluster
from broker.client.site_role import set_site_role, site_standing
from broker.wire.errors import ErrorCode
from broker.wire.site_role import SiteRole
from broker.wire.vocabulary import TopicPartition
from deploy.cli.failover_tables import summary
from deploy.cli.found_lines import found_in
from failover.freezing.choice import UNFROZEN, Freezing, read_roles
from failover.losses.statements import Certainty
from failover.observing.sites import Sites
from failover.planning.plan import OperationPlan, plan_failover, plan_switchover
from failover.running.groups_stand import GroupsStand, Tell, tell_nobody
from failover.running.late_commits import LateCommit, SourceReader
from failover.running.link_run import LinkRun
from failover.running.result import OperationResult
from failover.running.steps import OperationStep
from tests.broker.faults import Faults, injected
from tests.failover.freezing.test_taken_up_frozen import without_roles
from tests.failover.machines import quick
from tests.failover.observing.test_leaderless_source import IMPATIENT
from tests.failover.stage import GROUP, PARTITIONS, RECORDS, TOPIC, Stage, commit_group, mirrored, reading, two_sites
from tests.mirror.harness import make_topic, some_records, write


async def planned(
    sites: Sites, *, allow_data_loss: bool = True, partly: bool = False, freezing: Freezing = UNFROZEN
) -> OperationPlan:
    seen = await sites.look_past_source()
    return plan_failover(
        seen,
        allow_data_loss=allow_data_loss,
        even_if_source_answers=True,
        even_if_source_partly_there=partly,
        freezing=freezing,
    )


async def roles_of(stage: Stage) -> Freezing:
    roles = await read_roles(stage.link, stage.source, stage.target, even_without_source=True)
    return replace(roles, freezes=True)


async def failed_over(stage: Stage, sites: Sites, tell: Tell = tell_nobody) -> OperationResult:
    async with mirrored(stage):
        freezing = await roles_of(stage) if sites.source is not None else UNFROZEN
        return await stage.run(await planned(sites, freezing=freezing), sites, tell=tell)


async def test_a_source_that_was_closed_is_no_finding(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        result = await failed_over(stage, stage.sites)
    assert (result.verified, result.is_source_open, result.has_findings) == (True, False, False)


async def test_a_source_that_stands_by_already_is_not_to_be_closed_when_it_answers(tmp_path: Path) -> None:
    """It was: "as soon as east answers", of one that did, and refused its clients."""
    async with two_sites(tmp_path) as stage, mirrored(stage):
        await set_site_role(stage.source, SiteRole.STANDBY, "a test", await site_standing(stage.source))
        freezing = await roles_of(stage)
        result = await stage.run(await planned(stage.sites, freezing=freezing), stage.sites)
    assert (result.verified, result.takes_writes, result.has_findings) == (True, False, False)


async def test_a_source_that_answers_and_that_nobody_closes_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended with 0, and its clients wrote on where no mirror carried it any more."""
    without_roles(monkeypatch)
    async with two_sites(tmp_path) as stage:
        result = await failed_over(stage, stage.sites)
    assert (result.verified, result.is_source_open, result.has_findings) == (True, True, True)


async def test_a_source_that_is_gone_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_roles(monkeypatch)
    async with two_sites(tmp_path) as stage:
        result = await failed_over(stage, stage.without_source)
    assert (result.verified, result.is_source_open, result.has_findings) == (True, False, False)


async def test_who_reads_on_at_it_is_one(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage, reading(stage.link.source.bootstrap_servers):
        result = await failed_over(stage, stage.sites)
    assert (result.verified, result.has_findings) == (True, True)
    assert result.source_readers == (SourceReader(GROUP, 1),)


async def test_who_commits_there_behind_the_word_is_one(tmp_path: Path) -> None:
    """A consumer that joined no group has no members to be seen by."""
    async with two_sites(tmp_path) as stage:
        told = asyncio.Event()

        async def read_on() -> None:
            await told.wait()
            await commit_group(stage.source, 41, 42)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(read_on())
            result = await failed_over(stage, stage.sites, lambda _: told.set())
    assert result.late_commits == (LateCommit(GROUP, TOPIC, 0, 20, 41), LateCommit(GROUP, TOPIC, 1, 30, 42))
    assert (result.verified, result.has_findings) == (True, True)


async def test_a_source_that_does_not_say_any_more_who_reads_on_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was closed, and the look behind the word failed: exit code 0 said that nobody commits there."""
    async with two_sites(tmp_path) as stage:
        east = Faults()

        def cut(_stand: GroupsStand) -> None:
            east.listing = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

        with injected(monkeypatch, {stage.brokers[0]: east}):
            result = await failed_over(stage, stage.sites, cut)
    assert (result.verified, result.is_source_open) == (True, False)
    assert (result.is_unwatched, result.has_findings) == (True, True)


async def test_a_switchovers_source_that_tells_its_records_and_not_who_reads_on_is_said_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was asked for a minute, before the after_hook ran, and the operation was cut short then."""
    quick(monkeypatch)
    monkeypatch.setattr("failover.running.link_run.LATE_LOOK_S", 1.0)
    async with two_sites(tmp_path) as stage, mirrored(stage):
        east = Faults()

        def cut(_stand: GroupsStand) -> None:
            east.listing = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

        with injected(monkeypatch, {stage.brokers[0]: east}):
            result = await stage.run(plan_switchover(await stage.sites.look()), stage.sites, tell=cut)
    assert (result.verified, result.is_unwatched, result.has_findings) == (True, True, True)
    assert (result.stranded, result.are_late_records_known) == ((), True)
    told = summary(result)
    assert "did not tell who read on there" in told
    assert "whether records came" not in told
    (line,) = found_in(to_document(result))
    assert "did not tell who read on there" in line


async def test_a_loss_that_nobody_consented_to_is_one(tmp_path: Path) -> None:
    """Nothing was missing when it was planned, without --allow-data-loss; records come before the fence."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        plan = await planned(stage.sites, allow_data_loss=False, freezing=await roles_of(stage))
        assert plan.refusals == ()
        await write(stage.source, PARTITIONS[0], some_records(5000, 7))
        result = await stage.run(plan, stage.sites)
    assert (result.loss.records, result.loss.certainty) == (7, Certainty.EXACT)
    assert (result.verified, result.is_loss_unconsented, result.has_findings) == (True, True, True)


def behind_the_fence(monkeypatch: pytest.MonkeyPatch, do: Callable[[], Awaitable[object]]) -> None:
    real = LinkRun.take

    async def take(self: LinkRun, step: OperationStep) -> None:
        await real(self, step)
        if step is OperationStep.FENCE:
            await do()

    monkeypatch.setattr(LinkRun, "take", take)


@pytest.mark.parametrize("is_whole", [True, False])
async def test_what_came_until_it_was_closed_is_in_its_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_whole: bool
) -> None:
    """The result had 5 offsets of the look at the fence; 281 more records were acknowledged until the source was
    closed two seconds later.
    """
    here, other = PARTITIONS
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        east = Faults(leaderless=set() if is_whole else {other})
        with injected(monkeypatch, {stage.brokers[0]: east}):
            async with Cluster(stage.link.source, client_id="farshore-test", limits=IMPATIENT) as source:
                sites = replace(stage.sites, source=source)
                await write(stage.source, here, some_records(5_000, 5))
                plan = await planned(sites, partly=True, freezing=await roles_of(stage))
                behind_the_fence(monkeypatch, partial(write, stage.source, here, some_records(6_000, 281)))
                result = await stage.run(plan, sites.as_found(plan.snapshot))
    known, left = sorted(result.losses, key=lambda loss: loss.partition)
    assert plan.loss.offsets == 5
    assert (known.records, known.certainty, known.end_offset) == (286, Certainty.EXACT, RECORDS + 286)
    assert (result.loss.offsets, left.certainty is Certainty.EXACT) == (286, is_whole)
    assert known.seen_at_ms is not None
    assert known.seen_at_ms > plan.snapshot.taken_at_ms


@pytest.mark.parametrize("is_empty", [True, False])
async def test_a_topic_that_is_born_amid_it_is_in_its_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_empty: bool
) -> None:
    """Its loss was said to be exactly 0: only what the look at the fence had seen was asked for."""
    async with two_sites(tmp_path) as stage:
        stage.link = replace(stage.link, topics=("flights.*",))
        async with mirrored(stage):
            pass
        plan = await planned(stage.sites)

        async def make() -> None:
            await make_topic(stage.source, "flights.new", 2)
            await make_topic(stage.source, "others", 1)
            if not is_empty:
                await write(stage.source, TopicPartition("flights.new", 1), some_records(0, 9))

        behind_the_fence(monkeypatch, make)
        result = await stage.run(plan, stage.sites)
    records = 0 if is_empty else 9
    assert (result.loss.records, result.loss.certainty) == (records, Certainty.EXACT)
    born = [(loss.topic, loss.partition, loss.records) for loss in result.losses if loss.topic != TOPIC]
    assert born == [("flights.new", 0, 0), ("flights.new", 1, records)]


@pytest.mark.parametrize("is_kafka", [False, True])
async def test_a_source_of_farshores_own_that_was_not_told_takes_writes_whatever_the_target_is(
    tmp_path: Path, *, is_kafka: bool
) -> None:
    """With Apache Kafka as the target nothing said so, nor what to do when the source is back."""
    async with two_sites(tmp_path) as stage, mirrored(stage):
        roles = replace(await roles_of(stage), freezes=False, target=None)
        freezing = replace(roles, source=None) if is_kafka else roles
        result = await stage.run(await planned(stage.sites, freezing=freezing), stage.sites)
    assert (result.source_role, result.takes_writes) == (None, not is_kafka)
