"""A target that has records before the link mirrored into it, as far as its state knows: it stops, and says whose."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest

from broker.base.clock import Clock
from broker.client.cluster import Cluster
from broker.client.offsets import log_end_offsets
from broker.client.topics import delete_records, delete_topics
from broker.wire.records import Record
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets.entries import GapKind
from mirror.offsets.operations import resume_link
from mirror.offsets.state import load_link_state, read_entries
from mirror.worker.events import Event
from tests.mirror.harness import (
    BEFORE,
    LONG_AGO,
    accept_all,
    contents,
    link_between,
    make_topic,
    read_all,
    running,
    some_records,
    wait_for_records,
    write,
)

LOCAL = [Record(0, 1, b"local", b"record")]


def fresh(brokers: tuple[str, str], **more: Any) -> tuple[Link, TopicPartition]:
    topic = f"flights-{uuid.uuid4().hex[:8]}"
    return link_between(*brokers, [f"{topic}.*"], **more), TopicPartition(topic, 0)


async def stopped_by(link: Link, words: str, clock: Clock | None = None) -> None:
    async with running(link, clock=clock) as told:
        (stopped,) = await told.wait_for(Event.PARTITION_STOPPED)
        await told.wait_for(Event.STARTED)
    assert stopped["reason"] == GapKind.TARGET_NOT_EMPTY
    assert words in str(stopped["detail"])


async def mirror(link: Link, target: Cluster, where: TopicPartition, count: int, clock: Clock | None = None) -> None:
    async with running(link, clock=clock):
        await wait_for_records(target, where, count)


@pytest.mark.parametrize("shared", [False, True])
async def test_a_link_that_lost_its_state_does_not_mirror_everything_again(
    brokers: tuple[str, str], shared: bool
) -> None:
    link, where = fresh(brokers, shared_targets=shared)
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, where.topic)
        await write(source, where, some_records(0, 10))
        await mirror(link, target, where, 10, LONG_AGO)
        await delete_topics(target, [link.state_topic])
        await stopped_by(link, "this link wrote them earlier, from east", BEFORE)
        renamed = replace(link, name=f"{link.name}-renamed")
        await stopped_by(renamed, f"link {link.name} wrote them, from east")
        assert len(await read_all(target, where)) == 10


async def test_local_records_stop_an_exclusive_target_and_no_other_partition(brokers: tuple[str, str]) -> None:
    link, where = fresh(brokers)
    other = where._replace(partition=1)
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        for site in (source, target):
            await make_topic(site, where.topic, 2)
        await write(target, where, LOCAL)
        for there in (where, other):
            await write(source, there, some_records(0, 10))
        async with running(link) as told:
            (stopped,) = await told.wait_for(Event.PARTITION_STOPPED)
            assert "by a local producer" in str(stopped["detail"])
            assert contents(await wait_for_records(target, other, 10)) == contents(some_records(0, 10))
            assert len(await read_all(target, where)) == 1
            await accept_all(link, target, "op")
            found = await wait_for_records(target, where, 11)
        assert contents(found[1:]) == contents(some_records(0, 10))
        offset_map = (await load_link_state(link, target)).map
        assert [offset_map.to_target(*where, offset) for offset in range(10)] == [at.offset for at in found[1:]]
        async with running(link) as told:
            await told.wait_for(Event.STARTED)
            assert not told.of(Event.PARTITION_STOPPED)


async def test_it_may_begin_at_another_offset(brokers: tuple[str, str]) -> None:
    link, where = fresh(brokers)
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        for site in (source, target):
            await make_topic(site, where.topic)
        await write(target, where, LOCAL)
        await write(source, where, some_records(0, 10))
        await stopped_by(link, "by a local producer")
        (gap,) = (await read_entries(link, target)).open_gaps().values()
        await resume_link(link, target, "op", [replace(gap, source_to=7)])
        await mirror(link, target, where, 4)
        assert contents((await read_all(target, where))[1:]) == contents(some_records(0, 10)[7:])
        (passed,) = (await read_entries(link, target)).gaps.values()
        assert (passed.status, passed.source_from, passed.source_to) == ("passed", 0, 7)


async def test_an_emptied_target_is_mirrored_into_without_a_decision(brokers: tuple[str, str]) -> None:
    link, where = fresh(brokers)
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        for site in (source, target):
            await make_topic(site, where.topic)
        await write(target, where, LOCAL)
        await write(source, where, some_records(0, 10))
        await stopped_by(link, "by a local producer")
        await delete_records(target, {where: (await log_end_offsets(target, [where]))[where]})
        await mirror(link, target, where, 10)
        assert contents(await read_all(target, where)) == contents(some_records(0, 10))
        assert {gap.status for gap in (await read_entries(link, target)).gaps.values()} == {"gone"}


async def test_a_shared_target_may_have_records_of_its_own(brokers: tuple[str, str]) -> None:
    link, where = fresh(brokers, shared_targets=True)
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        for site in (source, target):
            await make_topic(site, where.topic)
        await write(target, where, LOCAL)
        await write(source, where, some_records(0, 10))
        async with running(link) as told:
            await wait_for_records(target, where, 11)
            assert not told.of(Event.PARTITION_STOPPED)


async def test_a_target_topic_that_was_recreated_and_filled_is_noticed_where_targets_are_shared(
    brokers: tuple[str, str],
) -> None:
    link, where = fresh(brokers, shared_targets=True)
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, where.topic)
        await write(source, where, some_records(0, 10))
        await mirror(link, target, where, 10)
        await delete_topics(target, [where.topic])
        await make_topic(target, where.topic)
        for _ in range(20):
            await write(target, where, LOCAL)
        async with running(link) as told:
            (stopped,) = await told.wait_for(Event.PARTITION_STOPPED)
            assert stopped["reason"] == GapKind.TARGET_TRUNCATED
            assert "the target topic's id was" in str(stopped["detail"])
            await told.wait_for(Event.STARTED)
            await accept_all(link, target, "op")
            found = await wait_for_records(target, where, 30)
        assert contents(found[20:]) == contents(some_records(0, 10))
