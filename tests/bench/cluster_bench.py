"""Three brokers of farshore's beside three of Apache Kafka 3.9 (`three_nodes.py`), with the same clients.

Both clusters run all the while and the rounds go in turns; what the other one costs while it waits is the measurement
`idle`. The topic of a thousand partitions is made for the last two measurements, after all others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Final, Literal

from confluent_kafka import KafkaError, Message, Producer

from tests.bench.broker_bench import (
    BATCH_BYTES,
    KINDS,
    WARM_UP_PAYLOAD_BYTES,
    measure_consumer,
    measure_producer,
    write_payload,
)
from tests.bench.clusters import ClusterKind
from tests.bench.data import RECORD_BYTES
from tests.bench.failover_bench import controller_failover_s
from tests.bench.measure import Measured
from tests.bench.three_nodes import REPLICAS, ThreeNodes, cpu_of, three_nodes
from tests.interop.servers import ServerFailed

Part = Literal["produce", "follower", "leader", "rolling", "controller", "idle"]
PARTS: Final[tuple[Part, ...]] = ("produce", "follower", "leader", "rolling", "idle", "controller")
PRODUCE_PARTITIONS: Final = 6
WIDE_PARTITIONS: Final = 1000
WIDE: Final = "wide"
IDLE_S: Final = 20.0
SETTLE_S: Final = 10.0
"""Before idle processes are measured: what they do behind the last change ends."""
LOAD_PER_S: Final = 500
LOOK_S: Final = 0.005
CLIENT_METADATA_MS: Final = 100
PATIENCE_MS: Final = 120_000


@dataclass(slots=True)
class Rolled:
    """A restart of all three, one after the other, each until all replicas are in sync again."""

    took_s: float
    longest_stall_s: float
    records: int
    errors: list[str]


@dataclass(slots=True)
class ClusterRuns:
    """What was measured of one kind; a measurement that was not asked for has no runs."""

    produce: list[Measured] = field(default_factory=list)
    to_follower: list[Measured] = field(default_factory=list)
    to_consumer: list[Measured] = field(default_factory=list)
    leader_s: list[float] = field(default_factory=list)
    rolled: list[Rolled] = field(default_factory=list)
    controller_s: list[float] = field(default_factory=list)
    idle_cores: list[float] = field(default_factory=list)


@dataclass(slots=True)
class ClusterResults:
    by_kind: dict[ClusterKind, ClusterRuns]
    copies: list[Measured] = field(default_factory=list)
    """The limit: the same bytes written to three files and nothing else."""


@dataclass(frozen=True, slots=True)
class ClusterSetup:
    directory: Path
    payload_bytes: int
    rounds: int
    kills: int
    parts: frozenset[Part]


class _Bench:
    def __init__(self, setup: ClusterSetup, clusters: list[ThreeNodes], say: Callable[[str], None]) -> None:
        self.setup = setup
        self.clusters = clusters
        self.say = say
        self.payload_file = setup.directory / "payload.txt"
        self.results = ClusterResults({cluster.kind: ClusterRuns() for cluster in clusters})

    def rounds(self, part: Part, count: int) -> Iterator[tuple[int, ThreeNodes, ClusterRuns]]:
        """Each cluster in turn, `count` times; nothing where the part is not wanted."""
        if part in self.setup.parts:
            for number in range(count):
                for cluster in self.clusters:
                    self.say(f"{part}: {cluster.kind}, round {number + 1} of {count}")
                    yield number, cluster, self.results.by_kind[cluster.kind]

    def run(self) -> None:
        setup = self.setup
        self.produce()
        self.follower()
        self.leader()
        for number, cluster, runs in self.rounds("rolling", 1):
            runs.rolled.append(roll(cluster, f"rolling-{number}"))
        if setup.parts & {"controller", "idle"}:
            for cluster in self.clusters:
                self.say(f"{cluster.kind}: {WIDE_PARTITIONS} partitions")
                cluster.create(WIDE, WIDE_PARTITIONS)
            time.sleep(SETTLE_S)
        for _, cluster, runs in self.rounds("idle", setup.rounds):
            started = cluster.cpu_s()
            time.sleep(IDLE_S)
            runs.idle_cores.append((cluster.cpu_s() - started) / IDLE_S)
        for _, cluster, runs in self.rounds("controller", setup.rounds):
            runs.controller_s.append(controller_failover_s(cluster, self.say))

    def produce(self) -> None:
        if "produce" not in self.setup.parts:
            return
        for cluster in self.clusters:
            self.say(f"warming {cluster.kind}")
            self._produced(cluster, "warm-up", WARM_UP_PAYLOAD_BYTES)
        for number, cluster, runs in self.rounds("produce", self.setup.rounds):
            runs.produce.append(self._produced(cluster, f"produce-{number}", self.setup.payload_bytes))
            if cluster is self.clusters[-1]:
                self.results.copies.append(three_copies(self.setup.directory, self.setup.payload_bytes))

    def _produced(self, cluster: ThreeNodes, topic: str, payload_bytes: int) -> Measured:
        cluster.create(topic, PRODUCE_PARTITIONS)
        return measure_producer(cluster.cpu_s, cluster.bootstrap, topic, payload_bytes, self.payload_file)

    def follower(self) -> None:
        """What one follower, and then one consumer, costs the broker that leads the only partition.

        The follower is a replica that is added: a broker that comes back costs the leader of other things, too.
        """
        payload_bytes = self.setup.payload_bytes
        for number, cluster, runs in self.rounds("follower", self.setup.rounds):
            topic = f"follower-{number}"
            first, second, *_ = cluster.nodes
            leader = cluster.nodes[first]
            cluster.create_on(topic, first)
            measure_producer(cluster.cpu_s, cluster.bootstrap, topic, payload_bytes, self.payload_file, acks="1")
            before_s, began = cpu_of(leader), time.monotonic()
            cluster.reassign(topic, first, second)
            cluster.wait_whole(topic, 2)
            took_s = time.monotonic() - began
            runs.to_follower.append(Measured(payload_bytes, cpu_of(leader) - before_s, took_s))

            def leader_cpu_s() -> float:
                return cpu_of(leader)  # noqa: B023

            runs.to_consumer.append(measure_consumer(leader_cpu_s, cluster.bootstrap, topic, payload_bytes))

    def leader(self) -> None:
        for number, cluster, runs in self.rounds("leader", self.setup.kills):
            topic = "leader"
            if number == 0:
                cluster.create(topic, 1)
            runs.leader_s.append(leader_failover_s(cluster, topic))


def bench_cluster(setup: ClusterSetup, values: list[bytes], say: Callable[[str], None]) -> ClusterResults:
    """Raises ServerFailed, also when Apache Kafka's jars are not there."""
    setup.directory.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        clusters = []
        for kind in KINDS:
            say(f"starting three brokers: {kind}")
            clusters.append(stack.enter_context(three_nodes(kind, setup.directory / kind)))
        bench = _Bench(setup, clusters, say)
        write_payload(bench.payload_file, values)
        bench.run()
    return bench.results


def three_copies(directory: Path, payload_bytes: int) -> Measured:
    """As many bytes into the page cache as three brokers must write, by nothing that could be left out."""
    block = memoryview(bytes(BATCH_BYTES))
    started_s, began = time.process_time(), time.monotonic()
    for number in range(REPLICAS):
        path = directory / f"copy-{number}"
        with path.open("wb", buffering=0) as file:
            for _ in range(payload_bytes // len(block)):
                file.write(block)
        path.unlink()
    return Measured(payload_bytes, time.process_time() - started_s, time.monotonic() - began)


def leader_failover_s(cluster: ThreeNodes, topic: str) -> float:
    """From kill -9 of the partition's leader until a producer that keeps trying has its next record acknowledged."""
    producer, heard = _producer(cluster), _Heard()
    heard.send(producer, topic, 0)
    _flush(producer, heard)
    victim = cluster.nodes[cluster.leader(topic)]
    killed = time.monotonic()
    victim.kill9()
    heard.send(producer, topic, 0)
    _flush(producer, heard)
    took_s = time.monotonic() - killed
    victim.start()
    cluster.wait_whole(topic)
    return took_s


def roll(cluster: ThreeNodes, topic: str) -> Rolled:
    """Stop and start each broker under load."""
    cluster.create(topic, PRODUCE_PARTITIONS)
    heard = _Heard()
    with _load(cluster, topic, heard):
        began = time.monotonic()
        for node in cluster.nodes.values():
            node.restart()
            cluster.wait_whole(topic)
        took_s = time.monotonic() - began
    return Rolled(took_s, max(heard.waited_s), len(heard.waited_s), heard.errors)


@dataclass(slots=True)
class _Heard:
    """How long each record took until it was acknowledged, and what the producer was told of the others."""

    waited_s: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def send(self, producer: Producer, topic: str, partition: int) -> None:
        sent = time.monotonic()

        def delivered(error: KafkaError | None, _message: Message) -> None:
            self.waited_s.append(time.monotonic() - sent)
            if error is not None:
                self.errors.append(str(error))

        producer.produce(topic, bytes(RECORD_BYTES), partition=partition, on_delivery=delivered)


def _producer(cluster: ThreeNodes) -> Producer:
    """One that looks for leaders ten times a second: what is measured is the cluster's time, not the client's."""
    return Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 0,
            "message.timeout.ms": PATIENCE_MS,
            "topic.metadata.refresh.interval.ms": CLIENT_METADATA_MS,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": CLIENT_METADATA_MS,
            "log_level": 0,
        }
    )


def _flush(producer: Producer, heard: _Heard) -> None:
    """Until every record was acknowledged. Raises ServerFailed where one was refused."""
    if producer.flush(PATIENCE_MS / 1000) or heard.errors:
        raise ServerFailed(f"a record was not acknowledged: {heard.errors}")


@contextmanager
def _load(cluster: ThreeNodes, topic: str, heard: _Heard) -> Iterator[None]:
    """LOAD_PER_S records a second to all partitions in turn, until the context ends."""
    producer, over = _producer(cluster), Event()

    def send_all(numbers: Iterable[int]) -> None:
        began = time.monotonic()
        for number in numbers:
            heard.send(producer, topic, number % PRODUCE_PARTITIONS)
            producer.poll(0)
            while time.monotonic() < began + number / LOAD_PER_S:
                producer.poll(LOOK_S / 10)
            if over.is_set():
                return

    thread = Thread(target=send_all, args=(range(2**62),), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        producer.flush(PATIENCE_MS / 1000)
