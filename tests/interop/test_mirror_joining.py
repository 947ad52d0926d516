"""Partitions that join a link while it runs, on Apache Kafka: with transactions of version 2 (KIP-890), and without."""

from __future__ import annotations

import uuid

import pytest

from broker.client.cluster import Cluster
from broker.client.errors import KafkaError
from broker.client.log import append
from broker.client.topics import create_partitions, delete_topics
from broker.wire.records import encode_batch
from broker.wire.vocabulary import TopicPartition
from mirror.errors import LinkFenced
from mirror.offsets.entries import GapKind, Writer
from mirror.offsets.fence import extend_fence, fence_link
from mirror.offsets.state import load_link_state
from mirror.offsets.state_writer import FENCED_CODES, ensure_own_topics
from mirror.worker.events import Event
from tests.interop.servers import KafkaServer
from tests.mirror.harness import (
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


@pytest.fixture(params=["3.9 to 4.3", "4.3 to 3.9"])
def pair(request: pytest.FixtureRequest, kafka_39: KafkaServer, kafka_43: KafkaServer) -> tuple[str, str]:
    """Bootstrap servers of a source and a target."""
    old, new = kafka_39.bootstrap, kafka_43.bootstrap
    return (old, new) if request.param == "3.9 to 4.3" else (new, old)


async def test_a_session_takes_new_topics_and_partitions_in_while_it_runs(pair: tuple[str, str]) -> None:
    topic = f"flights-{uuid.uuid4().hex[:8]}"
    old, grown, born = TopicPartition(topic, 0), TopicPartition(topic, 1), TopicPartition(f"{topic}-born", 0)
    link = link_between(*pair, [f"{topic}.*"])
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, topic)
        await write(source, old, some_records(0, 10))
        async with running(link) as told:
            await wait_for_records(target, old, 10)
            await make_topic(source, born.topic)
            assert not await create_partitions(source, {topic: 2})
            for where, start in ((born, 0), (grown, 0), (old, 10)):
                await write(source, where, some_records(start, 10))
            for where, count in ((born, 10), (grown, 10), (old, 20)):
                found = await wait_for_records(target, where, count)
                assert contents(found) == contents(some_records(0, 10) + some_records(10, count - 10))
            assert (told.count(Event.STARTED), told.of(Event.RENEWED), told.of(Event.RESTARTING)) == (1, [], [])
        for where in (born, grown):
            await write(source, where, some_records(10, 10))
        async with running(link) as told:
            for where in (born, grown, old):
                assert len(await wait_for_records(target, where, 20)) == 20
            assert not told.of(Event.PARTITION_STOPPED)
        found_map = (await load_link_state(link, target)).map
        for where in (born, grown):
            there = [record.offset for record in await read_all(target, where)]
            assert [found_map.to_target(*where, offset) for offset in range(20)] == there


async def test_topics_leave_and_come_again_while_a_session_runs(pair: tuple[str, str]) -> None:
    """One that the target lost: its leader expects the sequences of a log that holds a marker alone. And one that is
    made anew at the source."""
    topic = f"flights-{uuid.uuid4().hex[:8]}"
    kept, lost, anew = (TopicPartition(f"{topic}-{name}", 0) for name in ("kept", "lost", "anew"))
    link = link_between(*pair, [f"{topic}.*"])
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        for where in (kept, lost, anew):
            await make_topic(source, where.topic)
            await write(source, where, some_records(0, 10))
        async with running(link) as told:
            for where in (kept, lost, anew):
                await wait_for_records(target, where, 10)
            assert not await delete_topics(target, [lost.topic])
            assert not await delete_topics(source, [anew.topic])
            stopped = await told.wait_for(Event.PARTITION_STOPPED, 2)
            assert {(gap["topic"], gap["reason"]) for gap in stopped} == {
                (lost.topic, GapKind.TARGET_TRUNCATED),
                (anew.topic, GapKind.DELETED),
            }
            await accept_all(link, target, "op-1")
            await told.wait_for(Event.GAP_PASSED, 2)
            await make_topic(source, anew.topic)
            await told.wait_for(Event.PARTITION_STOPPED, 3)
            await accept_all(link, target, "op-2")
            for where in (kept, lost, anew):
                await write(source, where, some_records(10, 10))
            for where in (kept, lost, anew):
                assert contents(await wait_for_records(target, where, 20)) == contents(some_records(0, 20))
            assert (told.count(Event.STARTED), told.of(Event.RENEWED), told.of(Event.RESTARTING)) == (1, [], [])


async def test_a_fence_is_extended_and_moves_no_epoch(pair: tuple[str, str]) -> None:
    """From EndTxn's version 5 on (KIP-890) it would; and behind the marker the writer's sequences go on."""
    topic = f"flights-{uuid.uuid4().hex[:8]}"
    link = link_between(*pair, [topic])
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with Cluster(link.target) as target:
        await make_topic(target, topic, 2)
        await ensure_own_topics(target, link)
        before = (await fence_link(target, link)).writer
        now = (await fence_link(target, link, [first])).writer

        async def append_as(writer: Writer, where: TopicPartition, sequence: int) -> None:
            producer_id, epoch = writer
            records = some_records(0, 2)
            batch = encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
            await append(target, where, batch)

        await append_as(now, first, 0)
        await append_as(before, second, 0)
        for sequence in (0, 2):
            assert not (await extend_fence(target, link, now, [second])).left_out
            with pytest.raises(KafkaError) as refused:
                await append_as(before, second, 2)
            assert refused.value.code in FENCED_CODES
            await append_as(now, second, sequence)
            await append_as(now, first, sequence + 2)
        await fence_link(target, link, [first])
        with pytest.raises(LinkFenced):
            await extend_fence(target, link, now, [second])
