"""A source topic that is deleted: an entry in the ledger, said, and decided once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.client.cluster import Cluster
from broker.client.errors import KafkaError
from broker.client.model import Partition, Topic
from broker.client.site import Site
from broker.client.topics import delete_topics
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition
from mirror.heartbeat import HeartbeatWatch
from mirror.link import Link
from mirror.link_finding import LinkFindingKind
from mirror.offsets.entries import Checkpoint, Gap, GapKind, GapStatus, Writer
from mirror.offsets.intervals import End, Interval
from mirror.offsets.paged import Intervals
from mirror.offsets.recovery import Recovered
from mirror.offsets.state import read_entries
from mirror.offsets.tail import Tail
from mirror.status import link_status
from mirror.topics.seen import TopicsSeen
from mirror.worker.deletion import deleted_partitions, judge_deletion
from mirror.worker.events import Event
from mirror.worker.resume import Evidence, SourceLog, open_partition
from tests.mirror.harness import (
    Later,
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

LINK = Link("east-west", Site("east", "e:1"), Site("west", "w:1"), ("flights|orders",))
CHECKPOINT = Checkpoint("flights", 0, End(10, 12), 14, Writer(7, 3), 0, 20, -1, 1_000)
FOUND = Recovered(End(13, 15), 13, Intervals(), (), 3)


def topic(name: str, *numbers: int) -> Topic:
    return Topic(name, None, False, tuple(Partition(number, 1, 0, (1,), (1,)) for number in numbers))


def seen(*topics: Topic) -> TopicsSeen:
    return TopicsSeen({topic.name: topic for topic in topics}, {}, {}, {})


def judged(*known: Gap, now_ms: int = 2_000, checkpoint: Checkpoint = CHECKPOINT) -> tuple[Gap, ...]:
    return judge_deletion(LINK, checkpoint, FOUND, list(known), now_ms)


def test_only_what_should_be_mirrored_and_was_can_be_missed() -> None:
    checkpoints = {
        (name, number): replace(CHECKPOINT, topic=name, partition=number)
        for name in ("flights", "orders", "unselected", "undescribed")
        for number in (0, 1)
    }
    link = replace(LINK, topics=("flights|orders|undescribed",))
    refused = {"undescribed": KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "undescribed")}
    looked = replace(seen(topic("flights", 0), topic("new", 0)), source_failures=refused)
    assert set(deleted_partitions(link, checkpoints, looked)) == {("flights", 1), ("orders", 0), ("orders", 1)}
    everything = seen(topic("flights", 0, 1), topic("orders", 0, 1), topic("undescribed", 1, 0))
    assert deleted_partitions(link, checkpoints, everything) == {}


def test_the_entry_says_what_was_not_mirrored_by_what_landed() -> None:
    (gap,) = judged()
    assert (gap.kind, gap.status, gap.source_from, gap.source_to) == (GapKind.DELETED, GapStatus.STOPPED, 13, 20)
    assert (gap.target_offset, gap.at_ms) == (15, 2_000)
    assert "up to 7 of its records were not mirrored" in gap.detail
    (whole,) = judged(checkpoint=replace(CHECKPOINT, source_end_offset=9))
    assert (whole.source_from, whole.source_to) == (13, 13)
    assert "all that was seen of it was mirrored" in whole.detail


def test_an_entry_keeps_its_time_and_closes_what_stopped_the_partition_before() -> None:
    (gap,) = judged()
    assert judged(gap, now_ms=9_000) == (gap,)
    before = replace(gap, kind=GapKind.FOREIGN_WRITER, source_from=5)
    assert judged(before, now_ms=2_000) == (gap, replace(before, status=GapStatus.GONE))


def test_what_a_person_closed_stays_closed() -> None:
    (gap,) = judged()
    passed = replace(gap, status=GapStatus.PASSED)
    assert judged(replace(gap, status=GapStatus.ACCEPTED), now_ms=9_000) == (passed,)
    assert judged(passed, now_ms=9_000) == (passed,)


@pytest.mark.parametrize("status", [GapStatus.STOPPED, GapStatus.ACCEPTED])
def test_a_topic_that_was_only_hidden_goes_on_where_it_was_and_skips_nothing(status: GapStatus) -> None:
    """Its list was wrong for a moment: neither waits anybody for a decision, nor is one applied to what is there."""
    hidden = Gap("flights", 0, GapKind.DELETED, 14, 20, 12, status, 2_000, "gone")
    evidence = Evidence(
        where=TopicPartition("flights", 0),
        shared=False,
        source=SourceLog(0, 25, "", ""),
        tail=Tail(0, 12),
        recorded=Intervals([Interval(0, 2)]),
        blocks=(),
        checkpoint=CHECKPOINT,
        now_ms=3_000,
        gaps=(hidden,),
    )
    opening = open_partition(evidence, Writer(7, 4))
    assert (opening.gap, opening.passed, opening.position) == (None, (), 14)
    assert replace(hidden, status=GapStatus.GONE) in opening.changes


async def ledger(link: Link, target: Cluster, where: TopicPartition) -> list[tuple[GapKind, GapStatus]]:
    gaps = (await read_entries(link, target)).gaps.values()
    return [(gap.kind, gap.status) for gap in gaps if (gap.topic, gap.partition) == where]


async def test_a_deleted_topic_is_told_and_decided_once_and_harms_no_other(brokers: tuple[str, str]) -> None:
    name = f"flights-{id(brokers):x}"
    link = link_between(*brokers, [f"{name}.*"])
    where, other = TopicPartition(name, 0), TopicPartition(f"{name}-other", 0)
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        for topic_name in (where.topic, other.topic):
            await make_topic(source, topic_name)
        await write(source, where, some_records(0, 10))
        async with running(link) as told:
            await wait_for_records(target, where, 10)
            await delete_topics(source, [where.topic])
            (stopped,) = await told.wait_for(Event.PARTITION_STOPPED)
            assert (stopped["topic"], stopped["reason"], stopped["source_from"]) == (where.topic, GapKind.DELETED, 10)
            assert link.name in str(stopped["hint"])
            await write(source, other, some_records(0, 5))
            await wait_for_records(target, other, 5)
            status = await link_status(link, HeartbeatWatch(target.clock))
            assert [(f.kind, f.topic) for f in status.findings] == [(LinkFindingKind.PARTITION_STOPPED, where.topic)]
            assert await ledger(link, target, where) == [(GapKind.DELETED, GapStatus.STOPPED)]
            await accept_all(link, target, "op")
            await told.wait_for(Event.GAP_PASSED)
        async with running(link) as told:
            await told.wait_for(Event.STARTED)
            assert not told.of(Event.PARTITION_STOPPED)
            assert not told.of(Event.GAP_PASSED)
        assert await ledger(link, target, where) == [(GapKind.DELETED, GapStatus.PASSED)]
        assert len(await read_all(target, where)) == 10
        await make_topic(source, where.topic)
        await write(source, where, some_records(100, 5))
        async with running(link) as told:
            (stopped,) = await told.wait_for(Event.PARTITION_STOPPED)
            assert stopped["reason"] == GapKind.RECREATED
            await told.wait_for(Event.STARTED)
            await accept_all(link, target, "op-2")
            found = await wait_for_records(target, where, 15)
        assert contents(found[10:]) == contents(some_records(100, 5))


async def test_what_is_gone_from_both_sites_leaves_the_state(brokers: tuple[str, str]) -> None:
    """Or every start would read its tails for ever. While the target has a copy, the state says of what."""
    name = f"both-flights-{id(brokers):x}"
    link = link_between(*brokers, [f"{name}.*"])
    where, other = TopicPartition(name, 0), TopicPartition(f"{name}-other", 0)
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        for at in (where, other):
            await make_topic(source, at.topic)
            await write(source, at, some_records(0, 10))
        async with running(link) as told:
            for at in (where, other):
                await wait_for_records(target, at, 10)
            await delete_topics(source, [where.topic])
            await told.wait_for(Event.PARTITION_STOPPED)
            await accept_all(link, target, "op")
            await told.wait_for(Event.GAP_PASSED)
        entries = await read_entries(link, target)
        assert entries.checkpoints.keys() == {where, other}
        await delete_topics(target, [where.topic])
        async with running(link) as told:
            await told.wait_for(Event.STARTED)
        entries = await read_entries(link, target)
        assert entries.checkpoints.keys() == {other}
        assert entries.topic_ids.keys() == {other.topic}
        assert not entries.blocks_of(*where)
        assert await ledger(link, target, where) == [(GapKind.DELETED, GapStatus.PASSED)]
        await make_topic(source, where.topic)
        await write(source, where, some_records(100, 5))
        async with running(link) as told:
            found = await wait_for_records(target, where, 5)
            assert not told.of(Event.PARTITION_STOPPED)
        assert contents(found) == contents(some_records(100, 5))


async def test_a_topic_that_is_deleted_once_more_is_told_once_more_whatever_the_clocks_say(
    brokers: tuple[str, str],
) -> None:
    """The first time was found by a worker whose clock is an hour ahead of the next one's."""
    name = f"again-{id(brokers):x}"
    link, where = link_between(*brokers, [name]), TopicPartition(name, 0)
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, name)
        await write(source, where, some_records(0, 10))
        async with running(link, clock=Later(by_ms=3_600_000)) as told:
            await wait_for_records(target, where, 10)
            await delete_topics(source, [name])
            await told.wait_for(Event.PARTITION_STOPPED)
            await accept_all(link, target, "first")
            await told.wait_for(Event.GAP_PASSED)
        await make_topic(source, name)
        await write(source, where, some_records(100, 5))
        async with running(link) as told:
            (recreated,) = await told.wait_for(Event.PARTITION_STOPPED)
            assert recreated["reason"] == GapKind.RECREATED
            await accept_all(link, target, "recreated")
            await wait_for_records(target, where, 15)
            await delete_topics(source, [name])
            *_, again = await told.wait_for(Event.PARTITION_STOPPED, 2)
            assert (again["reason"], again["source_from"]) == (GapKind.DELETED, 5)
        statuses = [status for kind, status in await ledger(link, target, where) if kind is GapKind.DELETED]
        assert sorted(statuses) == [GapStatus.PASSED, GapStatus.STOPPED]
