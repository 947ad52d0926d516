"""confluent-kafka (librdkafka), unmodified."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType

from tests.interop.brokers import KEEPS_ALL, replicas_at
from tests.interop.librdkafka import describe_group

TIMEOUT_S = 180.0


def create(cluster: str, topic: str, partitions: int = 1, config: dict[str, str] | None = None) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": cluster})
    for future in admin.create_topics(
        [NewTopic(topic, partitions, replicas_at(cluster), config=config or {})]
    ).values():
        future.result(TIMEOUT_S)
    return admin


def consumer(cluster: str, group: str, **settings: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **settings,
        }
    )


def read(source: Consumer, count: int) -> list[Any]:
    deadline = time.monotonic() + TIMEOUT_S
    got: list[Any] = []
    while len(got) < count:
        assert time.monotonic() < deadline, f"{len(got)} of {count} records came"
        for message in source.consume(count - len(got), 0.5):
            assert message.error() is None, message.error()
            got.append(message)
    return got


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_produced_is_read(cluster: str, topic: str, codec: str) -> None:
    create(cluster, topic, config=KEEPS_ALL)
    errors: list[Any] = []
    producer = Producer(
        {"bootstrap.servers": cluster, "compression.type": codec, "enable.idempotence": True, "linger.ms": 20}
    )
    rows = [(f"k{i}".encode(), f"value {i}".encode() * 20, 1_700_000_000_000 + i) for i in range(2000)]
    for key, value, at in rows:
        producer.produce(
            topic,
            value,
            key,
            partition=0,
            timestamp=at,
            headers=[("h", b"1"), ("none", None)],
            on_delivery=lambda error, _message: errors.append(error) if error else None,
        )
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == []
    source = consumer(cluster, f"g-{topic}")
    source.subscribe([topic])
    try:
        got = read(source, len(rows))
        source.commit(asynchronous=False)
        (committed,) = source.committed([TopicPartition(topic, 0)], TIMEOUT_S)
        watermarks = source.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S)
    finally:
        source.close()
    assert [(m.key(), m.value(), m.timestamp()[1]) for m in got] == rows
    assert got[0].headers() == [("h", b"1"), ("none", None)]
    assert [m.offset() for m in got] == list(range(2000))
    assert committed.offset == 2000
    assert watermarks == (0, 2000)


def test_admin(cluster: str, topic: str) -> None:
    admin = create(cluster, topic, 2, {"max.message.bytes": "54321"})
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(TIMEOUT_S)
    resource = ConfigResource(ResourceType.TOPIC, topic)
    values = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    assert values["max.message.bytes"].value == "54321"
    assert not values["max.message.bytes"].is_default
    assert values["retention.ms"].is_default
    deadline = time.monotonic() + TIMEOUT_S
    while len(admin.list_topics(topic, TIMEOUT_S).topics[topic].partitions) != 5:
        assert time.monotonic() < deadline
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    while topic in admin.list_topics(timeout=TIMEOUT_S).topics:
        assert time.monotonic() < deadline


def test_groups_are_listed_and_described(cluster: str, topic: str) -> None:
    admin = create(cluster, topic)
    producer = Producer({"bootstrap.servers": cluster})
    producer.produce(topic, b"one", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    source = consumer(cluster, f"g-{topic}", **{"client.id": "reader"})
    source.subscribe([topic])
    try:
        read(source, 1)
        source.commit(asynchronous=False)
        group = describe_group(admin, f"g-{topic}")
        listed = admin.list_consumer_groups().result(TIMEOUT_S)
    finally:
        source.close()
    assert group.state.name == "STABLE"
    assert [member.client_id for member in group.members] == ["reader"]
    assert f"g-{topic}" in {entry.group_id for entry in listed.valid}


def test_transactions(cluster: str, topic: str) -> None:
    create(cluster, topic)
    producer = Producer({"bootstrap.servers": cluster, "transactional.id": f"t-{topic}"})
    producer.init_transactions(TIMEOUT_S)
    for name in (b"aborted", b"committed"):
        producer.begin_transaction()
        producer.produce(topic, name, partition=0)
        if name == b"committed":
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.flush(TIMEOUT_S)
            producer.abort_transaction(TIMEOUT_S)
    source = consumer(cluster, f"g-{topic}")
    source.subscribe([topic])
    try:
        (message,) = read(source, 1)
    finally:
        source.close()
    assert message.value() == b"committed"


def test_an_unknown_topic_is_told(cluster: str, topic: str) -> None:
    source = consumer(cluster, f"g-{topic}", **{"allow.auto.create.topics": False})
    source.subscribe([topic])
    try:
        message = source.poll(TIMEOUT_S)
    finally:
        source.close()
    assert message is not None
    assert message.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def _rebalanced(readers: list[Consumer], partitions: int) -> list[set[int]]:
    """Poll until every partition has one reader and all have some -> the partitions of each."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        for reader in readers:
            reader.poll(0.1)
        held = [{where.partition for where in reader.assignment()} for reader in readers]
        if all(held) and sum(map(len, held)) == partitions == len(set.union(*held)):
            return held
        assert time.monotonic() < deadline, held


@pytest.mark.parametrize("cluster", ["farshore", "farshore-3"], indirect=True)
def test_the_consumer_group_protocol(cluster: str, topic: str) -> None:
    """KIP-848: two members share, one leaves, the other goes on where it stopped; the admin client sees them."""
    admin = create(cluster, topic, partitions=4)
    producer = Producer({"bootstrap.servers": cluster})
    for number in range(100):
        producer.produce(topic, str(number), partition=number % 4)
    assert producer.flush(TIMEOUT_S) == 0
    first, second = (consumer(cluster, topic, **{"group.protocol": "consumer"}) for _ in range(2))
    first.subscribe([topic])
    assert len(read(first, 100)) == 100
    first.commit(asynchronous=False)

    second.subscribe([f"^{topic}$"])
    assert sorted(map(len, _rebalanced([first, second], 4))) == [2, 2]
    described = describe_group(admin, topic)
    assert len(described.members) == 2

    first.close()
    assert _rebalanced([second], 4) == [{0, 1, 2, 3}]
    for number in range(8):
        producer.produce(topic, f"late {number}", partition=number % 4)
    producer.flush(TIMEOUT_S)
    assert {message.value() for message in read(second, 8)} == {f"late {number}".encode() for number in range(8)}
    second.close()
