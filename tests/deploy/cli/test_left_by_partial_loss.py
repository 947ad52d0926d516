"""A group that a partial loss left behind is moved by the very command that the failover's `next` prints."""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets, committed_offsets
from broker.client.model import CommittedOffset
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from deploy.cli.failover import failover
from deploy.cli.next_steps import next_steps
from failover.observing.contact import SiteFinding
from failover.observing.sites import Sites
from failover.planning.moves import MoveKind
from failover.planning.plan import OperationPlan, plan_failover
from tests.broker.faults import Faults, injected
from tests.failover.observing.test_leaderless_source import IMPATIENT, is_held
from tests.failover.stage import PARTITIONS, RARE, RECORDS, mirrored, two_sites
from tests.mirror.harness import eventually, read_all, some_records, write

GONE = PARTITIONS[1]
LEFT = "left"


async def planned(sites: Sites, command: str, **more: Any) -> OperationPlan:
    """By the options of a command line, as `farshore failover` reads them."""
    _, verb, *options = shlex.split(command)
    assert verb == "failover"
    given = failover.make_context("failover", options).params
    named = replace(sites, groups=tuple(given["groups"]))
    return plan_failover(
        await named.look_past_source(),
        allow_data_loss=given["allow_data_loss"],
        even_if_source_answers=given["even_if_source_answers"],
        even_if_source_partly_there=given["even_if_source_partly_there"],
        **more,
    )


@pytest.mark.parametrize("stranded", [0, 3])
async def test_the_next_command_moves_it_when_the_source_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stranded: int
) -> None:
    """It had the consent of the moment of the loss, and was refused as the source answers; a failback alone helped."""
    async with two_sites(tmp_path) as stage:
        east = Faults()
        with injected(monkeypatch, {stage.brokers[0]: east}):
            async with mirrored(stage, RARE):
                await commit_offsets(stage.source, LEFT, dict.fromkeys(PARTITIONS, CommittedOffset(25)))
                for api in (ApiKey.FETCH, ApiKey.LIST_OFFSETS):
                    east.partitions[api, GONE] = ErrorCode.KAFKA_STORAGE_ERROR
                await eventually(lambda: is_held(stage), "a hold")
            if stranded:
                await write(stage.source, GONE, some_records(9_000, stranded))
            async with Cluster(stage.link.source, client_id="farshore-test", limits=IMPATIENT) as source:
                half = replace(stage, source=source).sites
                lossy = "farshore failover --allow-data-loss --even-if-source-partly-there"
                plan = await planned(half, lossy, left_groups=(LEFT,))
                assert plan.snapshot.source_finding is SiteFinding.PARTLY_THERE
                result = await stage.run(plan, half)
                assert (result.verified, result.left_groups) == (True, (LEFT,))
                (step,) = [one for one in next_steps(result, stage.link, (), {}) if LEFT in one.command]
                assert (await planned(half, step.command)).refusals != (), "it is not known yet"
        for at in PARTITIONS:  # applications are at the target by now
            await write(stage.target, at, some_records(20_000, 5))
        plan = await planned(stage.sites, step.command)
        assert plan.snapshot.source_finding is SiteFinding.ALIVE
        assert plan.refusals == ()
        assert {move.kind for move in plan.moves} <= {MoveKind.TRANSLATED, MoveKind.ALREADY_THERE}
        again = await stage.run(plan, replace(stage.sites, groups=(LEFT,)))
        assert (again.verified, again.left_groups) == (True, ())
        stands = await committed_offsets(stage.target, LEFT)
        for at in PARTITIONS:
            here = {record.offset: record.value for record in await read_all(stage.source, at)}
            there = [one for one in await read_all(stage.target, at) if one.offset >= stands[at].offset]
            assert (there[0].value, len(there)) == (here[25], RECORDS - 25 + 5)


async def test_who_reads_on_at_a_source_that_is_there_in_part_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only one that was there as a whole was looked at behind the moves: what somebody read at the brokers that lived
    was read again at the target, with exit code 0.
    """
    async with two_sites(tmp_path) as stage, mirrored(stage, RARE):
        east, told = Faults(), asyncio.Event()
        with injected(monkeypatch, {stage.brokers[0]: east}):
            await commit_offsets(stage.source, LEFT, dict.fromkeys(PARTITIONS, CommittedOffset(25)))
            for api in (ApiKey.FETCH, ApiKey.LIST_OFFSETS):
                east.partitions[api, GONE] = ErrorCode.KAFKA_STORAGE_ERROR
            await eventually(lambda: is_held(stage), "a hold")

            async def read_on() -> None:
                await told.wait()
                await commit_offsets(stage.source, LEFT, {PARTITIONS[0]: CommittedOffset(41)})

            async with Cluster(stage.link.source, client_id="farshore-test", limits=IMPATIENT) as source:
                half = replace(stage, source=source).sites
                lossy = "farshore failover --allow-data-loss --even-if-source-partly-there"
                plan = await planned(half, lossy, left_groups=(LEFT,))
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(read_on())
                    result = await stage.run(plan, half, tell=lambda _: told.set())
    assert result.source_finding is SiteFinding.PARTLY_THERE
    late = {(one.group, one.partition, one.moved_offset, one.found_offset) for one in result.late_commits}
    assert late == {(LEFT, PARTITIONS[0].partition, 25, 41)}
