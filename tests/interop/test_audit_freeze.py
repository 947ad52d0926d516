"""What the audit freezes of a real cluster, from a link state written by hand."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from broker.client.cluster import Cluster
from broker.client.configs import alter_topic_configs
from broker.client.log import append
from broker.client.site import Site
from broker.client.topics import (
    NewTopic,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_topics,
    list_topics,
)
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import ConfigOperation, TopicPartition
from mirror.link import STATE_PREFIX, Link
from mirror.offsets.entries import (
    Block,
    Checkpoint,
    Entry,
    LinkRun,
    RunState,
    Writer,
    encode_key,
    encode_value,
)
from mirror.offsets.intervals import End, Interval
from mirror.offsets.topic_entries import TopicIdentity
from monitoring.audit.freeze import freeze_link
from monitoring.audit.history import Scope
from monitoring.audit.model import FrozenLink, FrozenPartition, ProvedPart, Side, Span, Step
from monitoring.audit.proof import LinkProof, Proof
from monitoring.audit.ranges import comparable
from monitoring.audit.reasons import ProofLoss, Reason
from monitoring.errors import AuditError
from tests.interop.brokers import KEEPS_ALL

# An id that no producer of these tests has: what stands behind the checkpoint is then somebody else's.
MIRROR = Writer(987_654, 0)
HAND_WRITTEN = f"{STATE_PREFIX}freeze-"


@pytest.fixture(autouse=True)
async def no_state_is_left(kafka_39: Any) -> AsyncIterator[None]:
    """A state written by hand, of a link that is not registered, would hold up every link that reads this cluster."""
    yield
    async with Cluster(Site("east", kafka_39.bootstrap)) as cluster:
        await delete_topics(cluster, [name for name in await list_topics(cluster) if name.startswith(HAND_WRITTEN)])


@pytest.fixture(params=["kafka_39", "shared_broker"])
def both_kinds(request: pytest.FixtureRequest) -> Any:
    """Apache Kafka, and farshore's own broker."""
    return request.getfixturevalue(request.param)


def new_link(bootstrap: str) -> Link:
    """A link from a cluster to itself, with prefixed names: one cluster is both sites."""
    name = f"freeze-{uuid.uuid4().hex[:8]}"
    site = Site("east", bootstrap)
    return Link(name, site, replace(site, name="west"), (f"{name}-.*",), "prefixed")


async def write(cluster: Cluster, topic: str, number: int) -> None:
    batch = [Record(offset, 1_000 + offset, b"k", str(offset).encode(), ()) for offset in range(number)]
    await append(cluster, TopicPartition(topic, 0), encode_batch(batch))


async def prepared(cluster: Cluster, link: Link, entries: Sequence[Entry], source: int, target: int) -> str:
    """Topic, mirrored topic and state topic; returns the source topic's name."""
    topic = f"{link.name}-data"
    names = [topic, link.target_topic(topic), link.state_topic]
    assert not await create_topics(cluster, [NewTopic(name, partitions=1, configs=KEEPS_ALL) for name in names])
    if source:
        await write(cluster, topic, source)
    if target:
        await write(cluster, link.target_topic(topic), target)
    now_ms = time.time_ns() // 1_000_000
    records = [Record(n, now_ms, encode_key(entry), encode_value(entry), ()) for n, entry in enumerate(entries)]
    if records:
        await append(cluster, TopicPartition(link.state_topic, 0), encode_batch(records))
    return topic


def mirrored(topic: str, intervals: Sequence[Interval], end: End) -> list[Entry]:
    blocks = [Block(topic, 0, MIRROR, 0, (interval,)) for interval in intervals]
    return [*blocks, Checkpoint(topic, 0, end, end.source_next, MIRROR, 0, end.source_next, 1_000, 1_000)]


async def frozen(cluster: Cluster, link: Link) -> tuple[FrozenLink, FrozenPartition]:
    link_now = await freeze_link(link, cluster, cluster, lambda: 1)
    (partition,) = link_now.partitions
    return link_now, partition


async def test_a_mirrored_partition(kafka_39: Any) -> None:
    link = new_link(kafka_39.bootstrap)
    async with Cluster(link.source) as cluster:
        topic = f"{link.name}-data"
        entries = mirrored(topic, [Interval(0, 0), Interval(6, 7)], End(10, 11))
        await prepared(cluster, link, entries, source=12, target=11)
        whole, partition = await frozen(cluster, link)
    assert whole.source.cluster_id
    assert partition.source == Span(0, 12)
    assert partition.target == Span(0, 11)
    assert partition.steps == (Step(0, 0), Step(6, 7))
    assert partition.mirrored_end == (10, 11)
    assert partition.timestamps_comparable
    odd = (partition.recreated, partition.compacted, partition.shared_target, partition.local_tail)
    assert odd == (False, False, False, False)


def proved_of(found: FrozenLink) -> LinkProof:
    """As if an audit had found all of it to be equal."""
    item = found.partitions[0]
    part, _ = comparable(item)
    assert part is not None
    assert item.marks is not None
    whole = ProvedPart(part.source, part.target, part.source.offsets, part.target.offsets, 1, "run-1")
    known = Proof(item.topic, 0, item.target_topic, item.marks, item.timestamps_comparable, False, 0, (whole,))
    return LinkProof(found.link, (known,))


async def test_what_is_proved_is_carried_on_until_a_log_is_another(both_kinds: Any) -> None:
    link = new_link(both_kinds.bootstrap)
    async with Cluster(link.source) as cluster:
        topic = f"{link.name}-data"
        await prepared(cluster, link, mirrored(topic, [Interval(0, 0)], End(10, 10)), source=10, target=10)
        first, _ = await frozen(cluster, link)
        scope = Scope(proved_of(first))
        await write(cluster, topic, 5)
        await write(cluster, link.target_topic(topic), 5)
        state = TopicPartition(link.state_topic, 0)
        landed = enumerate(mirrored(topic, [Interval(0, 0)], End(15, 15)))
        await append(cluster, state, encode_batch([Record(n, 1, *_of(entry), ()) for n, entry in landed]))
        await delete_records(cluster, {TopicPartition(topic, 0): 4})
        second = await freeze_link(link, cluster, cluster, lambda: 1, scope)
        found, left_out = comparable(second.partitions[0])
        assert second.lost == ()
        assert found is not None
        assert (found.source, found.target) == (Span(10, 15), Span(10, 15))
        assert [(part.source, part.target, part.source_records) for part in found.proved] == [
            (Span(4, 10), Span(4, 10), 6)
        ]
        assert [item.reason for item in left_out] == [Reason.EXPIRED_AT_SOURCE]
        since = await freeze_link(link, cluster, cluster, lambda: 1, replace(scope, since_ms=1_002))
        assert since.partitions[0].since == 4
        with pytest.raises(AuditError, match="mirrors no topic nowhere"):
            await freeze_link(link, cluster, cluster, lambda: 1, replace(scope, topics=("nowhere",)))
        assert not await delete_topics(cluster, [link.target_topic(topic)])
        while link.target_topic(topic) in await list_topics(cluster):
            pass
        assert not await create_topics(cluster, [NewTopic(link.target_topic(topic), partitions=1, configs=KEEPS_ALL)])
        await write(cluster, link.target_topic(topic), 15)
        third = await freeze_link(link, cluster, cluster, lambda: 1, scope)
    assert [(item.topic, item.why) for item in third.lost] == [(topic, ProofLoss.TOPIC_RECREATED)]
    assert third.partitions[0].proved == ()


async def test_a_record_that_others_wrote_behind_the_mirror_is_compared(kafka_39: Any) -> None:
    link = new_link(kafka_39.bootstrap)
    async with Cluster(link.source) as cluster:
        entries = mirrored(f"{link.name}-data", [Interval(0, 0)], End(10, 10))
        await prepared(cluster, link, entries, source=10, target=11)
        _, partition = await frozen(cluster, link)
        found, left_out = comparable(partition)
        assert found is not None
        assert (found.source, found.target, left_out) == (Span(0, 10), Span(0, 11), ())
        promoted = Record(0, 1, *_of(LinkRun(RunState.PROMOTED, "op-1", 1)), ())
        await append(cluster, TopicPartition(link.state_topic, 0), encode_batch([promoted]))
        _, partition = await frozen(cluster, link)
    found, left_out = comparable(partition)
    assert found is not None
    assert found.target == Span(0, 10)
    assert [(item.side, item.reason, item.span) for item in left_out] == [
        (Side.TARGET, Reason.BEYOND_THE_MIRROR, Span(10, 11))
    ]


async def test_a_target_that_lost_records_behind_a_checkpoint_stays_behind(kafka_39: Any) -> None:
    link = new_link(kafka_39.bootstrap)
    async with Cluster(link.source) as cluster:
        entries = mirrored(f"{link.name}-data", [Interval(0, 0)], End(10, 10))
        await prepared(cluster, link, entries, source=10, target=7)
        _, partition = await frozen(cluster, link)
    found, _ = comparable(partition)
    assert found is not None
    assert (found.source, found.target) == (Span(0, 10), Span(0, 7))


async def test_topics_that_cannot_be_compared_as_they_are(kafka_39: Any) -> None:
    link = new_link(kafka_39.bootstrap)
    async with Cluster(link.source) as cluster:
        topic = f"{link.name}-data"
        entries = [*mirrored(topic, [Interval(0, 0)], End(5, 5)), TopicIdentity(topic, str(uuid.uuid4()))]
        await prepared(cluster, link, entries, source=5, target=5)
        changes = {
            topic: [("cleanup.policy", ConfigOperation.SET, "compact")],
            link.target_topic(topic): [("message.timestamp.type", ConfigOperation.SET, "LogAppendTime")],
        }
        assert not await alter_topic_configs(cluster, changes)
        _, partition = await frozen(cluster, link)
        assert (await describe_topics(cluster, [topic]))[topic].topic_id is not None
    assert partition.compacted
    assert partition.recreated
    assert not partition.timestamps_comparable


async def test_a_source_that_was_recreated_empty(kafka_39: Any) -> None:
    link = new_link(kafka_39.bootstrap)
    async with Cluster(link.source) as cluster:
        topic = f"{link.name}-data"
        entries = [*mirrored(topic, [Interval(0, 0)], End(5, 5)), TopicIdentity(topic, str(uuid.uuid4()))]
        await prepared(cluster, link, entries, source=0, target=5)
        _, partition = await frozen(cluster, link)
    found, left_out = comparable(partition)
    assert found is None
    assert [(item.side, item.reason, item.span) for item in left_out] == [
        (Side.SOURCE, Reason.SOURCE_RECREATED, Span(0, 0)),
        (Side.TARGET, Reason.SOURCE_RECREATED, Span(0, 5)),
    ]


async def test_a_source_that_was_deleted(kafka_39: Any) -> None:
    link = new_link(kafka_39.bootstrap)
    async with Cluster(link.source) as cluster:
        entries = mirrored(f"{link.name}-data", [Interval(0, 0)], End(5, 5))
        topic = await prepared(cluster, link, entries, source=5, target=5)
        assert not await delete_topics(cluster, [topic])
        while topic in await list_topics(cluster):
            pass
        _, partition = await frozen(cluster, link)
    assert (partition.left_out, partition.target) == (Reason.SOURCE_DELETED, Span(0, 5))


async def test_a_partition_that_only_the_target_has(kafka_39: Any) -> None:
    link = new_link(kafka_39.bootstrap)
    async with Cluster(link.source) as cluster:
        entries = mirrored(f"{link.name}-data", [Interval(0, 0)], End(5, 5))
        topic = link.target_topic(await prepared(cluster, link, entries, source=5, target=5))
        assert not await create_partitions(cluster, {topic: 2})
        await append(cluster, TopicPartition(topic, 1), encode_batch([Record(0, 1, b"k", b"foreign", ())]))
        whole = await freeze_link(link, cluster, cluster, lambda: 1)
    found, left_out = comparable(whole.partitions[1])
    assert found is not None
    assert (found.source, found.target, left_out) == (Span(0, 0), Span(0, 1), ())


async def test_a_transaction_that_is_open_at_the_target(kafka_39: Any) -> None:
    link = new_link(kafka_39.bootstrap)
    async with Cluster(link.source) as cluster:
        entries = mirrored(f"{link.name}-data", [Interval(0, 0)], End(5, 5))
        topic = link.target_topic(await prepared(cluster, link, entries, source=5, target=5))
        producer = AIOKafkaProducer(bootstrap_servers=kafka_39.bootstrap, transactional_id=link.name, acks="all")
        await producer.start()
        try:
            async with producer.transaction():
                await producer.send_and_wait(topic, b"local", partition=0)
                await write(cluster, topic, 3)
                _, partition = await frozen(cluster, link)
        finally:
            await producer.stop()
    found, left_out = comparable(partition)
    assert found is not None
    assert (found.source, found.target) == (Span(0, 5), Span(0, 5))
    assert [(item.side, item.reason, item.span) for item in left_out] == [
        (Side.TARGET, Reason.OPEN_TRANSACTION, Span(5, 9))
    ]


async def test_timestamps_in_nanoseconds(kafka_39: Any) -> None:
    link = new_link(kafka_39.bootstrap)
    async with Cluster(link.source) as cluster:
        topic = f"{link.name}-data"
        await prepared(cluster, link, mirrored(topic, [Interval(0, 0)], End(2, 2)), source=1, target=1)
        odd = encode_batch([Record(0, 1_700_000_000_000_000_000, b"k", b"v", ())])
        for name in (topic, link.target_topic(topic)):
            await append(cluster, TopicPartition(name, 0), odd)
        _, partition = await frozen(cluster, link)
    assert partition.left_out is Reason.TIMESTAMP_NOT_READABLE


async def test_a_link_that_never_ran(kafka_39: Any) -> None:
    link = new_link(kafka_39.bootstrap)
    async with Cluster(link.source) as cluster:
        await prepared(cluster, link, [], source=3, target=0)
        _, partition = await frozen(cluster, link)
    found, left_out = comparable(partition)
    assert found is None
    assert [(item.reason, item.span) for item in left_out] == [(Reason.NEVER_MIRRORED, Span(0, 3))]


def _of(entry: Entry) -> tuple[bytes, bytes]:
    return encode_key(entry), encode_value(entry)
