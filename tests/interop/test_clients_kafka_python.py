"""kafka-python, unmodified. It leaves its wake-up sockets to the garbage collector, which is tolerated here only."""

from __future__ import annotations

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

from tests.interop.brokers import KEEPS_ALL, replicas_at

TIMEOUT_S = 120

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.usefixtures("sockets_left_to_the_collector"),
]


# Its other codecs need packages that are not installed; librdkafka and aiokafka prove those.
@pytest.mark.parametrize("codec", [None, "gzip"])
def test_what_is_produced_is_read(cluster: str, topic: str, codec: str | None) -> None:
    admin = KafkaAdminClient(bootstrap_servers=cluster)
    admin.create_topics([NewTopic(topic, 2, replicas_at(cluster), topic_configs=KEEPS_ALL)])
    producer = KafkaProducer(bootstrap_servers=cluster, compression_type=codec, linger_ms=20)
    rows = [(i % 2, f"k{i}".encode(), f"value {i}".encode() * 10, 1_700_000_000_000 + i) for i in range(600)]
    futures = [producer.send(topic, value, key, [("h", b"1")], partition, at) for partition, key, value, at in rows]
    offsets = [future.get(TIMEOUT_S).offset for future in futures]
    producer.close()
    assert offsets == [i // 2 for i in range(600)]

    group = f"g-{topic}"
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=cluster,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=TIMEOUT_S * 1000,
    )
    got = [next(consumer) for _ in rows]
    consumer.commit()
    ends = consumer.end_offsets([TopicPartition(topic, 0), TopicPartition(topic, 1)])
    consumer.close()
    assert sorted((r.partition, r.key, r.value, r.timestamp) for r in got) == sorted(rows)
    for partition in (0, 1):
        assert [r.offset for r in got if r.partition == partition] == list(range(300))
    assert set(ends.values()) == {300}
    committed = admin.list_group_offsets(group)[group]
    assert {entry.offset for entry in committed.values()} == {300}
    admin.close()
