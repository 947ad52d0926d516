"""Clusters to measure: farshore's broker and Apache Kafka, each a process of its own with a folder of its own."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.bench.measure import ROOT, cpu_seconds
from tests.classes import CACHE
from tests.interop.servers import FarshoreBroker, KafkaServer, Server, java, kafka_class_path

ClusterKind = Literal["farshore", "kafka"]
KAFKA_VERSION = "3.9.1"
STOP_TIMEOUT_S = 20.0


class StartedBroker(FarshoreBroker):
    """As whoever runs farshore starts it."""

    launch = Server.launch


class FastKafka(KafkaServer):
    """Kafka as it runs in production: both compilers, G1 and the heap of its own start script."""

    def command(self) -> Sequence[str]:
        return production_command(self)


def production_command(server: KafkaServer) -> list[str]:
    settings = str(server.folder / "server.properties")
    heap = ["-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    return [java(), *heap, "-cp", kafka_class_path(server.version), "kafka.Kafka", settings]


@dataclass(frozen=True, slots=True)
class RunningCluster:
    """One node that answers at `bootstrap`; `log_dir` holds its partitions' folders."""

    kind: ClusterKind
    bootstrap: str
    log_dir: Path
    pid: int

    def cpu_s(self) -> float:
        return cpu_seconds(self.pid)


def kafka_available() -> bool:
    return (CACHE / "kafka" / KAFKA_VERSION / ".complete").exists()


@contextlib.contextmanager
def running_cluster(kind: ClusterKind, directory: Path) -> Iterator[RunningCluster]:
    """A node of the given kind with its data under `directory`; stopped with the context. Raises ServerFailed."""
    server = FastKafka(KAFKA_VERSION, directory) if kind == "kafka" else StartedBroker(directory)
    with server:
        assert server.process is not None
        yield RunningCluster(kind, server.bootstrap, directory / "data", server.process.pid)


@contextlib.contextmanager
def service(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A child process that writes to `log`; asked to stop with the context, then killed."""
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, cwd=ROOT, start_new_session=True
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
