"""A partition that loses its leader amid a fence holds up neither the link nor a promotion, and who comes is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.base.clock import SystemClock
from broker.client.cluster import Cluster
from broker.client.limits import ClientLimits
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition
from mirror.heartbeat import HeartbeatWatch
from mirror.link_finding import LinkFindingKind
from mirror.offsets.entries import Owner
from mirror.offsets.fence import FenceAwaits
from mirror.offsets.hold_entries import HoldReason
from mirror.offsets.operations import promote_link
from mirror.offsets.state import read_entries
from mirror.status import link_status
from mirror.worker import ahead
from mirror.worker.events import Event
from tests.broker.faults import leaderless
from tests.failover.observing.test_contact import Far, served
from tests.mirror.harness import Told, eventually, make_topic, running
from tests.mirror.worker.stage import BAD, BOUND_S, GOOD, LIMITS, Stage, is_held, open_stage

IMPATIENT = replace(ClientLimits(), retry_timeout_ms=3_000)
SLOW_S = 0.6
"""Of each answer of the source: behind the fence it is asked several times in a row."""


@pytest.fixture
async def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    async with open_stage(tmp_path, monkeypatch) as opened:
        yield opened


def lost_during_a_fence(stage: Stage, stack: ExitStack) -> None:
    """The bad partition is found well, is in the fence's transaction, and loses its leader before that ends."""

    def lose(request: Any) -> None:
        if BAD in stage.west.marked:
            stack.enter_context(leaderless(stage.west_broker, BAD))
            del stage.west.moments[ApiKey.END_TXN]

    stage.west.moments[ApiKey.END_TXN] = lose


async def test_a_leader_that_is_lost_during_the_fence_stops_its_partition_only(stage: Stage) -> None:
    await make_topic(stage.target, "flights", 2)
    await stage.write(BAD, *GOOD)
    with ExitStack() as lost:
        lost_during_a_fence(stage, lost)
        async with running(stage.link, limits=LIMITS) as told:
            await stage.wait_for(*GOOD)
            await is_held(stage, told, HoldReason.NO_LEADER_AT_TARGET)
            status = await link_status(stage.link, HeartbeatWatch(SystemClock()))
            (waits,) = [f for f in status.findings if f.kind is LinkFindingKind.FENCE_WAITS]
            assert (waits.topic, waits.partition) == BAD
            assert "that has a replica of flights-0, or delete topic flights there" in waits.next_step
            await make_topic(stage.source, "born")
            looks = stage.east.asked[ApiKey.METADATA]

            async def looked() -> bool:
                return stage.east.asked[ApiKey.METADATA] > looks + 8

            await eventually(looked, "several looks at the topics")
            await stage.write(*GOOD)
            await stage.wait_for(*GOOD)
            assert (stage.fences(), told.of(Event.RENEWED), told.of(Event.RESTARTING)) == (1, [], []), "none can follow"
            lost.close()
            await stage.write(BAD, TopicPartition("born", 0))
            await stage.wait_for(BAD, *GOOD, TopicPartition("born", 0))
            assert not told.of(Event.RESTARTING)
            assert not told.of(Event.PARTITION_STOPPED)


async def test_which_partitions_can_take_a_marker_is_asked_again_when_the_claim_took_long(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are asked beside the claim, which may wait for an earlier fence, and leaders are lost meanwhile."""
    monkeypatch.setattr(ahead, "AHEAD_MAX_AGE_MS", -1)
    await make_topic(stage.target, "flights", 2)
    await stage.write(BAD, *GOOD)
    with ExitStack() as lost:

        def lose(_request: Any) -> None:
            del stage.west.moments[ApiKey.PRODUCE]  # the claim says who owns the link now
            lost.enter_context(leaderless(stage.west_broker, BAD))

        stage.west.moments[ApiKey.PRODUCE] = lose
        async with running(stage.link, limits=LIMITS) as told:
            await stage.wait_for(*GOOD)
            await is_held(stage, told, HoldReason.NO_LEADER_AT_TARGET)
            status = await link_status(stage.link, HeartbeatWatch(SystemClock()))
            assert LinkFindingKind.FENCE_WAITS not in {finding.kind for finding in status.findings}
            lost.close()
            await stage.write(BAD)
            await stage.wait_for(BAD, *GOOD)
            assert not told.of(Event.RESTARTING)


async def test_a_worker_whose_fence_waits_says_that_it_lives(stage: Stage) -> None:
    """It was called silent after 20 s, with the command that starts a rival, which would have fenced it."""
    await make_topic(stage.target, "flights", 2)
    await stage.write(*GOOD)

    def wait(_request: Any) -> None:
        if stage.fences() == 1:  # that of the partitions: the claim's came before
            stage.west.transactional_ids[stage.link.transactional_id] = ErrorCode.CONCURRENT_TRANSACTIONS

    stage.west.moments[ApiKey.END_TXN] = wait
    async with running(stage.link, limits=LIMITS) as told:
        beats = await heartbeats(stage, told, 3)
        assert len({owner.writer for owner in beats}) == 1
        del stage.west.moments[ApiKey.END_TXN]
        stage.west.heal()
        await stage.wait_for(*GOOD)
        assert (told.of(Event.RENEWED), told.of(Event.RESTARTING)) == ([], [])


async def test_a_worker_that_compares_logs_for_long_says_that_it_lives(stage: Stage) -> None:
    await make_topic(stage.target, "flights", 2)
    await stage.write(*GOOD)
    bootstrap = stage.link.source.bootstrap_servers
    async with served(Far(bootstrap, quiet_s=0.0, delay_s=SLOW_S)) as way:
        link = replace(
            stage.link, source=replace(stage.link.source, bootstrap_servers=way, address_map={bootstrap: way})
        )
        async with running(link, limits=replace(LIMITS, heartbeat_interval_ms=100)) as told:
            await heartbeats(stage, told, 4)
            await stage.wait_for(*GOOD)
            assert told.of(Event.RESTARTING) == []


async def heartbeats(stage: Stage, told: Told, count: int) -> list[Owner]:
    """So many of one writer, one after the other, before the link is opened."""
    beats: list[Owner] = []

    async def came() -> bool:
        owner = (await read_entries(stage.link, stage.target)).owner
        if owner is not None and owner not in beats:
            beats[:] = [*(one for one in beats if one.writer == owner.writer), owner]
        return len(beats) >= count

    await eventually(came, "its heartbeats", BOUND_S)
    assert not told.of(Event.STARTED)
    return beats


async def test_who_comes_while_a_fence_waits_is_told_for_what(stage: Stage) -> None:
    await make_topic(stage.target, "flights", 2)
    with ExitStack() as lost:
        lost_during_a_fence(stage, lost)
        async with asyncio.timeout(BOUND_S), Cluster(stage.link.target) as target:
            fence = await promote_link(stage.link, target, "op")
        assert fence.awaited == fence.left_out.keys() == {BAD}
        async with asyncio.timeout(BOUND_S), Cluster(stage.link.target, limits=IMPATIENT) as target:
            with pytest.raises(FenceAwaits, match="its last fence waits for 1 partitions, flights-0") as waits:
                await promote_link(stage.link, target, "again")
        assert waits.value.hint is not None
        assert "bring back a broker of west that has a replica of flights-0" in waits.value.hint
