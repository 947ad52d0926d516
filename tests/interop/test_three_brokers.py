"""Kafka 3.9's own tools against three real processes of farshore's broker on a real ZooKeeper."""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.interop.brokers import LONG_SESSION_MS
from tests.interop.servers import FarshoreBroker, ZooKeeperServer, run_java, wait_until

NODES = (1, 2, 3)
TOOLS = "org.apache.kafka.tools"
PATIENCE_S = 180


class ClusterBroker(FarshoreBroker):
    def __init__(self, folder: Path, zookeeper: str, node_id: int) -> None:
        super().__init__(folder)
        self.node_id = node_id
        self.file = folder / "farshore.toml"
        folder.mkdir()
        self.file.write_text(
            f'[sites.east]\nbootstrap_servers = "{self.bootstrap}"\n'
            f'[sites.east.cluster]\nzookeeper = "{zookeeper}"\nauto_leader_rebalance_enable = false\n'
            f"zookeeper_session_timeout_ms = {LONG_SESSION_MS}\n"
            f'[[sites.east.brokers]]\nnode_id = {node_id}\nlisten = "{self.bootstrap}"\n'
            f'data_dir = "{folder / "data"}"\n'
        )

    def command(self) -> list[str]:
        run = ["broker", "run", "--site", "east", "--node-id", str(self.node_id)]
        return [*super().command()[:3], "--config", str(self.file), *run]


@pytest.fixture
def brokers(tmp_path: Path, zookeeper: ZooKeeperServer) -> Iterator[dict[int, ClusterBroker]]:
    where = f"{zookeeper.address}/test-{uuid.uuid4()}"
    with ExitStack() as stack:
        yield {node: stack.enter_context(ClusterBroker(tmp_path / str(node), where, node)) for node in NODES}


def tool(broker: ClusterBroker, name: str, *arguments: str) -> str:
    return run_java("3.9.1", f"{TOOLS}.{name}", "--bootstrap-server", broker.bootstrap, *arguments)


def described(broker: ClusterBroker, topic: str) -> dict[str, str]:
    """Of the topic's only partition, by the words before the colons."""
    printed = tool(broker, "TopicCommand", "--describe", "--topic", topic).splitlines()[-1]
    fields = (field.partition(":") for field in printed.split("\t") if field)
    return {name.strip(): value.strip() for name, _, value in fields}


REASSIGN = "reassign.ReassignPartitionsCommand"


def moves(file: Path, *replicas: int) -> tuple[str, str]:
    wanted = [{"topic": "t", "partition": 0, "replicas": replicas}]
    file.write_text(json.dumps({"version": 1, "partitions": wanted}))
    return "--reassignment-json-file", str(file)


RATE_BYTES = 2_000_000
COPIED_BYTES = 5 * RATE_BYTES


def fill(broker: ClusterBroker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(COPIED_BYTES // 10_000):
        producer.produce("t", random.randbytes(10_000))
    assert producer.flush(PATIENCE_S) == 0


def copied_in_s(folder: Path) -> float:
    """How long it takes from the first byte of a partition to the last."""

    def size_bytes() -> int:
        return sum(file.stat().st_size for file in folder.glob("*.log"))

    wait_until(lambda: size_bytes() > 0, PATIENCE_S, "the copy has begun")
    begun = time.monotonic()
    wait_until(lambda: size_bytes() >= COPIED_BYTES, PATIENCE_S, "all is copied")
    return time.monotonic() - begun


def test_replicas_are_moved_and_leaders_elected(brokers: dict[int, ClusterBroker], tmp_path: Path) -> None:
    broker, file = brokers[1], tmp_path / "moves.json"
    tool(broker, "TopicCommand", "--create", "--topic", "t", "--replica-assignment", "1")
    fill(broker)
    named = moves(file, 2, 1)
    with ThreadPoolExecutor(1) as pool:  # the tool ends some time after the move has begun
        copied_s = pool.submit(copied_in_s, brokers[2].folder / "data" / "t-0")
        begun = tool(broker, REASSIGN, "--execute", *named, "--throttle", str(RATE_BYTES))
        assert copied_s.result() > COPIED_BYTES / RATE_BYTES - 3.5, "the first second may be had at once"
    assert "Successfully started partition reassignment for t-0" in begun

    def has_moved() -> bool:
        return "Reassignment of partition t-0 is completed" in tool(broker, REASSIGN, "--verify", *named)

    wait_until(has_moved, PATIENCE_S, "the partition has moved")
    on_broker = ("--describe", "--entity-type", "brokers", "--entity-name", "2")
    still_set = run_java("3.9.1", "kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap, *on_broker)
    assert "Dynamic configs for broker 2 are:" in still_set
    assert "throttled.rate" not in still_set
    found = described(broker, "t")
    assert (found["Leader"], found["Replicas"]) == ("1", "2,1")
    elected = tool(broker, "LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions")
    assert "Successfully completed leader election (PREFERRED) for partitions t-0" in elected
    assert described(brokers[3], "t")["Leader"] == "2"

    # No folder can be made there, so that the move waits.
    (brokers[3].folder / "data" / "t-0").write_text("in the way")
    assert "Successfully started" in tool(broker, REASSIGN, "--execute", *moves(file, 3))
    assert "t-0: replicas: 3,2,1. adding: 3. removing: 2,1." in tool(broker, REASSIGN, "--list")
    assert "Successfully cancelled" in tool(broker, REASSIGN, "--cancel", *named)
    assert "No partition reassignments found" in tool(broker, REASSIGN, "--list")
    assert described(broker, "t")["Replicas"] == "2,1"
