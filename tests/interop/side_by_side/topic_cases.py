"""Metadata, CreateTopics, CreatePartitions, DeleteTopics, DeleteRecords, DescribeCluster."""

from __future__ import annotations

import uuid

from broker.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from broker.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from broker.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from broker.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from broker.wire.messages.describe_cluster import DescribeClusterRequest
from broker.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.broker.wire_client import batch_of
from tests.interop.side_by_side.asking import Case, Peer

UNKNOWN_ID = uuid.UUID(int=77)
BAD_NAMES = ("", ".", "..", "a b", "a/b", "x" * 250, "ü")


def _metadata(*names: str, create: bool = False) -> MetadataRequest:
    return MetadataRequest([MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=create)


async def metadata(peer: Peer) -> None:
    topic = await peer.topic(partitions=2)
    for version in range(1, 13):
        await peer.ask(f"v{version}", _metadata(topic), version)
    await peer.ask("twice", _metadata(topic, topic), 12)
    await peer.ask("unknown", _metadata(peer.name("unknown")), 12)
    await peer.ask("unknown twice", _metadata(peer.name("unknown"), peer.name("unknown")), 12)
    await peer.ask("none", MetadataRequest([]), 12)
    for name in BAD_NAMES:
        await peer.ask(f"name {name[:9]!r}", _metadata(name), 12)
        await peer.ask(f"name {name[:9]!r} to be made", _metadata(name, create=True), 12)
    asked = MetadataRequest([MetadataRequestTopic(name=topic)], False, True, True)
    await peer.ask("operations, v8", asked, 8)
    await peer.ask("operations, v12", asked, 12)


async def metadata_by_id(peer: Peer) -> None:
    topic = await peer.topic()
    described = await peer.prepare(_metadata(topic), 12, MetadataResponse)
    topic_id = described.topics[0].topic_id
    for name, asked in (
        ("its id", MetadataRequestTopic(topic_id, None)),
        ("unknown id", MetadataRequestTopic(UNKNOWN_ID, None)),
        ("id and name", MetadataRequestTopic(topic_id, topic)),
        ("neither", MetadataRequestTopic(name=None)),
    ):
        await peer.ask(name, MetadataRequest([asked]), 12)
    await peer.ask("id twice", MetadataRequest([MetadataRequestTopic(topic_id, None)] * 2), 12)
    await peer.ask("id in v11", MetadataRequest([MetadataRequestTopic(topic_id, topic)]), 11)
    mixed = [MetadataRequestTopic(topic_id, None), MetadataRequestTopic(name=topic)]
    await peer.ask("by id and by name", MetadataRequest(mixed), 12)


def _create(*topics: CreatableTopic, validate: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(list(topics), 30_000, validate)


async def create_topics(peer: Peer) -> None:
    for kind in (0, 1):
        await peer.coordinator(peer.name(), kind)
    for version in range(2, 8):
        await peer.ask(f"v{version}", _create(CreatableTopic(peer.name(f"v{version}"), 2, 1)), version)
    await peer.ask("again", _create(CreatableTopic(peer.name("v7"), 2, 1)), 7)
    await peer.ask("again, to look only", _create(CreatableTopic(peer.name("v7"), 2, 1), validate=True), 7)
    await peer.ask("again, without partitions", _create(CreatableTopic(peer.name("v7"), 0, 1)), 7)
    await peer.ask("again, too many replicas", _create(CreatableTopic(peer.name("v7"), 1, 5)), 7)
    await peer.ask("to look only", _create(CreatableTopic(peer.name("look"), 2, 1), validate=True), 7)
    one = CreatableTopic(peer.name("twice"), 1, 1)
    await peer.ask("twice", _create(one, one, CreatableTopic(peer.name("beside"), 1, 1)), 7)
    await peer.ask("none", _create(), 7)
    await peer.ask("with a dot", _create(CreatableTopic(peer.name("v.7"), 1, 1)), 7)
    await peer.ask("with a line for the dot", _create(CreatableTopic(peer.name("v_7"), 1, 1)), 7)
    for partitions, replicas in ((0, 1), (-2, 1), (-1, -1), (1, 0), (1, 2), (1, -2), (-1, 2), (0, 0), (0, 5)):
        asked = CreatableTopic(peer.name(f"n{partitions}.{replicas}"), partitions, replicas)
        await peer.ask(f"{partitions} partitions {replicas} replicas", _create(asked), 7)
        if min(partitions, replicas) == -1:
            asked = CreatableTopic(peer.name(f"o{partitions}.{replicas}"), partitions, replicas)
            await peer.ask(f"{partitions} partitions {replicas} replicas, v3", _create(asked), 3)
    for name in BAD_NAMES:
        await peer.ask(f"name {name[:9]!r}", _create(CreatableTopic(name, 1, 1)), 7)
    await peer.ask("internal", _create(CreatableTopic("__transaction_state", 1, 1), validate=True), 7)


async def create_topics_assigned(peer: Peer) -> None:
    def assigned(*rows: tuple[int, list[int]]) -> list[CreatableReplicaAssignment]:
        return [CreatableReplicaAssignment(index, brokers) for index, brokers in rows]

    for name, rows, partitions, replicas in (
        ("right", assigned((0, [1]), (1, [1])), -1, -1),
        ("with counts", assigned((0, [1])), 1, 1),
        ("with a count", assigned((0, [1])), 1, -1),
        ("unknown broker", assigned((0, [9])), -1, -1),
        ("from one", assigned((1, [1])), -1, -1),
        ("twice", assigned((0, [1]), (0, [1])), -1, -1),
        ("broker twice", assigned((0, [1, 1])), -1, -1),
        ("no broker", assigned((0, [])), -1, -1),
        ("negative", assigned((-1, [1])), -1, -1),
        ("uneven", assigned((0, [1]), (1, [1, 2])), -1, -1),
    ):
        topic = CreatableTopic(peer.name(name.replace(" ", "-")), partitions, replicas, rows)
        await peer.ask(name, _create(topic), 7)


CONFIGS = (
    ("retention.ms", "1_000"), ("retention.ms", "-2"), ("retention.ms", " 5 "), ("retention.ms", ""),
    ("retention.ms", "+5"), ("retention.ms", "1e3"), ("retention.ms", "9223372036854775808"), ("retention.ms", "٣"),
    ("retention.ms", "1000L"), ("retention.ms", None), ("retention.bytes", "-2"), ("segment.bytes", "13"),
    ("segment.bytes", "14"), ("segment.bytes", "2147483648"), ("segment.ms", "0"), ("max.message.bytes", "-1"),
    ("compression.type", "GZIP"), ("compression.type", "brotli"), ("compression.type", ""),
    ("compression.gzip.level", "0"), ("compression.gzip.level", "10"), ("compression.gzip.level", "-2"),
    ("compression.gzip.level", "-1"), ("compression.gzip.level", "9"),
    ("compression.lz4.level", "0"), ("compression.lz4.level", "18"), ("compression.lz4.level", "17"),
    ("compression.zstd.level", "23"), ("compression.zstd.level", "22"), ("compression.zstd.level", "-131073"),
    ("compression.zstd.level", "0"),
    ("cleanup.policy", "compact,delete"), ("cleanup.policy", "delete,delete"), ("cleanup.policy", ""),
    ("cleanup.policy", "none"), ("cleanup.policy", "Delete"), ("cleanup.policy", " compact , delete "),
    ("min.cleanable.dirty.ratio", "1.1"), ("min.cleanable.dirty.ratio", "nan"), ("min.cleanable.dirty.ratio", "0.25f"),
    ("min.cleanable.dirty.ratio", "1_0"), ("min.cleanable.dirty.ratio", "-0.0"),
    ("min.cleanable.dirty.ratio", "0x1p-1"),
    ("min.insync.replicas", "0"), ("min.insync.replicas", "2"), ("preallocate", "yes"), ("preallocate", "TRUE"),
    ("preallocate", " true "), ("remote.storage.enable", "true"), ("remote.storage.enable", "false"),
    ("local.retention.ms", "-3"), ("local.retention.ms", "-1"), ("local.retention.bytes", "-3"),
    ("message.timestamp.type", "createtime"), ("message.timestamp.type", "LogAppendTime"),
    ("message.format.version", "0.10.0"), ("message.format.version", "nonsense"),
    ("message.timestamp.before.max.ms", "-1"), ("message.timestamp.after.max.ms", "-1"),
    ("message.timestamp.difference.max.ms", "-1"), ("message.downconversion.enable", "1"),
    ("leader.replication.throttled.replicas", "0:1"), ("leader.replication.throttled.replicas", "*"),
    ("leader.replication.throttled.replicas", "x"), ("follower.replication.throttled.replicas", "0:1,1:1"),
    ("segment.index.bytes", "3"), ("index.interval.bytes", "-1"), ("index.interval.bytes", "0"),
    ("segment.jitter.ms", "-1"), ("flush.messages", "0"), ("flush.messages", "1"), ("flush.ms", "-1"),
    ("file.delete.delay.ms", "-1"), ("delete.retention.ms", "-1"), ("max.compaction.lag.ms", "0"),
    ("min.compaction.lag.ms", "-1"), ("unclean.leader.election.enable", "true"), ("no.such.config", "1"), ("", "1"),
    ("remote.log.copy.disable", "true"), ("remote.log.delete.on.disable", "true"),
)  # fmt: skip
CONFIG_PAIRS = (
    (("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "9")),
    (("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "10")),
    (("local.retention.ms", "100"), ("retention.ms", "50")),
    (("local.retention.bytes", "100"), ("retention.bytes", "50")),
    (("remote.storage.enable", "true"), ("cleanup.policy", "compact")),
    (("retention.ms", "1"), ("retention.ms", "2")),
    (("segment.bytes", "1000"), ("max.message.bytes", "2000")),
    (("segment.ms", "10"), ("segment.jitter.ms", "20")),
    (("message.format.version", "0.9.0"), ("message.timestamp.type", "LogAppendTime")),
)


async def create_topics_configs(peer: Peer) -> None:
    for number, (name, value) in enumerate(CONFIGS):
        asked = CreatableTopic(peer.name(f"c{number}"), 1, 1, configs=[CreatableTopicConfig(name, value)])
        await peer.ask(f"{name}={value!r}", _create(asked, validate=True), 7)
    for number, pair in enumerate(CONFIG_PAIRS):
        configs = [CreatableTopicConfig(*config) for config in pair]
        label = " ".join(f"{name}={value}" for name, value in pair)
        await peer.ask(label, _create(CreatableTopic(peer.name(f"p{number}"), 1, 1, configs=configs), validate=True), 7)


async def create_partitions(peer: Peer) -> None:
    topic = await peer.topic(partitions=2)

    def wider(name: str, count: int, *brokers: list[int]) -> CreatePartitionsTopic:
        rows = [CreatePartitionsAssignment(row) for row in brokers] if brokers else None
        return CreatePartitionsTopic(name, count, rows)

    for label, asked in (
        ("to look only", wider(topic, 3)),
        ("as many", wider(topic, 2)),
        ("fewer", wider(topic, 1)),
        ("zero", wider(topic, 0)),
        ("negative", wider(topic, -1)),
        ("unknown", wider(peer.name("unknown"), 3)),
        ("bad name", wider("a b", 3)),
        ("assigned", wider(topic, 3, [1])),
        ("assigned elsewhere", wider(topic, 3, [7])),
        ("assigned too many", wider(topic, 3, [1], [1])),
        ("assigned too few", wider(topic, 4, [1])),
        ("assigned twice", wider(topic, 3, [1, 1])),
        ("assigned to none", wider(topic, 3, [])),
    ):
        await peer.ask(label, CreatePartitionsRequest([asked], 30_000, True), 3)
    await peer.ask("empty assignments", CreatePartitionsRequest([CreatePartitionsTopic(topic, 3, [])], 30_000, True), 3)
    for version in range(4):
        await peer.ask(f"v{version}", CreatePartitionsRequest([wider(topic, 3 + version)], 30_000), version)
    await peer.ask("twice", CreatePartitionsRequest([wider(topic, 9), wider(topic, 10)], 30_000), 3)
    await peer.ask("none", CreatePartitionsRequest([], 30_000), 3)


async def delete_topics(peer: Peer) -> None:
    for version in range(1, 6):
        topic = await peer.topic(f"v{version}")
        request = DeleteTopicsRequest(topic_names=[topic, peer.name("unknown")], timeout_ms=30_000)
        await peer.ask(f"v{version}", request, version)
    topic = await peer.topic("v6")

    def delete(*states: DeleteTopicState) -> DeleteTopicsRequest:
        return DeleteTopicsRequest(list(states), timeout_ms=30_000)

    found = await peer.prepare(_metadata(topic), 12, MetadataResponse)
    topic_id = found.topics[0].topic_id
    await peer.ask("unknown", delete(DeleteTopicState(peer.name("unknown"))), 6)
    await peer.ask("unknown id", delete(DeleteTopicState(None, UNKNOWN_ID)), 6)
    await peer.ask("name and id", delete(DeleteTopicState(topic, topic_id)), 6)
    await peer.ask("neither", delete(DeleteTopicState(None)), 6)
    await peer.ask("twice by name", delete(DeleteTopicState(topic), DeleteTopicState(topic)), 6)
    await peer.ask("by name and by id", delete(DeleteTopicState(topic), DeleteTopicState(None, topic_id)), 6)
    await peer.ask("unknown twice", delete(*[DeleteTopicState(peer.name("unknown"))] * 2), 6)
    await peer.ask("none", delete(), 6)
    await peer.ask("bad name", delete(DeleteTopicState("a b")), 6)
    await peer.ask("by id", delete(DeleteTopicState(None, topic_id)), 6)


async def delete_records(peer: Peer) -> None:
    topic = await peer.topic()
    compacted = await peer.topic("compacted", cleanup_policy="compact")
    both = await peer.topic("both", cleanup_policy="compact,delete")
    for name in (topic, compacted, both):
        await peer.produce(name, batch_of("a", "b", "c", "d", key=b"k"))

    async def delete(label: str, name: str, *rows: tuple[int, int], version: int = 2) -> None:
        partitions = [DeleteRecordsPartition(*row) for row in rows]
        await peer.ask(label, DeleteRecordsRequest([DeleteRecordsTopic(name, partitions)], 5000), version)

    await delete("one", topic, (0, 1))
    await delete("v0", topic, (0, 2), version=0)
    await delete("back", topic, (0, 1))
    await delete("beyond the end", topic, (0, 5))
    await delete("negative", topic, (0, -2))
    await delete("unknown partition", topic, (9, 0))
    await delete("negative partition", topic, (-1, 0))
    await delete("unknown topic", peer.name("unknown"), (0, 0))
    await delete("bad name", "a b", (0, 0))
    await delete("compacted", compacted, (0, 1))
    await delete("compacted and deleted", both, (0, 1))
    await delete("all", topic, (0, -1))
    await delete("nothing left", topic, (0, -1))
    await delete("no partition", topic)
    await peer.ask("no topic", DeleteRecordsRequest([], 5000), 2)


async def describe_topic_partitions(peer: Peer) -> None:
    first, second = await peer.topic("a", partitions=3), await peer.topic("b", partitions=2)

    async def ask(label: str, *names: str, limit: int = 2000, cursor: Cursor | None = None) -> None:
        asked = [TopicRequest(name) for name in names]
        await peer.ask(label, DescribeTopicPartitionsRequest(asked, limit, cursor), 0)

    await ask("both", second, first)
    for limit in (-1, 0, 1, 2, 3, 4, 5):
        await ask(f"at most {limit}", first, second, limit=limit)
    for name, partition in ((first, 1), (first, 3), (first, 9), (second, 0), (peer.name("aa"), 0), ("zzz", 0)):
        await ask(f"from {name[-2:]}-{partition}", first, second, cursor=Cursor(name, partition))
        await ask(f"one from {name[-2:]}-{partition}", first, second, cursor=Cursor(name, partition), limit=1)
    await ask("from a negative partition", first, second, cursor=Cursor(first, -1))
    await ask("twice", first, first)
    await ask("unknown", peer.name("unknown"), first)
    await ask("unknown, at most one", peer.name("unknown"), first, second, limit=1)
    await ask("bad name", "a b")
    await ask("empty name", "")


async def describe_cluster(peer: Peer) -> None:
    for version in (0, 1):
        for operations in (False, True):
            await peer.ask(f"v{version} {operations}", DescribeClusterRequest(operations), version)
    await peer.ask("controllers", DescribeClusterRequest(False, 2), 1)
    await peer.ask("unknown endpoint", DescribeClusterRequest(False, 9), 1)


CASES: tuple[Case, ...] = (
    metadata, metadata_by_id, create_topics, create_topics_assigned, create_topics_configs, create_partitions,
    delete_topics, delete_records, describe_topic_partitions, describe_cluster,
)  # fmt: skip
