"""Three of farshore's brokers as processes on a real ZooKeeper, killed under confluent-kafka's producer."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.brokers import NODES, ClusterBroker, cluster_of_brokers
from tests.interop.servers import ZooKeeperServer

WAIT_S = 120
TOPIC = "t"
PARTITIONS = 3
ON_EACH_SIDE = 500
"""Records acknowledged before a broker is killed, and after others took over."""


class Brokers:
    def __init__(self, brokers: dict[int, ClusterBroker]) -> None:
        self.by_id = brokers
        self.bootstrap = ",".join(broker.bootstrap for broker in brokers.values())
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap})

    def controller(self) -> int:
        return int(self.admin.list_topics(timeout=WAIT_S).controller_id)

    def leaders(self) -> dict[int, int]:
        topic = self.admin.list_topics(TOPIC, timeout=WAIT_S).topics[TOPIC]
        return {index: partition.leader for index, partition in topic.partitions.items()}

    def all_in_sync(self) -> bool:
        topic = self.admin.list_topics(TOPIC, timeout=WAIT_S).topics[TOPIC]
        return all(len(partition.isrs) == len(NODES) for partition in topic.partitions.values())


@pytest.fixture
def brokers(tmp_path: Path, zookeeper: ZooKeeperServer) -> Iterator[Brokers]:
    with cluster_of_brokers(tmp_path, f"{zookeeper.address}/test-{uuid.uuid4()}") as started:
        yield Brokers(started)


class Load:
    """A producer that sends one number after another, and notes which were acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: list[int] = []
        self.refused: list[str] = []
        self.sent = 0
        self._over = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": WAIT_S * 1000,
                "topic.metadata.refresh.interval.ms": 1000,
            }
        )

    def run(self) -> None:
        while not self._over.is_set():
            number = self.sent
            self._producer.produce(TOPIC, str(number).encode(), partition=number % PARTITIONS, on_delivery=self._heard)
            self.sent += 1
            # Some hundred a second: what counts here is what becomes of them.
            self._producer.poll(0.002)
        assert self._producer.flush(WAIT_S) == 0

    def _heard(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.append(int(message.value()))
        else:
            self.refused.append(str(error))

    @contextmanager
    def running(self) -> Iterator[None]:
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(self.run)
            try:
                yield
            finally:
                self._over.set()
            done.result()

    def wait(self, partition: int | None = None) -> None:
        """Until more records, of this partition or of any, were acknowledged."""
        wanted = self._count(partition) + (ON_EACH_SIDE if partition is None else ON_EACH_SIDE // PARTITIONS)
        until(lambda: self._count(partition) >= wanted, "records to be acknowledged")

    def _count(self, partition: int | None) -> int:
        return sum(partition in (None, number % PARTITIONS) for number in list(self.acknowledged))


def until(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {WAIT_S} s in vain for {what}"
        time.sleep(0.1)


def read_all(bootstrap: str, ends: dict[int, int]) -> list[int]:
    """By a group, up to the ends of all partitions."""
    source = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"g-{uuid.uuid4()}", "auto.offset.reset": "earliest"}
    )
    source.subscribe([TOPIC])
    found: list[int] = []
    positions: dict[int, int] = {}
    deadline = time.monotonic() + WAIT_S
    try:
        while any(positions.get(index, 0) < end for index, end in ends.items()):
            assert time.monotonic() < deadline, f"read {positions} of {ends}"
            message = source.poll(1)
            if message is not None and message.error() is None:
                found.append(int(message.value()))
                positions[message.partition()] = message.offset() + 1
        source.commit(asynchronous=False)
    finally:
        source.close()
    return found


def test_what_was_acknowledged_outlives_the_controller_and_a_leader(brokers: Brokers) -> None:
    new = NewTopic(TOPIC, PARTITIONS, len(NODES), config={"min.insync.replicas": "2"})
    brokers.admin.create_topics([new])[TOPIC].result(WAIT_S)
    load = Load(brokers.bootstrap)
    with load.running():
        load.wait()
        for victim in (brokers.controller(), None):
            node = brokers.leaders()[0] if victim is None else victim
            led = [index for index, leader in brokers.leaders().items() if leader == node]
            brokers.by_id[node].kill9()
            for index in led:
                load.wait(index)
            brokers.by_id[node].start()
            until(brokers.all_in_sync, "the broker that was killed to be in sync again")
            assert brokers.controller() in NODES
        load.wait()
    assert load.refused == []
    counted = {index: sum(n % PARTITIONS == index for n in load.acknowledged) for index in range(PARTITIONS)}
    found = read_all(brokers.bootstrap, counted)
    assert sorted(found) == sorted(load.acknowledged) == list(range(load.sent)), "each is there once"
    for index in range(PARTITIONS):
        numbers = [number for number in found if number % PARTITIONS == index]
        assert numbers == sorted(numbers), "in the order in which it was sent"
