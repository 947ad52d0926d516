"""Producers of three kinds at the source, each record with a content of its own, and what became of it.

librdkafka in threads: it lives through killed and paused brokers, and knows transactions.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaException, Producer

from broker.wire.vocabulary import TopicPartition

QUIET = logging.getLogger("librdkafka")
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DELIVERY_TIMEOUT_MS = 60_000
TRANSACTION_TIMEOUT_MS = 8_000
CALL_TIMEOUT_S = 30.0
ABORTED_SHARE = 0.3
PADDING_BYTES_MAX = 400


@dataclass
class Written:
    """What the writers know: values that must be at the source, that must not, and of how many neither is known."""

    acknowledged: set[bytes] = field(default_factory=set)
    aborted: set[bytes] = field(default_factory=set)
    unknown: set[bytes] = field(default_factory=set)
    commits: int = 0
    aborts: int = 0


class Writer:
    """One producer, or one after the other where a fatal error ends it."""

    def __init__(self, kind: str, bootstrap: str, partitions: list[TopicPartition], seed: str, rate: float) -> None:
        self.kind = kind
        self.written = Written()
        self._bootstrap = bootstrap
        self._partitions = partitions
        self._random = random.Random(f"{seed}-{kind}")
        self._prefix = f"{kind}-{seed}"
        self._pause_s = 1 / rate
        self._count = 0

    def run(self, stop: threading.Event) -> None:
        """Write until told to stop, then wait for the last answers."""
        while not stop.is_set():
            producer = Producer(self._settings())
            try:
                if self.kind == "transactional":
                    producer.init_transactions(CALL_TIMEOUT_S)
                    while not stop.is_set():
                        self._transaction(producer, stop)
                else:
                    while not stop.is_set():
                        self._burst(producer, self.written.acknowledged)
                        stop.wait(self._pause_s * self._random.random() * 2)
            except KafkaException:
                stop.wait(0.5)  # a new producer goes on
            finally:
                with suppress(KafkaException):  # of a producer that was fenced for good
                    producer.flush(DELIVERY_TIMEOUT_MS / 1000)

    def _settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "bootstrap.servers": self._bootstrap,
            "compression.type": self._random.choice(CODECS),
            "linger.ms": self._random.choice((0, 5, 50)),
            "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
            "log_level": 0,
            "logger": QUIET,
        }
        if self.kind == "plain":
            return settings | {"acks": "all"}
        if self.kind == "idempotent":
            return settings | {"enable.idempotence": True}
        return settings | {
            "transactional.id": self._prefix,
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "delivery.timeout.ms": TRANSACTION_TIMEOUT_MS,
        }

    def _burst(self, producer: Producer, landed: set[bytes]) -> list[bytes]:
        """Some records to one partition; those that are answered go into `landed`."""
        where = self._random.choice(self._partitions)
        values = []
        for _ in range(self._random.randint(1, 20)):
            self._count += 1
            padding = self._random.randbytes(self._random.randrange(PADDING_BYTES_MAX)).hex()
            value = f"{self._prefix}-{where.partition}-{self._count}-{padding}".encode()
            values.append(value)
            headers = [("n", str(self._count).encode()), ("null", None)] if self._count % 7 == 0 else None
            key = None if self._count % 5 == 0 else b"k%d" % (self._count % 50)
            producer.produce(
                where.topic, value, key, where.partition, headers=headers, on_delivery=self._answer(landed, value)
            )
        producer.poll(0)
        return values

    def _answer(self, landed: set[bytes], value: bytes) -> Any:
        def answered(error: object, _message: object) -> None:
            (self.written.unknown if error else landed).add(value)

        return answered

    def _transaction(self, producer: Producer, stop: threading.Event) -> None:
        landed: set[bytes] = set()
        values: list[bytes] = []
        ends_well = self._random.random() >= ABORTED_SHARE
        producer.begin_transaction()
        try:
            for _ in range(self._random.randint(1, 6)):
                values += self._burst(producer, landed)
                stop.wait(self._pause_s * self._random.random() * 2)
            if not ends_well:
                producer.flush(CALL_TIMEOUT_S)  # aborting drops what was not sent; it is to be in the log
                producer.abort_transaction(CALL_TIMEOUT_S)
                self.written.aborts += 1
                self.written.aborted.update(values)
                return
            producer.commit_transaction(CALL_TIMEOUT_S)
            self.written.commits += 1
            self.written.acknowledged |= landed
        except KafkaException as failed:
            self.written.unknown.update(values)
            if not failed.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(CALL_TIMEOUT_S)


@contextmanager
def writing(
    bootstrap: str, partitions: list[TopicPartition], seed: str, rate: float
) -> Iterator[tuple[list[Writer], threading.Event]]:
    """A writer of each kind while the context is open; setting the event ends them, leaving the context waits."""
    writers = [Writer(kind, bootstrap, partitions, seed, rate) for kind in ("plain", "idempotent", "transactional")]
    stop = threading.Event()
    threads = [threading.Thread(target=writer.run, args=(stop,), name=writer.kind, daemon=True) for writer in writers]
    for thread in threads:
        thread.start()
    try:
        yield writers, stop
    finally:
        stop.set()
        for thread in threads:
            thread.join(2 * DELIVERY_TIMEOUT_MS / 1000)
            assert not thread.is_alive(), f"the {thread.name} producer hangs"
