"""A real ZooKeeper that is put back to a copy of an earlier day, under three real brokers."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from tests.interop.brokers import NODES, cluster_of_brokers
from tests.interop.servers import ZooKeeperServer, wait_until

WAIT_S = 180
SESSION_MS = 4000
EACH_DAY = 200
TOPIC = "t"
REFUSAL = "it was put back to an older copy"


def state(admin: AdminClient) -> PartitionMetadata:
    return admin.list_topics(TOPIC, timeout=WAIT_S).topics[TOPIC].partitions[0]


def write(bootstrap: str, values: range) -> None:
    """Returns when all are acknowledged by all in sync."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": WAIT_S * 1000})
    refused: list[KafkaError] = []

    def heard(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error)

    for value in values:
        producer.produce(TOPIC, str(value).encode(), on_delivery=heard)
    assert producer.flush(WAIT_S) == 0
    assert refused == []


def read(bootstrap: str, count: int) -> list[int]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": str(uuid.uuid4()), "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([TOPIC])
    found: list[int] = []

    def has_all() -> bool:
        for message in consumer.consume(1000, timeout=0.5):
            assert message.error() is None
            found.append(int(message.value() or b""))
        return len(found) >= count

    wait_until(has_all, WAIT_S, f"{count} records are read")
    consumer.close()
    return found


def test_every_acknowledged_record_outlasts_a_zookeeper_that_was_put_back_to_an_older_copy(tmp_path: Path) -> None:
    """By the copy a broker leads that lacks what was acknowledged since."""
    with (
        ZooKeeperServer(tmp_path / "zookeeper") as zookeeper,
        cluster_of_brokers(tmp_path, f"{zookeeper.address}/east", SESSION_MS) as brokers,
    ):
        bootstrap = ",".join(broker.bootstrap for broker in brokers.values())
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, len(NODES), config={"min.insync.replicas": "2"})])[TOPIC].result(WAIT_S)
        wait_until(lambda: sorted(state(admin).isrs) == [*NODES], WAIT_S, "all are in sync")
        behind = state(admin).leader
        write(bootstrap, range(EACH_DAY))
        zookeeper.stop()
        folder = zookeeper.member.folder
        shutil.copytree(folder, tmp_path / "older")
        zookeeper.start()

        brokers[behind].stop()
        wait_until(lambda: state(admin).leader not in (-1, behind), WAIT_S, "another one leads")
        write(bootstrap, range(EACH_DAY, 2 * EACH_DAY))
        for broker in brokers.values():
            broker.stop()
        zookeeper.stop()
        folder.rename(tmp_path / "newest")
        shutil.copytree(tmp_path / "older", folder)
        zookeeper.start()
        for broker in brokers.values():
            broker.launch()
        for broker in brokers.values():
            wait_until(lambda: REFUSAL in broker.log_tail(), WAIT_S, f"{broker.name} finds the older copy")  # noqa: B023
            broker.stop()
        zookeeper.stop()
        shutil.rmtree(folder)
        (tmp_path / "newest").rename(folder)
        zookeeper.start()
        for broker in brokers.values():
            broker.launch()
        for broker in brokers.values():
            broker.wait_ready()
        wait_until(lambda: sorted(state(admin).isrs) == [*NODES], WAIT_S, "all are in sync again")
        assert read(bootstrap, 2 * EACH_DAY) == list(range(2 * EACH_DAY))
