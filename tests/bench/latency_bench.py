"""How late a mirrored record is: written at the source, seen by a consumer at the target; and directly, to compare.

Records go out on a fixed schedule of RATE_RECORDS_PER_S and carry the time they were *due*, so that a stall delays
every record behind it in the figures too (no coordinated omission). Producer and consumers are confluent-kafka in this
process, one thread each.
"""

from __future__ import annotations

import struct
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from tests.bench.clusters import ClusterKind, running_cluster, service
from tests.bench.data import PARTITIONS, RECORD_BYTES
from tests.bench.mirror_bench import create_topic, landed_bytes, mirror_config

RATE_RECORDS_PER_S = 500
WARM_UP_S = 3
DUE = struct.Struct(">q")
CONSUME_TIMEOUT_S = 30.0
MIRROR_START_TIMEOUT_S = 60.0
TOPIC = "latency"


@dataclass(frozen=True, slots=True)
class Latencies:
    """Milliseconds from due to seen, ascending."""

    sorted_ms: list[float]

    def percentile(self, percent: float) -> float:
        return self.sorted_ms[min(len(self.sorted_ms) - 1, int(len(self.sorted_ms) * percent / 100))]


@dataclass(frozen=True, slots=True)
class LatencyRuns:
    """A consumer at the source and one at the target, during the same run."""

    direct: Latencies
    mirrored: Latencies


class Watcher(threading.Thread):
    """Consumes `records` records of all partitions and notes each one's age; `errors` says what failed."""

    def __init__(self, bootstrap: str, records: int) -> None:
        super().__init__(daemon=True)
        self._records = records
        self.ages_ms: list[tuple[int, float]] = []
        self.errors: list[str] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"latency-{uuid.uuid4()}",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 500,
                "fetch.min.bytes": 1,
            }
        )

    def run(self) -> None:
        self._consumer.assign([TopicPartition(TOPIC, index, OFFSET_BEGINNING) for index in range(PARTITIONS)])
        deadline = time.monotonic() + self._records / RATE_RECORDS_PER_S + CONSUME_TIMEOUT_S
        while len(self.ages_ms) < self._records:
            message = self._consumer.poll(0.2)
            if time.monotonic() > deadline:
                self.errors.append(f"saw {len(self.ages_ms)} of {self._records} records in time")
                break
            if message is None:
                continue
            if message.error():
                self.errors.append(str(message.error()))
                break
            due_ns = DUE.unpack_from(message.value())[0]
            self.ages_ms.append((due_ns, (time.monotonic_ns() - due_ns) / 1e6))
        self._consumer.close()

    def latencies(self, after_ns: int) -> Latencies:
        """Of the records due after `after_ns`. Raises RuntimeError when some were not seen."""
        if self.errors:
            raise RuntimeError(self.errors[0])
        return Latencies(sorted(age for due_ns, age in self.ages_ms if due_ns > after_ns))


def bench_latency(directory: Path, kind: ClusterKind, seconds: int, say: Callable[[str], None]) -> LatencyRuns:
    """Latencies of `seconds` at the fixed rate, after a warm-up."""
    with running_cluster(kind, directory / "source") as source, running_cluster(kind, directory / "target") as target:
        create_topic(source.bootstrap, TOPIC)
        create_topic(target.bootstrap, TOPIC)
        config = directory / "farshore.toml"
        config.write_text(mirror_config(source.bootstrap, target.bootstrap, TOPIC))
        command = [sys.executable, "-m", "deploy.cli", "--config", str(config), "mirror", "run"]
        with service(command, directory / "mirror.log"):
            say(f"mirroring {RATE_RECORDS_PER_S} records/s for {seconds} s")
            # One record through the mirror first: its start is not what is measured.
            _produce(source.bootstrap, PARTITIONS)
            deadline = time.monotonic() + MIRROR_START_TIMEOUT_S
            while landed_bytes(target.log_dir, TOPIC) < PARTITIONS * RECORD_BYTES:
                if time.monotonic() > deadline:
                    raise RuntimeError("the mirror brought nothing over")
                time.sleep(0.05)
            records = (WARM_UP_S + seconds) * RATE_RECORDS_PER_S
            watchers = [Watcher(cluster.bootstrap, PARTITIONS + records) for cluster in (source, target)]
            for watcher in watchers:
                watcher.start()
            started_ns = time.monotonic_ns()
            _produce(source.bootstrap, records)
            for watcher in watchers:
                watcher.join()
    after_ns = started_ns + WARM_UP_S * 1_000_000_000
    return LatencyRuns(*(watcher.latencies(after_ns) for watcher in watchers))


def _produce(bootstrap: str, records: int) -> None:
    """One record each 1/RATE_RECORDS_PER_S, in turn to the partitions, sent without waiting for company."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": -1})
    filler = bytes(RECORD_BYTES - DUE.size)
    started_ns = time.monotonic_ns()
    for number in range(records):
        due_ns = started_ns + number * 1_000_000_000 // RATE_RECORDS_PER_S
        if (ahead_ns := due_ns - time.monotonic_ns()) > 0:
            time.sleep(ahead_ns / 1e9)
        producer.produce(TOPIC, DUE.pack(due_ns) + filler, partition=number % PARTITIONS)
        producer.poll(0)
    producer.flush()
