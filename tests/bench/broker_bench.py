"""Produce and fetch against Apache Kafka, by Kafka's own ProducerPerformance and ConsumerPerformance.

Both brokers are running processes; each gets a warm-up of the same clients first, then the rounds go in turns.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.clusters import KAFKA_VERSION, ClusterKind, RunningCluster, running_cluster
from tests.bench.data import RECORD_BYTES
from tests.bench.measure import Measured
from tests.bench.mirror_bench import create_topic
from tests.interop.servers import java, kafka_class_path

BATCH_BYTES = 65_536
WARM_UP_PAYLOAD_BYTES = 500_000_000
CLIENT_TIMEOUT_S = 600
KINDS: tuple[ClusterKind, ...] = ("farshore", "kafka")


@dataclass(slots=True)
class BrokerRuns:
    """Each run's broker CPU and the client's wall time for the payload."""

    produce: list[Measured] = field(default_factory=list)
    fetch: list[Measured] = field(default_factory=list)


def bench_broker(
    directory: Path, payload_bytes: int, rounds: int, values: list[bytes], say: Callable[[str], None]
) -> dict[ClusterKind, BrokerRuns]:
    """Both brokers' runs. Raises ServerFailed when Apache Kafka's jars are not there."""
    directory.mkdir(parents=True, exist_ok=True)
    payload_file = directory / "payload.txt"
    write_payload(payload_file, values)
    results: dict[ClusterKind, BrokerRuns] = {kind: BrokerRuns() for kind in KINDS}
    with (
        running_cluster("farshore", directory / "farshore") as ours,
        running_cluster("kafka", directory / "kafka") as kafka,
    ):
        for cluster in (ours, kafka):
            say(f"warming {cluster.kind}")
            _round(cluster, "warm-up", WARM_UP_PAYLOAD_BYTES, payload_file)
        for number in range(rounds):
            for cluster in (ours, kafka):
                say(f"measuring {cluster.kind}, round {number + 1} of {rounds}")
                produced, fetched = _round(cluster, f"perf-{number}", payload_bytes, payload_file)
                results[cluster.kind].produce.append(produced)
                results[cluster.kind].fetch.append(fetched)
    return results


def _round(cluster: RunningCluster, topic: str, payload_bytes: int, payload_file: Path) -> tuple[Measured, Measured]:
    """Write a topic of its own, then read it."""
    create_topic(cluster.bootstrap, topic)
    produced = measure_producer(cluster.cpu_s, cluster.bootstrap, topic, payload_bytes, payload_file)
    return produced, measure_consumer(cluster.cpu_s, cluster.bootstrap, topic, payload_bytes)


def write_payload(file: Path, values: list[bytes]) -> None:
    """ProducerPerformance draws its values from the lines of a file; the lines of one record are put on one line."""
    file.write_bytes(b"\n".join(value.replace(b"\n", b" ") for value in values[:10_000]))


def measure_producer(
    cpu_s: Callable[[], float],
    bootstrap: str,
    topic: str,
    payload_bytes: int,
    payload_file: Path,
    acks: str = "all",
    config: Path | None = None,
) -> Measured:
    """Kafka's ProducerPerformance; `cpu_s` is what the measured processes have used so far, `config` says how the
    broker is reached.
    """
    client = ["org.apache.kafka.tools.ProducerPerformance", "--topic", topic]
    client += ["--num-records", str(payload_bytes // RECORD_BYTES)]
    client += ["--payload-file", str(payload_file), "--throughput", "-1", "--producer-props"]
    client += [f"bootstrap.servers={bootstrap}", f"batch.size={BATCH_BYTES}", "linger.ms=10", f"acks={acks}"]
    client += [] if config is None else ["--producer.config", str(config)]
    return _measure(cpu_s, client, payload_bytes, produce_wall_s)


def measure_consumer(
    cpu_s: Callable[[], float], bootstrap: str, topic: str, payload_bytes: int, config: Path | None = None
) -> Measured:
    """Kafka's ConsumerPerformance, which reads a topic from its beginning."""
    client = ["org.apache.kafka.tools.ConsumerPerformance", "--bootstrap-server", bootstrap]
    client += ["--topic", topic, "--messages", str(payload_bytes // RECORD_BYTES), "--timeout", "60000"]
    client += [] if config is None else ["--consumer.config", str(config)]
    return _measure(cpu_s, client, payload_bytes, fetch_wall_s)


def _measure(
    cpu_s: Callable[[], float], client: Sequence[str], payload_bytes: int, wall_s: Callable[[str], float]
) -> Measured:
    """The brokers' CPU while the client runs, and the time the client itself counted (without the JVM's start)."""
    started = cpu_s()
    command = [java(), "-Xmx512m", "-cp", kafka_class_path(KAFKA_VERSION), *client]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CLIENT_TIMEOUT_S, check=False)
    if done.returncode != 0 or "TIMEOUT" in done.stderr:
        raise RuntimeError(f"{client[0]} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")
    return Measured(payload_bytes, cpu_s() - started, wall_s(done.stdout))


def produce_wall_s(output: str) -> float:
    """From the last line, `1000 records sent, 250.0 records/sec (...)`."""
    records, per_s = re.findall(r"(\d+) records sent, ([\d.]+) records/sec", output)[-1]
    return int(records) / float(per_s)


def fetch_wall_s(output: str) -> float:
    """From the last line's columns: records are the fifth, `fetch.time.ms` (without the group's join) the eighth."""
    columns = output.strip().splitlines()[-1].split(",")
    return int(columns[7]) / 1000
