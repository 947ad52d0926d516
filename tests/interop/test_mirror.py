"""The mirror between real clusters: every record equal, every batch closed, positions exact."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from broker.client.cluster import Cluster
from broker.client.log import read_batches
from broker.client.offsets import log_end_offsets, log_start_offsets
from broker.client.topics import delete_records
from broker.wire.batch import BatchHeader
from broker.wire.compression import Compression
from broker.wire.records import Record
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets.operations import promote_link, resume_link
from mirror.offsets.state import load_link_state
from mirror.worker.events import Event
from tests.interop.servers import FarshoreBroker, KafkaServer
from tests.mirror.harness import (
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

PATCHED = {
    "base_offset": 0,
    "partition_leader_epoch": 0,
    "crc": 0,
    "producer_id": 0,
    "producer_epoch": 0,
    "base_sequence": 0,
}
"""The header's fields that the mirror may change."""


@dataclass(frozen=True)
class Pair:
    """Bootstrap servers of a source and a target."""

    source: str
    target: str


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Two of farshore's brokers."""
    with (
        FarshoreBroker(tmp_path_factory.mktemp("east")) as east,
        FarshoreBroker(tmp_path_factory.mktemp("west")) as west,
    ):
        yield east.bootstrap, west.bootstrap


@pytest.fixture(params=["ours-ours", "ours-kafka39", "kafka39-ours", "kafka39-kafka43", "kafka43-kafka39"])
def pair(request: pytest.FixtureRequest) -> Pair:
    source, target = request.param.split("-")

    def bootstrap(name: str, which: int) -> str:
        if name == "ours":
            return str(request.getfixturevalue("ours")[which])
        server: KafkaServer = request.getfixturevalue({"kafka39": "kafka_39", "kafka43": "kafka_43"}[name])
        return server.bootstrap

    return Pair(bootstrap(source, 0), bootstrap(target, 1))


@asynccontextmanager
async def sites(link: Link) -> AsyncIterator[tuple[Cluster, Cluster]]:
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        yield source, target


def fresh_topic() -> str:
    return f"flights-{uuid.uuid4().hex[:8]}"


async def data_batches(cluster: Cluster, where: TopicPartition) -> list[tuple[BatchHeader, bytes]]:
    start = (await log_start_offsets(cluster, [where]))[where]
    end = (await log_end_offsets(cluster, [where]))[where]
    return [(h, bytes(b)) async for h, b in read_batches(cluster, where, start, end) if not h.is_control]


async def test_records_arrive_equal_and_batches_stay_closed(pair: Pair) -> None:
    topic = fresh_topic()
    link = link_between(pair.source, pair.target, [topic])
    async with sites(link) as (source, target):
        await make_topic(source, topic, 2, retention_ms="-1", segment_ms="86400000")
        sent: dict[int, list[object]] = {0: [], 1: []}
        for number, codec in enumerate(Compression):
            for partition in sent:
                records = some_records(number * 1000, 60)
                await write(source, TopicPartition(topic, partition), records, codec)
                sent[partition] += contents(records)
        async with running(link):
            for partition, expected in sent.items():
                where = TopicPartition(topic, partition)
                assert contents(await wait_for_records(target, where, len(expected))) == expected
                theirs = await data_batches(source, where)
                ours = await data_batches(target, where)
                assert [h.compression for h, _ in ours] == [h.compression for h, _ in theirs]
                for (header, batch), (mirrored, copy) in zip(theirs, ours, strict=True):
                    assert copy[61:] == batch[61:]
                    assert mirrored._replace(**PATCHED) == header._replace(**PATCHED)


async def test_every_offset_translates_by_content_over_restarts(pair: Pair) -> None:
    topic = fresh_topic()
    where = TopicPartition(topic, 0)
    link = link_between(pair.source, pair.target, [topic])
    async with sites(link) as (source, target):
        await make_topic(source, topic)
        count = 0
        for _ in range(3):
            for _ in range(4):
                await write(source, where, some_records(count, 25), Compression.LZ4)
                count += 25
            async with running(link):
                await wait_for_records(target, where, count)
        assert [r.offset for r in await read_all(source, where)] == list(range(count))
        state = await load_link_state(link, target)
        landed = await read_all(target, where)
        assert contents(landed) == contents(await read_all(source, where))
        for source_offset, copy in enumerate(landed):
            assert state.map.to_target(topic, 0, source_offset) == copy.offset
            assert state.map.to_source(topic, 0, copy.offset) == source_offset
        assert state.map.mirrored_end(topic, 0) == (count, landed[-1].offset + 1)


async def test_aborted_transactions_are_not_mirrored(pair: Pair) -> None:
    topic = fresh_topic()
    where = TopicPartition(topic, 0)
    link = link_between(pair.source, pair.target, [topic])
    async with sites(link) as (source, target):
        await make_topic(source, topic)
        producer = AIOKafkaProducer(bootstrap_servers=pair.source, transactional_id=f"t-{topic}")
        await producer.start()
        async with running(link):
            try:
                for number in range(6):
                    await producer.begin_transaction()
                    for at in range(4):
                        await producer.send(topic, b"%d-%d" % (number, at), partition=0)
                    if number % 2:
                        await producer.abort_transaction()
                    else:
                        await producer.commit_transaction()
            finally:
                await producer.stop()
            last = some_records(0, 1)
            await write(source, where, last)
            found = await wait_for_records(target, where, 13)
        expected = [b"%d-%d" % (number, at) for number in (0, 2, 4) for at in range(4)]
        assert [record.value for record in found] == [*expected, last[0].value]
        state = await load_link_state(link, target)
        by_value = {record.value: record.offset for record in found}
        for record in await read_all(source, where):
            if record.value in by_value:
                assert state.map.to_target(topic, 0, record.offset) == by_value[record.value]
        # an offset inside of an aborted transaction translates to the next mirrored record
        aborted = next(r.offset for r in await read_all(source, where) if r.value == b"1-2")
        assert state.map.to_target(topic, 0, aborted) == by_value[b"2-0"]


async def test_retention_that_passes_the_mirror_stops_the_partition_until_it_is_accepted(pair: Pair) -> None:
    topic = fresh_topic()
    stopped, healthy = TopicPartition(topic, 0), TopicPartition(topic, 1)
    link = link_between(pair.source, pair.target, [topic])
    async with sites(link) as (source, target):
        await make_topic(source, topic, 2)
        for where in (stopped, healthy):
            await write(source, where, some_records(0, 10))
        async with running(link):
            for where in (stopped, healthy):
                await wait_for_records(target, where, 10)
        for where in (stopped, healthy):
            await write(source, where, some_records(10, 10))
        await write(source, stopped, some_records(20, 10))
        await delete_records(source, {stopped: 20})
        async with running(link) as told:
            await wait_for_records(target, healthy, 20)
            (event,) = told.of(Event.PARTITION_STOPPED)
            assert (event["reason"], event["source_from"], event["source_to"]) == ("truncated_start", 10, 20)
            assert len(await read_all(target, stopped)) == 10
            accepted = await accept_all(link, target, "op-1")
            assert [(gap.source_from, gap.source_to) for gap in accepted] == [(10, 20)]
            found = await wait_for_records(target, stopped, 20)
        assert contents(found) == contents([*some_records(0, 10), *some_records(20, 10)])
        state = await load_link_state(link, target)
        for source_offset in range(10, 21):
            assert state.map.to_target(topic, 0, source_offset) == found[10].offset


async def test_a_promoted_target_is_not_written_to(pair: Pair) -> None:
    topic = fresh_topic()
    where = TopicPartition(topic, 0)
    link = link_between(pair.source, pair.target, [topic])
    async with sites(link) as (source, target):
        await make_topic(source, topic)
        await write(source, where, some_records(0, 10))
        async with running(link) as told:
            await wait_for_records(target, where, 10)
            await promote_link(link, target, "failover-7")
            await write(source, where, some_records(10, 10))
            (paused,) = await told.wait_for(Event.PAUSED)
            assert "failover-7" in str(paused["reason"])
            assert len(await read_all(target, where)) == 10
            await resume_link(link, target, "resume-1")
            assert contents(await wait_for_records(target, where, 20)) == contents(some_records(0, 20))


async def test_the_broker_s_timestamps_stay_visible(pair: Pair) -> None:
    topic = fresh_topic()
    where = TopicPartition(topic, 0)
    link = link_between(pair.source, pair.target, [topic])
    async with sites(link) as (source, target):
        await make_topic(source, topic, message_timestamp_type="LogAppendTime")
        await write(source, where, some_records(0, 10), Compression.SNAPPY)
        await write(source, where, some_records(10, 10))
        async with running(link):
            found = await wait_for_records(target, where, 20)
        stamped = await read_all(source, where)
        assert contents(found) == contents(stamped) != contents(some_records(0, 20))


async def test_reverse_links_with_the_same_names_do_not_loop(pair: Pair) -> None:
    """Active-active: local writers at both sites, interleaved with the mirror; restarts resume exactly."""
    topic = fresh_topic()
    where = TopicPartition(topic, 0)
    there = link_between(pair.source, pair.target, [topic], shared_targets=True)
    back = Link(f"{there.name}-back", there.target, there.source, (topic,), shared_targets=True)
    async with sites(there) as (east, west):
        await make_topic(east, topic)
        await make_topic(west, topic)
        wrote: dict[str, list[bytes]] = {"east": [], "west": []}

        async def write_some(name: str, cluster: Cluster, batches: int) -> None:
            for _ in range(batches):
                start = len(wrote[name])
                values = [b"%s-%d" % (name.encode(), start + at) for at in range(7)]
                records = [r._replace(value=v) for r, v in zip(some_records(start, 7), values, strict=True)]
                await write(cluster, where, records)
                wrote[name] += values

        for _ in range(3):
            async with running(there, back):
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(write_some("east", east, 15))
                    tasks.create_task(write_some("west", west, 15))

                async def whole(cluster: Cluster) -> bool:
                    return len(await read_all(cluster, where)) >= len(wrote["east"]) + len(wrote["west"])

                await eventually(lambda: whole(east), "all records at east")
                await eventually(lambda: whole(west), "all records at west")
            await write_some("east", east, 2)
            await write_some("west", west, 2)
        async with running(there, back):
            await eventually(lambda: whole(east), "all records at east")
            await eventually(lambda: whole(west), "all records at west")
        at_east, at_west = await read_all(east, where), await read_all(west, where)
        for found in (at_east, at_west):
            for name, values in wrote.items():
                assert [r.value for r in found if (r.value or b"").startswith(name.encode())] == values
            assert len(found) == sum(map(len, wrote.values()))
        state = await load_link_state(there, west)
        landed = {record.value: record.offset for record in at_west}
        for record in at_east:
            if (record.value or b"").startswith(b"east"):
                assert state.map.to_target(topic, 0, record.offset) == landed[record.value]
                assert state.map.to_source(topic, 0, landed[record.value]) == record.offset


async def test_prefixed_names(pair: Pair) -> None:
    topic = fresh_topic()
    where = TopicPartition(topic, 0)
    link = link_between(pair.source, pair.target, [topic], topic_names="prefixed")
    prefixed = TopicPartition(f"east.{topic}", 0)
    async with sites(link) as (source, target):
        await make_topic(source, topic)
        await write(source, where, some_records(0, 30), Compression.ZSTD)
        async with running(link):
            found = await wait_for_records(target, prefixed, 30)
        assert contents(found) == contents(some_records(0, 30))


async def test_a_compacted_source_is_mirrored_without_its_offset_gaps(
    shared_broker: FarshoreBroker, tmp_path: Path
) -> None:
    overrides = {"log.cleaner.backoff.ms": "200", "log.initial.task.delay.ms": "100"}
    with KafkaServer("3.9.1", tmp_path / "kafka", overrides) as kafka:
        topic = fresh_topic()
        where = TopicPartition(topic, 0)
        link = link_between(kafka.bootstrap, shared_broker.bootstrap, [topic])
        compacting = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.0", "segment_ms": "500"}
        async with sites(link) as (source, target):
            await make_topic(source, topic, 1, **compacting, max_compaction_lag_ms="500")
            for start, step in ((0, 1), (20, 1), (40, 2)):  # the last values of the odd keys are in the second batch
                records = [Record(at, start + at, b"k%d" % (at * step % 8), b"v%d" % (start + at)) for at in range(20)]
                await write(source, where, records, Compression.ZSTD)
            roll = Record(0, 1_700_000_000_000, b"roll", b"the active segment is never cleaned")

            async def kept() -> list[Record]:
                return [record for record in await read_all(source, where) if record.key != roll.key]

            async def compacted() -> bool:
                await write(source, where, [roll])
                return len(await kept()) == 8

            await eventually(compacted, "the cleaner")
            expected = await kept()
            steps = {after.offset - before.offset for before, after in pairwise(expected)}
            assert len(steps) > 1, "there are no offset gaps inside of a batch"
            end = (await log_end_offsets(source, [where]))[where]
            async with running(link):

                async def mirrored() -> bool:
                    reached = (await load_link_state(link, target)).map.mirrored_end(topic, 0)
                    return reached is not None and reached.source_next >= end

                await eventually(mirrored, "the whole log")
            state = await load_link_state(link, target)
            found = [record for record in await read_all(target, where) if record.key != roll.key]
            assert contents(found) == contents(expected)
            for record, copy in zip(expected, found, strict=True):
                assert state.map.to_target(topic, 0, record.offset) == copy.offset
                assert state.map.to_source(topic, 0, copy.offset) == record.offset
