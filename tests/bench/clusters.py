"""Clusters to measure: farshore's broker and Apache Kafka, each in a process of its own, in a folder of its own."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.bench.measure import ROOT, cpu_seconds
from tests.ports import free_port

ClusterKind = Literal["farshore", "kafka"]
KAFKA_VERSION = "3.9.1"
KAFKA_JARS = ROOT / ".cache" / "kafka" / KAFKA_VERSION
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
POLL_S = 0.05

_KAFKA_PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
log.dirs={log_dir}
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""


@dataclass(frozen=True, slots=True)
class RunningCluster:
    """One node that answers at `bootstrap`; `log_dir` holds its partitions' folders."""

    kind: ClusterKind
    bootstrap: str
    log_dir: Path
    pid: int

    def cpu_s(self) -> float:
        return cpu_seconds(self.pid)


class ClusterUnavailable(RuntimeError):
    """The cluster cannot be started on this machine; the message says what is missing."""


def kafka_available() -> bool:
    return any(KAFKA_JARS.glob("kafka_2.13-*.jar"))


def kafka_classpath() -> str:
    """Of the fetched Apache Kafka. Raises ClusterUnavailable naming the command that fetches it."""
    if not kafka_available():
        raise ClusterUnavailable(
            f"Apache Kafka {KAFKA_VERSION} is not there; run: "
            f"python -m deploy.tools.fetch_jars kafka {KAFKA_VERSION} .cache/kafka/{KAFKA_VERSION}"
        )
    return f"{KAFKA_JARS}/*"


@contextlib.contextmanager
def running_cluster(kind: ClusterKind, directory: Path) -> Iterator[RunningCluster]:
    """A node of the given kind with its data under `directory`; stopped with the context."""
    directory.mkdir(parents=True)
    port = free_port()
    match kind:
        case "farshore":
            log_dir = directory / "data"
            address = f"127.0.0.1:{port}"
            command = [sys.executable, "-m", "deploy.cli", "broker", "run"]
            command += ["--data-dir", str(log_dir), "--listen", address]
        case "kafka":
            log_dir = directory / "logs"
            command = _format_kafka(directory, log_dir, port)
    with service(command, directory / "server.log", port) as process:
        yield RunningCluster(kind, f"127.0.0.1:{port}", log_dir, process.pid)


def _format_kafka(directory: Path, log_dir: Path, port: int) -> list[str]:
    """Format the storage of a KRaft node; the command that starts it."""
    classpath = kafka_classpath()
    properties = directory / "server.properties"
    properties.write_text(_KAFKA_PROPERTIES.format(port=port, controller=free_port(), log_dir=log_dir))
    storage = ["java", "-cp", classpath, "kafka.tools.StorageTool"]
    subprocess.run(
        [*storage, "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(properties)],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    # Kafka's own start script gives 1 GB; the JVM takes G1 only with two cores and 1.8 GB, so it is asked for.
    return ["java", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-cp", classpath, "kafka.Kafka", str(properties)]


@contextlib.contextmanager
def service(command: Sequence[str], log: Path, port: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A child process, ready once `port` answers; asked to stop with the context, then killed.

    Raises RuntimeError with the end of its log when it ends instead of listening.
    """
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, cwd=ROOT, start_new_session=True
        )
    try:
        if port is not None:
            _wait_for_port(process, port, log)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for_port(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        with socket.socket() as probe:
            probe.settimeout(0.2)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process.poll() is not None or time.monotonic() > deadline:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise RuntimeError(f"{process.args!r} does not listen on {port}; its log ends:\n{tail}")
        time.sleep(POLL_S)
