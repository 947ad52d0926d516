"""Consumers of one group that go over to the protocol of KIP-848 one by one, and back, while records keep coming.

No record is left out. One is read twice only where its commit was refused, which librdkafka's consumers are told.
"""

from __future__ import annotations

import signal
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from broker.base.children import die_with_parent
from tests.classes import kept_classes, tools_of
from tests.interop.brokers import replicas_at
from tests.interop.conftest import bootstrap_of
from tests.interop.librdkafka import describe_group
from tests.interop.servers import KAFKA_HEAP, java, kafka_class_path, wait_until

TIMEOUT_S = 180.0
PARTITIONS = 6
MEMBERS = 3
CLASSIC_4, CLASSIC_3, NEW_4 = ("4.3.0", "classic"), ("3.9.1", "classic"), ("4.3.0", "consumer")


@pytest.fixture
def address(request: pytest.FixtureRequest) -> str:
    """Kafka's too: what ours is asked to do, it does."""
    return bootstrap_of(request, request.param)


def create(address: str, topic: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": address})
    (made,) = admin.create_topics([NewTopic(topic, PARTITIONS, replicas_at(address))]).values()
    made.result(TIMEOUT_S)
    return admin


@contextmanager
def records_coming(address: str, topic: str) -> Iterator[Callable[[], set[str]]]:
    """Some each moment -> a call that ends it and says which there were."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0})
    over = threading.Event()
    sent: list[str] = []

    def send() -> None:
        while not over.wait(0.02):
            value = f"record {len(sent)}"
            producer.produce(topic, value, partition=len(sent) % PARTITIONS)
            sent.append(value)
            producer.poll(0)

    sender = threading.Thread(target=send)

    def end() -> set[str]:
        over.set()
        sender.join()
        assert producer.flush(TIMEOUT_S) == 0
        return set(sent)

    sender.start()
    try:
        yield end
    finally:
        end()


class Member:
    """A consumer in a thread, which commits each record that it has read before it reads the next."""

    def __init__(self, address: str, topic: str, settings: dict[str, Any]) -> None:
        self.read: list[str] = []
        self.doubtful: set[str] = set()
        """Read, but the commit was refused: whoever has the partition next reads it again."""
        self.assigned = 0
        self._over = threading.Event()
        self._consumer = Consumer(
            {"bootstrap.servers": address, "group.id": topic, "auto.offset.reset": "earliest",
             "enable.auto.commit": False, **settings}
        )  # fmt: skip
        self._consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            message = self._consumer.poll(0.1)
            self.assigned = len(self._consumer.assignment())
            if message is not None and message.error() is None:
                self._take(message)
        self._consumer.close()

    def _take(self, message: Message) -> None:
        value = message.value()
        assert isinstance(value, bytes)
        self.read.append(value.decode())
        try:
            self._consumer.commit(message=message, asynchronous=False)
        except KafkaException:
            self.doubtful.add(value.decode())

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


# librdkafka's cooperative members often never come to rest beside one of the new protocol: neither with Kafka 4.3.
@pytest.mark.parametrize("address", ["farshore", "farshore-3", "kafka-4.3"], indirect=True)
def test_librdkafkas_consumers_go_over_and_back(address: str, topic: str) -> None:
    classic = {"partition.assignment.strategy": "range", "session.timeout.ms": 45_000, "heartbeat.interval.ms": 300}
    new = {"group.protocol": "consumer"}
    create(address, topic)
    members = [Member(address, topic, classic) for _ in range(MEMBERS)]
    every = list(members)

    def settled() -> bool:
        return all(m.assigned for m in members) and sum(m.assigned for m in members) == PARTITIONS

    try:
        with records_coming(address, topic) as end:
            wait_until(settled, TIMEOUT_S, "the group as it begins")
            for settings in (new, classic):
                for number in range(MEMBERS):
                    members[number].stop()
                    members[number] = Member(address, topic, settings)
                    every.append(members[number])
                    wait_until(settled, TIMEOUT_S, f"member {number} with {settings}")
            sent = end()
            wait_until(lambda: {v for m in every for v in m.read} == sent, TIMEOUT_S, "all that was sent")
    finally:
        for member in members:
            member.stop()
    read = [value for member in every for value in member.read]
    twice = {value for value in read if read.count(value) > 1}
    assert twice <= {value for member in every for value in member.doubtful}


class JavaMember:
    """Kafka's own console consumer; ended as an operator would, it says goodbye and commits what it has printed."""

    def __init__(self, address: str, topic: str, kind: tuple[str, str], folder: Path) -> None:
        version, protocol = kind
        self._printed = folder / f"{protocol}-{uuid.uuid4().hex[:6]}.out"
        settings = self._printed.with_suffix(".properties")
        settings.write_text(f"group.protocol={protocol}\ngroup.id={topic}\nenable.auto.commit=true\n")
        command = [java(), *KAFKA_HEAP, *kept_classes(tools_of(version)), "-cp", kafka_class_path(version)]
        command += ["org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", address]
        command += ["--topic", topic, "--from-beginning"]
        command += ["--consumer.config" if version.startswith("3.") else "--command-config", str(settings)]
        with self._printed.open("wb") as out, self._printed.with_suffix(".err").open("wb") as err:
            self._process = subprocess.Popen(
                command, stdout=out, stderr=err, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent
            )

    def read(self) -> Sequence[str]:
        return self._printed.read_text().splitlines()

    def has_read(self) -> bool:
        return self._printed.stat().st_size > 0

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(TIMEOUT_S)
        finally:
            self._process.kill()
            self._process.wait()


@pytest.mark.parametrize(
    "address",
    ["farshore", *(pytest.param(other, marks=pytest.mark.slow) for other in ("farshore-3", "kafka-4.3"))],
    indirect=True,
)
def test_java_consumers_go_over_and_back(address: str, topic: str, tmp_path: Path) -> None:
    """Of two releases; the last classic members meet a group that was of the new protocol alone."""
    admin = create(address, topic)
    members = [JavaMember(address, topic, kind, tmp_path) for kind in (CLASSIC_3, CLASSIC_3, CLASSIC_4)]
    every = list(members)

    def in_group(count: int) -> bool:
        described = describe_group(admin, topic)
        busy = [m for m in described.members if m.assignment and m.assignment.topic_partitions]
        return described.state.name == "STABLE" and len(busy) == count

    try:
        with records_coming(address, topic) as end:
            wait_until(lambda: in_group(MEMBERS), TIMEOUT_S, "the group as it begins")
            for kind in (NEW_4, CLASSIC_3):
                for number in range(MEMBERS):
                    members[number].stop()
                    members[number] = JavaMember(address, topic, kind, tmp_path)
                    every.append(members[number])
                    wait_until(members[number].has_read, TIMEOUT_S, f"{kind} to read")
            sent = end()
            wait_until(lambda: {v for m in every for v in m.read()} >= sent, TIMEOUT_S, "all that was sent")
    finally:
        for member in members:
            member.stop()
    assert {value for member in every for value in member.read()} == sent
