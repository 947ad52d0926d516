"""A paused link goes on seeing where its source's logs end: what is written behind the pause is known when it dies."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from broker.base.clock import SystemClock
from broker.client.cluster import Cluster
from broker.client.offsets import log_end_offsets
from broker.wire.vocabulary import TopicPartition
from mirror.coordinator.current import Current
from mirror.fleet.member import FleetCoordinator
from mirror.fleet.settings import FleetSettings
from mirror.heartbeat import HeartbeatWatch
from mirror.link import Link
from mirror.offsets.operations import pause_link, promote_link, resume_link
from mirror.offsets.source_ends import Observation, load_observation
from mirror.offsets.state import read_entries
from mirror.status import LinkCondition, link_status
from mirror.worker.events import Event
from mirror.worker.service import WorkerSettings, run_links
from tests.broker.running import running_broker
from tests.mirror.fleet.fake_etcd import FakeEtcd, FakeStore
from tests.mirror.fleet.workers import offer_of, untold
from tests.mirror.harness import (
    QUICK,
    Told,
    eventually,
    link_between,
    make_topic,
    running,
    some_records,
    wait_for_records,
    write,
)
from tests.ports import free_port

LIMITS = replace(QUICK, paused_poll_ms=100)


@pytest.fixture
def where() -> TopicPartition:
    return TopicPartition(f"flights-{uuid.uuid4().hex[:8]}", 0)


async def wait_until_seen(link: Link, target: Cluster, where: TopicPartition, end: int) -> Observation:
    found: list[Observation] = []

    async def is_seen() -> bool:
        found.append(await load_observation(link, target))
        seen = found[-1].ends.get(where)
        return seen is not None and seen.end == end

    await eventually(is_seen, f"an end of {end} to be kept of {where}", 60)
    return found[-1]


@pytest.mark.parametrize("units", [1, 2])
async def test_what_is_written_behind_a_pause_is_seen_and_not_mirrored(
    brokers: tuple[str, str], where: TopicPartition, units: int
) -> None:
    """50 records were written behind a pause, and their loss was stated as likely 0."""
    link = link_between(*brokers, [where.topic], units=units)
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, where.topic)
        await write(source, where, some_records(0, 5))
        async with running(link, limits=LIMITS) as told:
            await wait_for_records(target, where, 5)
            await pause_link(link, target, "pause-1")
            await told.wait_for(Event.PAUSED, units)
            before = await read_entries(link, target)
            mirrored = await log_end_offsets(target, [where])
            await write(source, where, some_records(5, 50))
            await wait_until_seen(link, target, where, 55)
            assert await log_end_offsets(target, [where]) == mirrored
            after = await read_entries(link, target)
            assert (after.checkpoints, after.owner) == (before.checkpoints, before.owner)
            assert (await link_status(link, HeartbeatWatch(target.clock))).condition is LinkCondition.PAUSED
            await resume_link(link, target, "resume-1")
            await wait_for_records(target, where, 55)


async def test_a_worker_that_begins_with_a_paused_link_sees_its_source(
    brokers: tuple[str, str], where: TopicPartition
) -> None:
    link = link_between(*brokers, [where.topic])
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, where.topic)
        await write(source, where, some_records(0, 5))
        await resume_link(link, target, "resume-1")
        await pause_link(link, target, "pause-1")
        async with running(link, limits=LIMITS) as told:
            await told.wait_for(Event.PAUSED)
            await wait_until_seen(link, target, where, 5)
            assert where.topic not in (await target.metadata()).topics


async def test_a_source_that_dies_behind_a_pause_is_said_to_and_keeps_nobody_from_going_on(
    tmp_path: Path, where: TopicPartition
) -> None:
    port = free_port()
    async with running_broker(tmp_path / "west") as west, AsyncExitStack() as stack:
        east = await stack.enter_async_context(running_broker(tmp_path / "east", listen_port=port))
        link = link_between(east, west, [where.topic])
        async with Cluster(link.target) as target, running(link, limits=LIMITS) as told:
            async with Cluster(link.source) as source:
                await make_topic(source, where.topic)
                await write(source, where, some_records(0, 5))
                await wait_for_records(target, where, 5)
                await pause_link(link, target, "pause-1")
                await told.wait_for(Event.PAUSED)
                await write(source, where, some_records(5, 50))
            await wait_until_seen(link, target, where, 55)
            await stack.aclose()

            async def is_said_to() -> bool:
                found = await load_observation(link, target)
                assert found.ends[where].end == 55
                return found.last is not None and found.last.unanswered_at_ms is not None

            await eventually(is_said_to, "the source to be seen to have ceased to answer", 60)
            assert (told.count(Event.RESTARTING), told.count(Event.STOPPED)) == (0, 0)
            async with running_broker(tmp_path / "east", listen_port=port):
                await resume_link(link, target, "resume-1")
                await told.wait_for(Event.STARTED, 2)
                await wait_for_records(target, where, 55)


async def test_a_promotion_of_a_paused_link_ends_the_looks(brokers: tuple[str, str], where: TopicPartition) -> None:
    link = link_between(*brokers, [where.topic])
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, where.topic)
        async with running(link, limits=LIMITS) as told:
            await told.wait_for(Event.STARTED)
            await pause_link(link, target, "pause-1")
            await told.wait_for(Event.PAUSED)
            await write(source, where, some_records(0, 5))
            await wait_until_seen(link, target, where, 5)
            await promote_link(link, target, "failover-1")
            at = TopicPartition(link.ends_topic, 0)

            async def is_over() -> bool:
                ends = await log_end_offsets(target, [at])
                written = await write(source, where, some_records(5, 1))
                await target.clock.sleep(2 * LIMITS.observe_interval_ms / 1000)
                seen = (await load_observation(link, target)).ends[where].end
                return await log_end_offsets(target, [at]) == ends and seen <= written

            await eventually(is_over, "the looks to end", 60)


@asynccontextmanager
async def of_fleet(etcd: FakeEtcd, name: str, link: Link) -> AsyncIterator[Told]:
    """A worker of this name that shares the link with others."""
    clock, told = SystemClock(), Told()
    offer = Current(offer_of([link.name]))
    place = FleetCoordinator(FakeStore(etcd), name, offer, clock, untold, FleetSettings(leave_seconds=0.1))
    async with asyncio.TaskGroup() as tasks:
        worker = tasks.create_task(run_links([link], WorkerSettings(LIMITS, clock, told.sink), place))
        yield told
        worker.cancel()


async def test_in_a_fleet_who_has_the_paused_link_looks_and_whoever_has_it_next(
    brokers: tuple[str, str], where: TopicPartition
) -> None:
    link, etcd = link_between(*brokers, [where.topic]), FakeEtcd(SystemClock())
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, where.topic)
        async with AsyncExitStack() as first:
            told = await first.enter_async_context(of_fleet(etcd, "one", link))
            await told.wait_for(Event.STARTED)
            await pause_link(link, target, "pause-1")
            await told.wait_for(Event.PAUSED)
            async with of_fleet(etcd, "two", link) as other:
                await write(source, where, some_records(0, 5))
                await wait_until_seen(link, target, where, 5)
                assert other.events == [], "it has no unit, and does nothing"
                await first.aclose()
                await other.wait_for(Event.PAUSED)
                await write(source, where, some_records(5, 5))
                await wait_until_seen(link, target, where, 10)
                await resume_link(link, target, "resume-1")
                await wait_for_records(target, where, 10)
