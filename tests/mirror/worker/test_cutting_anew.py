"""Links that are cut anew, on brokers: workers with either file, what readers say, and who looks behind their fence."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from typing import Any

import pytest

from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets, committed_offsets_of_groups
from broker.client.model import CommittedOffset
from broker.client.topics import delete_topics
from broker.wire.vocabulary import TopicPartition
from mirror.errors import LinkInvalid
from mirror.heartbeat import HeartbeatWatch
from mirror.link import PRODUCERS_TOPIC, Link
from mirror.offsets.recutting import cut_link
from mirror.offsets.state import load_link_state, read_entries
from mirror.offsets.taking_over import claim_link
from mirror.status import LinkCondition, link_status
from mirror.translation import translate_offset
from mirror.worker import startup
from mirror.worker.events import Event
from mirror.worker.registry import OriginRegistry
from tests.mirror.harness import (
    QUICK,
    Told,
    contents,
    eventually,
    link_between,
    make_topic,
    read_all,
    running,
    some_records,
    wait_for_records,
    write,
)

COUNT = 4
LIMITS = replace(QUICK, paused_poll_ms=100, fence_reason_wait_ms=2_000)


@pytest.fixture
def topic() -> str:
    return f"flights-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def link(brokers: tuple[str, str], topic: str) -> Link:
    return link_between(*brokers, [topic], groups=(f"readers-{topic}",), units=2)


def cut_into(link: Link, units: int, *pinned: int) -> Link:
    return replace(link, units=units, pins=tuple((link.topics[0], number) for number in pinned))


def partitions(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(COUNT)]


async def write_all(source: Cluster, topic: str, start: int, count: int) -> None:
    for where in partitions(topic):
        await write(source, where, some_records(start, count))


async def wait_for_all(target: Cluster, topic: str, count: int) -> None:
    for where in partitions(topic):
        assert contents(await wait_for_records(target, where, count)) == contents(some_records(0, count)), where


async def cut(link: Link, target: Cluster, wanted: Link) -> None:
    await cut_link(link, target, f"cut-{uuid.uuid4().hex[:8]}", wanted.units, wanted.pins)


async def run_until_it_ends(link: Link) -> None:
    async with running(link, limits=LIMITS):
        await eventually(_never, "the worker to end")


async def run_through_a_cut(link: Link, target: Cluster, anew: Link, told: Told) -> None:
    async with running(link, limits=LIMITS, told=told):
        await wait_for_all(target, link.topics[0], 10)
        await cut(link, target, anew)
        await eventually(_never, "the worker to end")


@pytest.mark.parametrize("wanted", [(1, ()), (4, ()), (1, (0,)), (2, (1, 3))])
async def test_a_link_goes_on_as_it_is_cut_and_all_readers_know(
    link: Link, topic: str, wanted: tuple[int, tuple[int, ...]]
) -> None:
    anew = cut_into(link, wanted[0], *wanted[1])
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, topic, COUNT)
        await write_all(source, topic, 0, 10)
        told = Told()
        with pytest.raises(ExceptionGroup) as refused:
            await run_through_a_cut(link, target, anew, told)
        assert isinstance(refused.value.exceptions[0], LinkInvalid)
        assert told.count(Event.STOPPED) == 2
        await write_all(source, topic, 10, 5)
        await wait_for_all(target, topic, 10)
        async with running(anew, limits=LIMITS) as told:
            await wait_for_all(target, topic, 15)
            assert told.count(Event.PARTITION_STOPPED) == 0
            offsets = {where: CommittedOffset(7 + where.partition) for where in partitions(topic)}
            await commit_offsets(source, link.groups[0], offsets)

            async def carried() -> bool:
                found = (await committed_offsets_of_groups(target, link.groups))[link.groups[0]]
                return isinstance(found, dict) and len(found) == COUNT

            await eventually(carried, "the group's offsets in partitions of all units")
            watch = HeartbeatWatch(target.clock)

            async def healthy() -> bool:
                status = await link_status(link, watch)  # by the old file
                return status.condition is LinkCondition.RUNNING and status.lag_records == 0 and not status.findings

            await eventually(healthy, "the status to be good")
        state = await load_link_state(link, target)
        assert (state.entries.units, state.entries.pins) == (anew.units, anew.pins)
        for where in partitions(topic):
            there = {record.offset: record for record in await read_all(target, where)}
            for record in await read_all(source, where):
                found = translate_offset(link, state, topic, where.partition, record.offset, reverse=False)
                assert there[found.target_offset][1:] == record[1:]


async def _never() -> bool:
    return False


async def test_who_looked_before_the_link_was_cut_anew_looks_again_behind_its_fence(
    link: Link, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    anew = cut_into(link, 1, 0, 1)
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, topic, COUNT)
        await write_all(source, topic, 0, 10)
        async with running(link, limits=LIMITS):
            await wait_for_all(target, topic, 10)
        await write_all(source, topic, 10, 5)
        both_looked, is_cut = asyncio.Barrier(2), asyncio.Event()

        async def planted(*given: Any, **more: Any) -> Any:
            """Both units have seen that the link is cut as their file says."""
            if await both_looked.wait() == 0:
                await cut(link, target, anew)
                is_cut.set()
            await is_cut.wait()
            return await claim_link(*given, **more)

        monkeypatch.setattr(startup, "claim_link", planted)
        with pytest.raises(ExceptionGroup) as refused:
            await run_until_it_ends(link)
        assert isinstance(refused.value.exceptions[0], LinkInvalid)
        for where in partitions(topic):
            assert contents(await read_all(target, where)) == contents(some_records(0, 10))
        async with running(anew, limits=LIMITS):
            await wait_for_all(target, topic, 15)


async def test_positions_of_units_that_never_began_keep_no_link_back_waiting(link: Link, topic: str) -> None:
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, topic, COUNT)
        await write_all(source, topic, 0, 5)
        async with running(link, limits=LIMITS):
            await wait_for_all(target, topic, 5)
        await cut(link, target, cut_into(link, 4, 0))
        assert (await read_entries(replace(cut_into(link, 4, 0), unit=4), target)).checkpoints, "written by unit 0 or 1"
        registry = OriginRegistry(target)
        await registry.refresh()
        await registry.refuse_unknown_writers((await target.metadata([link.state_topic])).topics)
        await delete_topics(target, [PRODUCERS_TOPIC])
