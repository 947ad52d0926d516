"""A worker between two of our brokers: what is hard to do between real Kafkas."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from typing import Any

import pytest

from broker.client.cluster import Cluster
from broker.client.configs import alter_topic_configs
from broker.client.groups import commit_offsets, committed_offsets
from broker.client.model import CommittedOffset
from broker.client.topics import create_partitions, delete_topics
from broker.wire.compression import Compression
from broker.wire.records import Record
from broker.wire.vocabulary import ConfigOperation, TopicPartition
from mirror.errors import LinkFenced, LinkInvalid
from mirror.link import Link
from mirror.offsets.entries import GapKind
from mirror.offsets.state import load_link_state, read_entries
from mirror.worker.events import Event
from mirror.worker.service import WorkerSettings, run_links
from tests.mirror.harness import (
    DRIFT_STAYS,
    QUICK,
    Told,
    accept_all,
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


def fresh(brokers: tuple[str, str], **more: Any) -> tuple[Link, TopicPartition]:
    topic = f"flights-{uuid.uuid4().hex[:8]}"
    return link_between(*brokers, [f"{topic}.*"], **more), TopicPartition(topic, 0)


async def test_new_topics_and_partitions_are_noticed(brokers: tuple[str, str]) -> None:
    link, where = fresh(brokers)
    async with Cluster(link.source) as source, Cluster(link.target) as target, running(link) as told:
        await told.wait_for(Event.STARTED)
        await make_topic(source, where.topic)
        await write(source, where, some_records(0, 5))
        await wait_for_records(target, where, 5)
        assert not await create_partitions(source, {where.topic: 3})
        await write(source, where._replace(partition=2), some_records(0, 5))
        await wait_for_records(target, where._replace(partition=2), 5)
        later = TopicPartition(f"{where.topic}-later", 0)
        await make_topic(source, later.topic)
        await write(source, later, some_records(0, 5))
        await wait_for_records(target, later, 5)
        assert not told.of(Event.RESTARTING)


async def test_two_names_of_one_cluster_are_no_link(brokers: tuple[str, str]) -> None:
    link, where = fresh((brokers[0], brokers[0]))
    async with Cluster(link.source) as cluster:
        await make_topic(cluster, where.topic)
        await write(cluster, where, some_records(0, 5))
        with pytest.raises(LinkInvalid, match="same cluster"):
            async with asyncio.timeout(60):
                await run_links([link], WorkerSettings(limits=QUICK, events=Told().sink))
        assert len(await read_all(cluster, where)) == 5


async def test_a_foreign_writer_stops_its_partition_only(brokers: tuple[str, str]) -> None:
    link, where = fresh(brokers)
    other = where._replace(partition=1)
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, where.topic, 2)
        async with running(link) as told:
            await write(source, where, some_records(0, 5))
            await wait_for_records(target, where, 5)
            await write(target, where, [Record(0, 1, b"a local producer", b"")])
            await write(source, where, some_records(5, 5))
            (stopped,) = await told.wait_for(Event.PARTITION_STOPPED)
            assert stopped["reason"] == GapKind.FOREIGN_WRITER
            await write(source, other, some_records(0, 5))
            await wait_for_records(target, other, 5)
        async with running(link) as told:
            (stopped,) = await told.wait_for(Event.PARTITION_STOPPED)
            assert stopped["reason"] == GapKind.FOREIGN_WRITER
            await told.wait_for(Event.STARTED)
            await accept_all(link, target, "op")
            await write(source, where, some_records(10, 5))
            found = await wait_for_records(target, where, 16)
        assert contents(found[:5] + found[6:]) == contents(some_records(0, 15))
        state = await load_link_state(link, target)
        for offset in range(15):
            assert state.map.to_target(*where, offset) == (found[:5] + found[6:])[offset].offset


async def test_a_recreated_topic_is_not_mistaken_for_the_old_one(brokers: tuple[str, str]) -> None:
    link, where = fresh(brokers)
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, where.topic)
        await write(source, where, some_records(0, 10))
        async with running(link):
            await wait_for_records(target, where, 10)
        await delete_topics(source, [where.topic])
        await make_topic(source, where.topic)
        await write(source, where, some_records(100, 20))
        async with running(link) as told:
            (stopped,) = await told.wait_for(Event.PARTITION_STOPPED)
            assert stopped["reason"] == GapKind.RECREATED
            await told.wait_for(Event.STARTED)
            assert len(await read_all(target, where)) == 10
            await accept_all(link, target, "op")
            found = await wait_for_records(target, where, 30)
        assert contents(found[10:]) == contents(some_records(100, 20))
        state = await load_link_state(link, target)
        assert state.map.to_target(*where, 0) == found[10].offset
        async with running(link) as told:
            await told.wait_for(Event.STARTED)
            assert not told.of(Event.PARTITION_STOPPED)


async def test_a_second_worker_takes_over_and_the_first_stops(brokers: tuple[str, str]) -> None:
    link, where = fresh(brokers)
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, where.topic)
        first, second = Told(), Told()

        async def run_first() -> None:
            try:
                await run_links([link], WorkerSettings(limits=QUICK, events=first.sink))
            except LinkFenced:
                return
            raise AssertionError("the first worker ended without having been fenced")

        async with asyncio.TaskGroup() as tasks:
            fenced = tasks.create_task(run_first())
            await first.wait_for(Event.STARTED)
            await write(source, where, some_records(0, 10))
            await wait_for_records(target, where, 10)
            async with running(link, told=second):
                await second.wait_for(Event.STARTED)
                await write(source, where, some_records(10, 10))
                assert contents(await wait_for_records(target, where, 20)) == contents(some_records(0, 20))
                await fenced
        assert first.of(Event.STOPPED)[0]["reason"] == "LinkFenced"


async def test_memory_is_bounded_and_a_small_window_still_moves_all(brokers: tuple[str, str]) -> None:
    link, where = fresh(brokers)
    small = replace(
        QUICK,
        in_flight_max_bytes=256 * 1024,
        fetch_start_bytes=128 * 1024,
        fetch_max_bytes=128 * 1024,
        fetch_room_min_bytes=64 * 1024,
        fetch_partition_max_bytes=64 * 1024,
        partition_buffer_max_bytes=64 * 1024,
    )
    value = bytes(range(256)) * 64
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, where.topic)
        for start in range(0, 200, 10):
            await write(source, where, [Record(at, start + at, b"%d" % (start + at), value) for at in range(10)])
        async with running(link, limits=small):
            found = await wait_for_records(target, where, 200)
        assert [record.key for record in found] == [b"%d" % at for at in range(200)]


async def test_group_offsets_follow(brokers: tuple[str, str]) -> None:
    link, where = fresh(brokers, groups=("readers-.*",))
    group = f"readers-{where.topic}"
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, where.topic)
        await write(source, where, some_records(0, 20), Compression.GZIP)
        await commit_offsets(source, group, {where: CommittedOffset(7, "seen")})
        async with running(link):
            found = await wait_for_records(target, where, 20)
            expected = {where: found[7].offset}

            async def follows() -> bool:
                committed = await committed_offsets(target, group)
                return {at: c.offset for at, c in committed.items()} == expected

            await eventually(follows, "the group's offset at the target")

            async def recorded() -> bool:
                return group in (await read_entries(link, target)).groups.synced_at_ms

            await eventually(recorded, "the time of the group's sync")


async def test_what_comes_before_a_refused_batch_is_mirrored_and_accepting_loses_nothing_else(
    brokers: tuple[str, str],
) -> None:
    link, where = fresh(brokers)
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, where.topic)
        await make_topic(target, where.topic, max_message_bytes="2000")
        small = [await write(source, where, some_records(at, 5)) for at in (0, 5, 10)]
        large = await write(source, where, [Record(0, 1_700_000_000_000, b"large", bytes(4000))])
        await write(source, where, some_records(15, 5))
        assert small == [0, 5, 10]
        async with running(link, limits=DRIFT_STAYS) as told:
            stopped = (await told.wait_for(Event.PARTITION_STOPPED))[0]
            assert (stopped["reason"], stopped["source_from"], stopped["source_to"]) == (
                GapKind.REFUSED_BATCH.value,
                large,
                large + 1,
            )
            assert "the target's max.message.bytes is 2000" in str(stopped["detail"])
            assert contents(await read_all(target, where)) == contents(some_records(0, 15))
            await accept_all(link, target, "operation-1")
            found = await wait_for_records(target, where, 20)
        assert contents(found) == contents([*some_records(0, 15), *some_records(15, 5)])


async def test_a_limit_that_the_target_lowers_meanwhile_is_told_in_the_target_s_words(brokers: tuple[str, str]) -> None:
    link, where = fresh(brokers)
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, where.topic)
        await write(source, where, some_records(0, 5))
        async with running(link, limits=DRIFT_STAYS) as told:
            await wait_for_records(target, where, 5)
            lower = [("max.message.bytes", ConfigOperation.SET, "2000")]
            assert not await alter_topic_configs(target, {where.topic: lower})
            await write(source, where, [Record(0, 1_700_000_000_000, b"large", bytes(4000))])
            (stopped,) = await told.wait_for(Event.PARTITION_STOPPED)
        assert (stopped["reason"], stopped["source_from"]) == (GapKind.REFUSED_BATCH.value, 5)
        assert f"produce to {where} at west: " in str(stopped["detail"])


async def test_a_group_is_not_moved_by_the_map_of_a_topic_that_was_recreated(brokers: tuple[str, str]) -> None:
    group = f"readers-{uuid.uuid4().hex[:8]}"
    link, where = fresh(brokers, groups=(f"{group}.*",))
    later = TopicPartition(f"{where.topic}-later", 0)
    async with Cluster(link.source) as source, Cluster(link.target) as target:

        async def commit(name: str, at: TopicPartition, offset: int) -> None:
            await commit_offsets(source, name, {at: CommittedOffset(offset)})

        async def carried(name: str, at: TopicPartition, offset: int) -> None:
            async def there() -> bool:
                found = (await committed_offsets(target, name)).get(at)
                return found is not None and found.offset == offset + 1  # behind the marker of the first fence

            await eventually(there, f"{name} at {offset}")

        for topic in (where.topic, later.topic):
            await make_topic(source, topic)
            await write(source, TopicPartition(topic, 0), some_records(0, 10))
        await commit(group, where, 2)
        async with running(link):
            await carried(group, where, 2)
        await delete_topics(source, [where.topic])
        await make_topic(source, where.topic)
        await write(source, where, some_records(100, 20))
        await commit(group, where, 5)
        async with running(link) as told:
            await told.wait_for(Event.PARTITION_STOPPED)
            for offset in (3, 4):  # the second is carried by a pass that began after the first one's end
                await commit(f"{group}-other", later, offset)
                await carried(f"{group}-other", later, offset)
            await carried(group, where, 2)
