"""Three brokers of a kind on a ZooKeeper server of their own: farshore's, or Apache Kafka's 3.9.

3.9 is the last Kafka that keeps its metadata in ZooKeeper, so both stand on the same, with the same session time-out.
Neither moves leaders back by itself here: a measurement would meet that at random.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, TopicMetadata
from confluent_kafka.cimpl import NewTopic

from tests.bench.clusters import KAFKA_VERSION, ClusterKind, production_command
from tests.bench.measure import family_cpu_seconds
from tests.interop.brokers import NODES, cluster_of_brokers
from tests.interop.servers import FarshoreBroker, KafkaOnZooKeeper, KafkaServer, ServerFailed, ZooKeeperServer, run_java

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
SESSION_MS = 6000
REPLICAS = len(NODES)
MIN_INSYNC = 2
PATIENCE_S = 180.0
LOOK_S = 0.05
ADMIN_S = 60.0

Node = FarshoreBroker | KafkaServer


class FastKafkaNode(KafkaOnZooKeeper):
    """One of three, with the coordinators' topics as Kafka has them: 50 partitions of three replicas."""

    def properties(self) -> dict[str, str]:
        internal = ("offsets.topic.", "transaction.state.log.")
        kept = {key: value for key, value in super().properties().items() if not key.startswith(internal)}
        return {
            **kept,
            "zookeeper.session.timeout.ms": str(SESSION_MS),
            "auto.leader.rebalance.enable": "false",
        }

    def command(self) -> Sequence[str]:
        return production_command(self)


@dataclass(frozen=True, slots=True)
class ThreeNodes:
    """A running cluster; `zookeeper` is where its znodes are."""

    kind: ClusterKind
    nodes: Mapping[int, Node]
    zookeeper: str
    admin: AdminClient = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "admin", AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0}))

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    def cpu_s(self) -> float:
        """Of all brokers that run, without ZooKeeper."""
        return sum(cpu_of(node) for node in self.nodes.values())

    def create(self, topic: str, partitions: int, replicas: int = REPLICAS, min_insync: int = MIN_INSYNC) -> None:
        """Returns when all replicas are in sync."""
        new = NewTopic(topic, partitions, replicas, config={"min.insync.replicas": str(min_insync)})
        self._make(new)
        self.wait_whole(topic, replicas)

    def create_on(self, topic: str, *replicas: int) -> None:
        """One partition, on these brokers; the first one leads."""
        self._make(NewTopic(topic, 1, replica_assignment=[list(replicas)], config={"min.insync.replicas": "1"}))
        self.wait_whole(topic, len(replicas))

    def reassign(self, topic: str, *replicas: int) -> None:
        """Returns when it is under way. Raises AssertionError."""
        wanted = [{"topic": topic, "partition": 0, "replicas": replicas}]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"version": 1, "partitions": wanted}, file)
            file.flush()
            named = ("--reassignment-json-file", file.name, "--execute")
            run_java(KAFKA_VERSION, REASSIGN, "--bootstrap-server", self.bootstrap, *named)

    def _make(self, new: NewTopic) -> None:
        for made in self.admin.create_topics([new], operation_timeout=ADMIN_S, request_timeout=ADMIN_S).values():
            made.result(ADMIN_S)

    def described(self, topic: str) -> TopicMetadata | None:
        """By a broker that answers; None where none does now."""
        with contextlib.suppress(KafkaException):
            return self.admin.list_topics(topic, timeout=5).topics.get(topic)
        return None

    def is_whole(self, topic: str, replicas: int = REPLICAS) -> bool:
        """Whether every partition is led, and all its replicas are in sync."""
        found = self.described(topic)
        if found is None or not found.partitions:
            return False
        return all(len(each.isrs) == replicas and each.leader >= 0 for each in found.partitions.values())

    def wait_whole(self, topic: str, replicas: int = REPLICAS) -> None:
        """Raises ServerFailed."""
        wait_for(lambda: self.is_whole(topic, replicas), f"all replicas of {topic} to be in sync at {self.kind}")

    def leader(self, topic: str, index: int = 0) -> int:
        found = self.described(topic)
        if found is None:
            raise ServerFailed(f"{self.kind} does not say who leads {topic}-{index}")
        return int(found.partitions[index].leader)


def cpu_of(node: Node) -> float:
    """Seconds that a broker and its children have used since it was started last; 0 of one that does not run."""
    return 0.0 if node.process is None else family_cpu_seconds(node.process.pid)


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Raises ServerFailed."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise ServerFailed(f"waited {PATIENCE_S:.0f} s in vain for {what}")
        time.sleep(LOOK_S)


@contextlib.contextmanager
def three_nodes(kind: ClusterKind, directory: Path) -> Iterator[ThreeNodes]:
    """Stopped with the context. Raises ServerFailed."""
    with ZooKeeperServer(directory / "zookeeper") as zookeeper:
        where = f"{zookeeper.address}/bench"
        if kind == "farshore":
            settings = "auto_leader_rebalance_enable = false\n"
            with cluster_of_brokers(directory / "brokers", where, SESSION_MS, settings) as brokers:
                yield ThreeNodes(kind, brokers, where)
            return
        with contextlib.ExitStack() as stack:
            nodes = {
                node: stack.enter_context(FastKafkaNode(directory / f"broker-{node}", where, node)) for node in NODES
            }
            yield ThreeNodes(kind, nodes, where)
