"""The mirror's client against Apache Kafka and farshore's broker: the same tests for each."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import aiokafka
import pytest

from broker.client.cluster import Cluster
from broker.client.cluster_description import describe_brokers, look_from_each
from broker.client.cluster_verification import verify_cluster
from broker.client.configs import alter_topic_configs, describe_topic_configs
from broker.client.errors import ClusterUnreachable, KafkaError
from broker.client.groups import (
    commit_offsets,
    committed_offsets,
    committed_offsets_of_groups,
    delete_groups,
    describe_groups,
    list_groups,
)
from broker.client.limits import ClientLimits
from broker.client.log import append, read_batches, read_records
from broker.client.model import CommittedOffset
from broker.client.offsets import list_offsets, log_end_offsets, log_start_offsets
from broker.client.producers import add_partitions_to_txn, end_txn, init_producer_id
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
from broker.wire.compression import Compression
from broker.wire.errors import ErrorCode
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    ConfigOperation,
    GroupState,
    IsolationLevel,
    TopicPartition,
)
from tests.mirror.harness import eventually

SERVERS = ("kafka_39", "kafka_43", "shared_broker")
NOW_MS = 1_760_000_000_000
IMPATIENT = ClientLimits(unknown_topic_timeout_ms=300)


@pytest.fixture(params=SERVERS)
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    server = request.getfixturevalue(request.param)
    async with Cluster(Site("site", server.bootstrap), limits=IMPATIENT) as connected:
        yield connected


def name(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


async def made(cluster: Cluster, partitions: int = 1, **configs: str) -> str:
    topic = NewTopic(name("topic"), partitions, 1, {key.replace("_", "."): value for key, value in configs.items()})
    assert await create_topics(cluster, [topic]) == {}
    return topic.name


def batch(count: int, *, compression: Compression = Compression.NONE, start_ms: int = NOW_MS) -> bytearray:
    records = [Record(i, start_ms + i, b"k%d" % i, b"v" * 50, (("h", b"x"), ("n", None))) for i in range(count)]
    return encode_batch(records, compression=compression)


async def test_topics_are_made_grown_and_deleted(cluster: Cluster) -> None:
    topic = await made(cluster, 2)
    assert cluster.cluster_id
    found = (await describe_topics(cluster, [topic, "not-there"]))[topic]
    assert [p.partition for p in found.partitions] == [0, 1]
    assert found.topic_id is not None
    assert found.replication_factor == 1
    assert await create_partitions(cluster, {topic: 5}) == {}
    assert len((await list_topics(cluster))[topic].partitions) == 5
    (shrunk,) = (await create_partitions(cluster, {topic: 3})).values()
    assert shrunk.code is ErrorCode.INVALID_PARTITIONS
    assert await delete_topics(cluster, [topic]) == {}

    async def is_gone() -> bool:
        return topic not in await describe_topics(cluster, [topic])

    await eventually(is_gone, "a Kafka broker to hear of the deletion from its controller")
    assert (await delete_topics(cluster, [topic]))[topic].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_one_topic_that_fails_does_not_hold_up_another(cluster: Cluster) -> None:
    there, good, bad = await made(cluster), name("good"), name("bad")
    failures = await create_topics(cluster, [NewTopic(there), NewTopic(good, 1, 1), NewTopic(bad, 1, 9)])
    assert {topic: error.code for topic, error in failures.items()} == {
        there: ErrorCode.TOPIC_ALREADY_EXISTS,
        bad: ErrorCode.INVALID_REPLICATION_FACTOR,
    }
    assert good in await list_topics(cluster)


async def test_a_recreated_topic_has_another_id(cluster: Cluster) -> None:
    topic = await made(cluster)
    before = (await describe_topics(cluster, [topic]))[topic].topic_id
    await delete_topics(cluster, [topic])
    assert await create_topics(cluster, [NewTopic(topic, 1, 1)]) == {}
    assert (await describe_topics(cluster, [topic]))[topic].topic_id != before


async def own_configs(cluster: Cluster, topic: str) -> dict[str, str | None]:
    configs = (await describe_topic_configs(cluster, [topic]))[topic]
    assert not isinstance(configs, KafkaError)
    return {entry.name: entry.value for entry in configs.values() if entry.is_topic_own}


async def test_configs_have_their_source_and_can_be_changed(cluster: Cluster) -> None:
    topic = await made(cluster, retention_ms="-1", cleanup_policy="compact")
    configs = (await describe_topic_configs(cluster, [topic]))[topic]
    assert not isinstance(configs, KafkaError)
    assert configs["max.message.bytes"].value
    assert await own_configs(cluster, topic) == {"retention.ms": "-1", "cleanup.policy": "compact"}
    changes = [("retention.ms", ConfigOperation.DELETE, None), ("segment.ms", ConfigOperation.SET, "60000")]
    assert await alter_topic_configs(cluster, {topic: changes}) == {}

    async def is_changed() -> bool:
        return await own_configs(cluster, topic) == {"cleanup.policy": "compact", "segment.ms": "60000"}

    await eventually(is_changed, "a Kafka broker to hear of the change from its controller")
    refused = await alter_topic_configs(cluster, {topic: [("retention.ms", ConfigOperation.SET, "soon")]})
    assert refused[topic].code is ErrorCode.INVALID_CONFIG
    missing = (await describe_topic_configs(cluster, ["not-there"]))["not-there"]
    assert isinstance(missing, KafkaError)
    assert missing.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("compression", list(Compression))
async def test_what_is_appended_is_read_back(cluster: Cluster, compression: Compression) -> None:
    topic = await made(cluster, retention_ms="-1")
    where = TopicPartition(topic, 0)
    offsets = [await append(cluster, where, batch(10, compression=compression)) for _ in range(3)]
    assert offsets == [0, 10, 20]
    headers = [header async for header, _ in read_batches(cluster, where, 5, 21)]
    assert [(header.base_offset, header.compression) for header in headers] == [(at, compression) for at in offsets]
    records = [record async for record in read_records(cluster, where, 5, 21)]
    assert [record.offset for record in records] == list(range(5, 21))
    assert records[0] == Record(5, NOW_MS + 5, b"k5", b"v" * 50, (("h", b"x"), ("n", None)))


async def test_a_batch_larger_than_the_fetch_limit_comes_whole(cluster: Cluster) -> None:
    topic = await made(cluster, max_message_bytes="20000000", retention_ms="-1")
    where = TopicPartition(topic, 0)
    await append(cluster, where, encode_batch([Record(0, NOW_MS, None, b"x" * 9_000_000)]))
    (record,) = [record async for record in read_records(cluster, where, 0, 1)]
    assert len(record.value or b"") == 9_000_000


async def test_offsets_by_place_and_time(cluster: Cluster) -> None:
    topic = await made(cluster, 2, retention_ms="-1")
    full, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    await append(cluster, full, batch(10))
    await append(cluster, full, batch(10, start_ms=NOW_MS + 1000))
    assert await log_end_offsets(cluster, [full, empty]) == {full: 20, empty: 0}
    found = await list_offsets(cluster, {full: NOW_MS + 7, empty: NOW_MS})
    assert (found[full].offset, found[full].timestamp_ms) == (7, NOW_MS + 7)
    assert found[empty].offset == -1
    assert (await list_offsets(cluster, {full: MAX_TIMESTAMP}))[full].timestamp_ms == NOW_MS + 1009
    assert (await list_offsets(cluster, {full: LATEST, empty: EARLIEST}))[full].offset == 20
    assert await delete_records(cluster, {full: 12}) == {full: 12}
    assert await log_start_offsets(cluster, [full]) == {full: 12}
    with pytest.raises(KafkaError) as gone:
        _ = [record async for record in read_records(cluster, full, 0, 20)]
    assert gone.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_an_unknown_partition_is_named_soon(cluster: Cluster) -> None:
    with pytest.raises(KafkaError, match="not-there-3") as unknown:
        await log_end_offsets(cluster, [TopicPartition("not-there", 3)])
    assert unknown.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_transactional_id_fences_and_its_abort_takes_one_offset(cluster: Cluster) -> None:
    topic = await made(cluster, retention_ms="-1")
    where = TopicPartition(topic, 0)
    transactional_id = name("farshore")
    first = await init_producer_id(cluster, transactional_id)
    records = [Record(0, NOW_MS, None, b"v")]

    def plain(producer_epoch: int, sequence: int) -> bytearray:
        return encode_batch(
            records, producer_id=first.producer_id, producer_epoch=producer_epoch, base_sequence=sequence
        )

    assert await append(cluster, where, plain(first.producer_epoch, 0)) == 0
    second = await init_producer_id(cluster, transactional_id)
    assert second.producer_id == first.producer_id
    assert second.producer_epoch > first.producer_epoch
    await add_partitions_to_txn(cluster, transactional_id, second, [where])
    await end_txn(cluster, transactional_id, second, commit=False)
    with pytest.raises(KafkaError) as overtaken:
        await init_producer_id(cluster, transactional_id, first)
    assert overtaken.value.code is ErrorCode.PRODUCER_FENCED
    third = await init_producer_id(cluster, transactional_id, second)
    assert await init_producer_id(cluster, transactional_id, second) == third, "as where the first answer was lost"
    assert await log_end_offsets(cluster, [where]) == {where: 2}
    with pytest.raises(KafkaError) as fenced:
        await append(cluster, where, plain(first.producer_epoch, 1))
    assert fenced.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await append(cluster, where, plain(third.producer_epoch, 0)) == 2
    kept = [record.offset async for record in read_records(cluster, where, 0, 3, IsolationLevel.READ_COMMITTED)]
    assert kept == [0, 2]
    assert (await init_producer_id(cluster)).producer_id != first.producer_id


async def test_group_offsets_from_outside_of_the_group(cluster: Cluster) -> None:
    topic = await made(cluster, 2)
    group, other = name("group"), name("other")
    offsets = {
        TopicPartition(topic, 0): CommittedOffset(0, "from=east ümlaut"),
        TopicPartition(topic, 1): CommittedOffset(7),
    }
    await commit_offsets(cluster, group, offsets)
    found = await committed_offsets(cluster, group)
    assert {where: (c.offset, c.metadata) for where, c in found.items()} == {
        TopicPartition(topic, 0): (0, "from=east ümlaut"),
        TopicPartition(topic, 1): (7, ""),
    }
    assert await committed_offsets(cluster, other) == {}
    many = await committed_offsets_of_groups(cluster, [group, other])
    assert many == {group: found, other: {}}
    assert (await list_groups(cluster))[group].state is GroupState.EMPTY
    described = await describe_groups(cluster, [group, other])
    states = {key: None if isinstance(one, KafkaError) else one.state for key, one in described.items()}
    assert states == {group: GroupState.EMPTY, other: GroupState.DEAD}
    assert (await delete_groups(cluster, [group, other])).keys() == {other}
    assert await committed_offsets(cluster, group) == {}


async def test_a_group_with_members_is_seen_and_not_committed_to(cluster: Cluster) -> None:
    topic, group = await made(cluster, 2), name("group")
    await append(cluster, TopicPartition(topic, 0), batch(10))
    consumer = aiokafka.AIOKafkaConsumer(
        topic, bootstrap_servers=cluster.site.bootstrap_servers, group_id=group, auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        await consumer.getone()
        described = (await describe_groups(cluster, [group]))[group]
        assert not isinstance(described, KafkaError)
        assert described.state is GroupState.STABLE
        (member,) = described.members
        assert set(member.assignment) == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
        with pytest.raises(KafkaError) as refused:
            await commit_offsets(cluster, group, {TopicPartition(topic, 0): CommittedOffset(3)})
        assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
        assert (await delete_groups(cluster, [group]))[group].code is ErrorCode.NON_EMPTY_GROUP
    finally:
        await consumer.stop()


async def test_the_address_map_is_used_for_advertised_addresses(cluster: Cluster, unused_tcp_port: int) -> None:
    (node,) = cluster.nodes.values()
    lost = {f"{node.host}:{node.port}": f"127.0.0.1:{unused_tcp_port}"}
    nowhere = Site("mapped", cluster.site.bootstrap_servers, lost)
    with pytest.raises(ClusterUnreachable):
        async with Cluster(nowhere, limits=ClientLimits(bootstrap_timeout_ms=200)):
            pass
    found = {"behind-nat:1": cluster.site.bootstrap_servers}
    async with Cluster(Site("mapped", "behind-nat:1", found)) as mapped:
        assert mapped.cluster_id == cluster.cluster_id


async def test_a_cluster_is_described_and_verified(cluster: Cluster, request: pytest.FixtureRequest) -> None:
    name = f"verified-{uuid.uuid4()}"
    await create_topics(cluster, [NewTopic(name, 2, 1)])
    look = await look_from_each(cluster)
    (broker,) = describe_brokers(look)
    # Both of Kafka's run on KRaft.
    assert look.is_kraft == (request.node.callspec.params["cluster"] != "shared_broker")
    assert broker.is_controller is (None if look.is_kraft else True)
    assert (broker.problem, broker.replicas) == ("", broker.in_sync)
    # Others have topics here, too.
    assert not [each for each in (await verify_cluster(cluster)).findings if each.topic in (None, name)]
