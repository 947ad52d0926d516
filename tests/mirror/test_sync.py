"""Topic, config and group passes, lag and status between two real brokers."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest

from broker.base.clock import SystemClock
from broker.client.cluster import Cluster
from broker.client.configs import alter_topic_configs, describe_topic_configs
from broker.client.errors import ClientError, KafkaError
from broker.client.groups import commit_offsets, committed_offsets
from broker.client.log import append
from broker.client.model import CommittedOffset
from broker.client.site import Site
from broker.client.topics import NewTopic, create_partitions, create_topics, delete_topics, describe_topics
from broker.wire.errors import ErrorCode
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import ConfigOperation, TopicPartition
from mirror.groups import GroupAction, GroupSyncMemory, sync_groups
from mirror.heartbeat import HeartbeatWatch
from mirror.lag import link_lag
from mirror.link import Link
from mirror.offsets.intervals import End, Interval
from mirror.offsets.offset_map import OffsetMap, PartitionMap
from mirror.status import LinkCondition, link_status
from mirror.topics.plan import ConfigChange, FindingKind
from mirror.topics.sync import find_concerns, sync_configs, sync_topics
from tests.interop.servers import FarshoreBroker


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FarshoreBroker, FarshoreBroker]]:
    folder = tmp_path_factory.mktemp("sites")
    with FarshoreBroker(folder / "east") as east, FarshoreBroker(folder / "west") as west:
        yield east, west


@dataclass
class Pair:
    """A link over a topic of this test's own."""

    link: Link
    source: Cluster
    target: Cluster
    topic: str

    @property
    def first(self) -> TopicPartition:
        return TopicPartition(self.topic, 0)


@pytest.fixture
async def pair(brokers: tuple[FarshoreBroker, FarshoreBroker]) -> AsyncIterator[Pair]:
    east, west = (Site(n, b.bootstrap) for n, b in zip(("east", "west"), brokers, strict=True))
    tag = uuid.uuid4().hex[:8]
    link = Link(f"link-{tag}", east, west, (f"t-{tag}.*",), "prefixed", (f"g-{tag}.*",))
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(Cluster(east))
        target = await stack.enter_async_context(Cluster(west))
        yield Pair(link, source, target, f"t-{tag}")


async def make(pair: Pair, partitions: int = 1, **configs: str) -> None:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    assert await create_topics(pair.source, [NewTopic(pair.topic, partitions, 1, named)]) == {}


async def own_configs(cluster: Cluster, topic: str) -> dict[str, str | None]:
    found = (await describe_topic_configs(cluster, [topic]))[topic]
    assert not isinstance(found, KafkaError)
    return {entry.name: entry.value for entry in found.values() if entry.is_topic_own}


async def test_topics_arrive_with_partitions_and_configs_and_grow(pair: Pair) -> None:
    await make(pair, 3, retention_ms="-1", cleanup_policy="compact", min_insync_replicas="1")
    report = await sync_topics(pair.link, pair.source, pair.target)
    there = f"east.{pair.topic}"
    assert report.created == (there,)
    assert not report.failures
    assert [(m.source_topic, m.target_topic, m.partitions) for m in report.mirrored] == [(pair.topic, there, 3)]
    assert await own_configs(pair.target, there) == {
        "retention.ms": "-1",
        "cleanup.policy": "compact",
        "message.timestamp.type": "CreateTime",
    }
    await create_partitions(pair.source, {pair.topic: 5})
    report = await sync_topics(pair.link, pair.source, pair.target)
    assert report.grown == (there,)
    assert report.mirrored[0].partitions == 5
    report = await sync_topics(pair.link, pair.source, pair.target)
    assert (report.created, report.grown, report.mirrored[0].partitions) == ((), (), 5)


async def test_a_recreated_source_topic_is_seen_by_its_id(pair: Pair) -> None:
    await make(pair)
    before = (await sync_topics(pair.link, pair.source, pair.target)).mirrored[0].source_topic_id
    await delete_topics(pair.source, [pair.topic])
    await make(pair)
    after = (await sync_topics(pair.link, pair.source, pair.target)).mirrored[0].source_topic_id
    assert before is not None
    assert after is not None
    assert before != after


async def test_drift_is_shown_first_and_applied_on_the_next_pass(pair: Pair) -> None:
    await make(pair, retention_ms="100000000")
    there = f"east.{pair.topic}"
    mirrored = (await sync_topics(pair.link, pair.source, pair.target)).mirrored
    changes = [("retention.ms", ConfigOperation.SET, "200000000")]
    assert await alter_topic_configs(pair.source, {pair.topic: changes}) == {}
    local = [("segment.ms", ConfigOperation.SET, "70000")]
    assert await alter_topic_configs(pair.target, {there: local}) == {}

    async def one_pass(shown: frozenset[ConfigChange]) -> tuple[frozenset[ConfigChange], int]:
        report = await sync_configs(pair.link, pair.source, pair.target, mirrored, shown)
        assert not report.failures
        return frozenset(report.planned), len(report.applied)

    planned, applied = await one_pass(frozenset())
    assert {(c.name, c.action.value) for c in planned} == {("retention.ms", "set"), ("segment.ms", "delete")}
    assert applied == 0
    assert (await own_configs(pair.target, there))["retention.ms"] == "100000000"
    planned, applied = await one_pass(planned)
    assert applied == 2
    assert await own_configs(pair.target, there) == {
        "retention.ms": "200000000",
        "message.timestamp.type": "CreateTime",
    }
    assert await one_pass(planned) == (frozenset(), 0)


async def test_records_that_the_target_would_refuse_or_delete_are_told(pair: Pair) -> None:
    await make(pair, retention_ms="-1")
    await append(pair.source, pair.first, encode_batch([Record(0, 1_356_998_400_000, None, b"2013")]))
    mirrored = (await sync_topics(pair.link, pair.source, pair.target)).mirrored
    now_ms = pair.source.clock.now_ms()
    assert await find_concerns(pair.source, pair.target, mirrored, now_ms) == []
    limits = [
        ("message.timestamp.before.max.ms", ConfigOperation.SET, "1000"),
        ("retention.ms", ConfigOperation.SET, "1000"),
    ]
    assert await alter_topic_configs(pair.target, {f"east.{pair.topic}": limits}) == {}
    found = {finding.kind for finding in await find_concerns(pair.source, pair.target, mirrored, now_ms)}
    assert found == {FindingKind.OLD_TIMESTAMPS_REFUSED, FindingKind.RETENTION_IS_SHORTER}


async def test_groups_are_carried_over_exactly_and_held_where_not_mirrored(pair: Pair) -> None:
    await make(pair, 3)
    await sync_topics(pair.link, pair.source, pair.target)
    group, skipped = pair.topic.replace("t-", "g-"), "x-" + pair.topic
    offsets = {
        TopicPartition(pair.topic, 0): CommittedOffset(12, "über"),
        TopicPartition(pair.topic, 1): CommittedOffset(0),
        TopicPartition(pair.topic, 2): CommittedOffset(5),
    }
    await commit_offsets(pair.source, group, offsets)
    await commit_offsets(pair.source, skipped, offsets)
    known = OffsetMap(
        {
            (pair.topic, 0): PartitionMap([Interval(0, 1), Interval(10, 21)], End(20, 31), 20),
            (pair.topic, 1): PartitionMap([], End(0, 0)),
        }
    )
    memory = GroupSyncMemory()
    report = await sync_groups(pair.link, pair.source, pair.target, known, memory)
    assert not report.failures
    assert report.count(GroupAction.COMMIT) == 2
    assert report.count(GroupAction.HOLD_NOT_MIRRORED) == 1
    there = {
        (where.partition, c.offset, c.metadata) for where, c in (await committed_offsets(pair.target, group)).items()
    }
    assert there == {(0, 23, "über"), (1, 0, "")}
    assert await committed_offsets(pair.target, skipped) == {}
    assert group not in memory.synced_at_ms
    known.partition(pair.topic, 2).intervals.append(Interval(0, 0))
    known.partition(pair.topic, 2).end = End(9, 9)
    report = await sync_groups(pair.link, pair.source, pair.target, known, memory)
    assert [d.action for d in report.decisions] == [
        GroupAction.UP_TO_DATE,
        GroupAction.UP_TO_DATE,
        GroupAction.COMMIT,
    ]
    assert group in memory.synced_at_ms
    await commit_offsets(pair.source, group, {TopicPartition(pair.topic, 0): CommittedOffset(3, "rewound")})
    await sync_groups(pair.link, pair.source, pair.target, known, memory)
    here = (await committed_offsets(pair.target, group))[TopicPartition(f"east.{pair.topic}", 0)]
    assert (here.offset, here.metadata) == (4, "rewound")


async def test_one_group_that_fails_does_not_stop_the_others(pair: Pair) -> None:
    """Its topic is missing at the target, which no retry mends."""
    await make(pair)
    good, bad = (f"{pair.topic.replace('t-', 'g-')}-{n}" for n in ("good", "bad"))
    missing = TopicPartition(f"{pair.topic}-missing", 0)
    await create_topics(pair.source, [NewTopic(missing.topic, 1, 1)])
    await commit_offsets(pair.source, good, {pair.first: CommittedOffset(1)})
    await commit_offsets(pair.source, bad, {missing: CommittedOffset(1)})
    await sync_topics(pair.link, pair.source, pair.target)
    await delete_topics(pair.target, [f"east.{missing.topic}"])
    maps = {(where.topic, 0): PartitionMap([Interval(0, 0)], End(2, 2)) for where in (pair.first, missing)}
    report = await sync_groups(pair.link, pair.source, pair.target, OffsetMap(maps), GroupSyncMemory())
    assert set(report.failures) == {bad}
    assert isinstance(report.failures[bad], ClientError)
    assert (await committed_offsets(pair.target, good))[TopicPartition(f"east.{pair.topic}", 0)].offset == 1


async def test_lag_of_a_link_that_never_ran_is_all_of_the_source(pair: Pair) -> None:
    await make(pair, 2)
    now_ms = pair.source.clock.now_ms()
    for _ in range(3):
        records = [Record(i, now_ms - 60_000 + i, b"k", b"v" * 100) for i in range(10)]
        await append(pair.source, pair.first, encode_batch(records))
    full, empty = await link_lag(pair.link, pair.source, pair.target)
    assert (full.lag_offsets, full.lag_records, full.lag_records_estimated) == (30, 30, False)
    assert not full.lag_bytes_estimated
    assert 3_000 < full.lag_bytes < 5_000
    assert 60 <= full.lag_seconds < 120
    assert full.lag_span_seconds == pytest.approx(0.009)
    assert full.mirrored_offset is None
    assert (empty.lag_records, empty.lag_bytes, empty.lag_seconds) == (0, 0, 0.0)
    status = await link_status(pair.link, HeartbeatWatch(SystemClock()))
    assert status.condition is LinkCondition.NEVER_RAN
    assert (status.lag_records, status.partitions, status.trouble) == (30, 2, "")


async def test_status_of_a_link_whose_source_is_lost(pair: Pair, unused_tcp_port: int) -> None:
    lost = Site("east", f"127.0.0.1:{unused_tcp_port}")
    link = Link(pair.link.name, lost, pair.link.target, pair.link.topics)
    status = await link_status(link, HeartbeatWatch(SystemClock()))
    assert (status.source_answers, status.target_answers) == (False, True)
    assert status.lag_records is None
    assert "east" in status.trouble
    assert (await describe_topics(pair.target, ["nothing"])) == {}
    assert ErrorCode.NONE == 0
