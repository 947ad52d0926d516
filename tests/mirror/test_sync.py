"""Topic, config and group passes, lag and status between two real brokers."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import pytest

from broker.base.clock import SystemClock
from broker.client.cluster import Cluster
from broker.client.configs import alter_topic_configs, describe_topic_configs
from broker.client.errors import ClientError, KafkaError
from broker.client.groups import commit_offsets, committed_offsets, delete_groups
from broker.client.log import append
from broker.client.model import CommittedOffset
from broker.client.site import Site
from broker.client.topics import NewTopic, create_partitions, create_topics, delete_topics, describe_topics
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import ConfigOperation, TopicPartition
from mirror.groups.sync import GroupSyncMemory, GroupSyncReport, sync_groups
from mirror.heartbeat import HeartbeatWatch
from mirror.lag import link_lag
from mirror.link import Link
from mirror.offsets.entries import Entry, Void, decode_entry, decode_key, encode_key, encode_value
from mirror.offsets.group_entries import GroupAction, GroupSync, GroupSyncs, GroupSyncTimes, VoidGroup, Written
from mirror.offsets.intervals import End, Interval
from mirror.offsets.offset_map import OffsetMap, PartitionMap
from mirror.offsets.shared import GroupMap
from mirror.offsets.state_writer import Change
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


@dataclass
class KeptState:
    """What a link's state topic would hold of groups, through its own encoding: it outlives a session."""

    entries: dict[str, GroupSync] = field(default_factory=dict)
    times: GroupSyncTimes = field(default_factory=GroupSyncTimes)
    changes: list[Change] = field(default_factory=list)

    async def write(self, changes: Sequence[Change]) -> None:
        self.changes += changes
        for change in changes:
            if isinstance(change, VoidGroup):
                del self.entries[change.group]
                continue
            assert not isinstance(change, Void)
            entry: Entry = decode_entry(decode_key(encode_key(change)), encode_value(change))
            if isinstance(entry, GroupSync):
                self.entries[entry.group] = entry
            else:
                assert isinstance(entry, GroupSyncTimes)
                self.times = entry

    def memory(self) -> GroupSyncMemory:
        """As a new session finds it."""
        return GroupSyncMemory.of(self.syncs)

    @property
    def syncs(self) -> GroupSyncs:
        return GroupSyncs(dict(self.entries), self.times)


async def one_pass(
    pair: Pair, known: OffsetMap, kept: KeptState, memory: GroupSyncMemory | None = None
) -> GroupSyncReport:
    """A pass of a new session, unless it is given what the last one remembers."""

    async def load_map() -> GroupMap:
        return GroupMap(known)

    return await sync_groups(pair.link, pair.source, pair.target, load_map, memory or kept.memory(), kept.write)


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
    kept = KeptState()
    report = await one_pass(pair, known, kept)
    assert not report.failures
    assert report.count(GroupAction.COMMIT) == 2
    assert report.count(GroupAction.HOLD_NOT_MIRRORED) == 1
    there = {
        (where.partition, c.offset, c.metadata) for where, c in (await committed_offsets(pair.target, group)).items()
    }
    assert there == {(0, 23, "über"), (1, 0, "")}
    assert await committed_offsets(pair.target, skipped) == {}
    assert group not in kept.syncs.synced_at_ms
    assert kept.entries[group].waiting == {(pair.topic, 2): GroupAction.HOLD_NOT_MIRRORED}
    known.partition(pair.topic, 2).intervals.put(Interval(0, 0))
    known.partition(pair.topic, 2).end = End(9, 9)
    report = await one_pass(pair, known, kept)
    assert [d.action for d in report.decisions] == [
        GroupAction.UP_TO_DATE,
        GroupAction.UP_TO_DATE,
        GroupAction.COMMIT,
    ]
    assert group in kept.syncs.synced_at_ms
    await commit_offsets(pair.source, group, {TopicPartition(pair.topic, 0): CommittedOffset(3, "rewound")})
    await one_pass(pair, known, kept)
    here = (await committed_offsets(pair.target, group))[TopicPartition(f"east.{pair.topic}", 0)]
    assert (here.offset, here.metadata) == (4, "rewound")


def mapped(pair: Pair) -> OffsetMap:
    """One for one, from 1."""
    return OffsetMap({(pair.topic, 0): PartitionMap([Interval(0, 1)], End(20, 21), 20)})


async def at_target(pair: Pair, group: str) -> int:
    return (await committed_offsets(pair.target, group))[TopicPartition(f"east.{pair.topic}", 0)].offset


async def test_a_group_set_back_while_no_mirror_ran_goes_back_too(pair: Pair) -> None:
    """What the link wrote stands in its state: also for a session that begins later."""
    await make(pair)
    await sync_topics(pair.link, pair.source, pair.target)
    group, kept = pair.topic.replace("t-", "g-"), KeptState()
    await commit_offsets(pair.source, group, {pair.first: CommittedOffset(12)})
    await one_pass(pair, mapped(pair), kept)
    assert await at_target(pair, group) == 13
    await commit_offsets(pair.source, group, {pair.first: CommittedOffset(3)})
    await one_pass(pair, mapped(pair), kept)
    assert await at_target(pair, group) == 4
    await commit_offsets(pair.target, group, {TopicPartition(f"east.{pair.topic}", 0): CommittedOffset(9)})
    await commit_offsets(pair.source, group, {pair.first: CommittedOffset(2)})
    await one_pass(pair, mapped(pair), kept)
    assert await at_target(pair, group) == 9, "not where the link had put it"
    assert kept.entries[group].waiting == {(pair.topic, 0): GroupAction.SKIP_MOVED_ON}


async def test_the_state_is_written_before_the_commit_and_then_only_on_change(pair: Pair) -> None:
    await make(pair)
    await sync_topics(pair.link, pair.source, pair.target)
    group, kept = pair.topic.replace("t-", "g-"), KeptState()
    await commit_offsets(pair.source, group, {pair.first: CommittedOffset(12)})
    before: list[dict[TopicPartition, CommittedOffset]] = []

    class Looking(KeptState):
        async def write(self, changes: Sequence[Change]) -> None:
            if any(isinstance(change, GroupSync) for change in changes):
                before.append(await committed_offsets(pair.target, group))
            await super().write(changes)

    kept = Looking()
    memory = kept.memory()
    await one_pass(pair, mapped(pair), kept, memory)
    assert before == [{}], "written once, ahead"
    assert kept.entries[group].written == {(pair.topic, 0): Written(12, 13)}
    first = kept.syncs.synced_at(group)
    assert first is not None
    kept.changes.clear()
    await one_pass(pair, mapped(pair), kept, memory)
    assert [type(change) for change in kept.changes] == [GroupSyncTimes], "nothing changed: only that it was looked"
    second = kept.syncs.synced_at(group)
    assert second is not None
    assert second > first


async def test_the_record_of_all_groups_is_read_and_replaced(pair: Pair) -> None:
    """An earlier version wrote the times of all groups into one record."""
    await make(pair)
    await sync_topics(pair.link, pair.source, pair.target)
    group, gone = pair.topic.replace("t-", "g-"), pair.topic.replace("t-", "g-") + "-gone"
    kept = KeptState(times=GroupSyncTimes({group: 5, gone: 6}))
    await commit_offsets(pair.source, group, {pair.first: CommittedOffset(30)})
    assert kept.syncs.synced_at_ms == {group: 5, gone: 6}
    await one_pass(pair, mapped(pair), kept)
    assert kept.syncs.synced_at_ms == {group: 5}, "it is held: when it was last equal is known from before"
    assert kept.times.synced_at_ms == {}


async def test_a_group_that_is_gone_at_the_source_leaves_the_state(pair: Pair) -> None:
    await make(pair)
    await sync_topics(pair.link, pair.source, pair.target)
    group, kept = pair.topic.replace("t-", "g-"), KeptState()
    await commit_offsets(pair.source, group, {pair.first: CommittedOffset(12)})
    await one_pass(pair, mapped(pair), kept)
    assert set(kept.entries) == {group}
    assert await delete_groups(pair.source, [group]) == {}
    await one_pass(pair, mapped(pair), kept)
    assert kept.entries == {}


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
    kept = KeptState()
    report = await one_pass(pair, OffsetMap(maps), kept)
    assert set(report.failures) == {bad}
    assert "UNKNOWN_TOPIC_OR_PARTITION" in kept.entries[bad].failure
    assert list(kept.syncs.synced_at_ms) == [good]
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
    assert full.lag_bytes is not None
    assert 3_000 < full.lag_bytes < 5_000
    assert full.lag_seconds is not None
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
