"""Real servers for tests: Apache Kafka, farshore's broker, toxiproxy; each a process with a folder, on free ports.

All are context managers; leaving one ends its processes, and a server that does not start shows the end of its log.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from broker.wire.frames import RequestHeader, decode_response, encode_request
from broker.wire.messages.api_versions import ApiVersionsRequest
from deploy.tools.zookeeper import Member, command, configure, serves
from tests.classes import CACHE, ZOOKEEPER, kept_classes, server_of, tools_of
from tests.forking import FARSHORE, ForkedProcess, start_farshore
from tests.interop.starting import start_process
from tests.interop.warm_tools import warm_tools
from tests.polling import pause_s
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
KAFKA_HEAP = ("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
START_TIMEOUT_S = 240.0
STOP_TIMEOUT_S = 60.0
LOG_TAIL_LINES = 40


class ServerFailed(AssertionError):
    """A server did not start, or ended before its time; the message ends with its log."""


def kafka_class_path(version: str) -> str:
    """The jars of an Apache Kafka release; fails with the command that fetches them."""
    folder = CACHE / "kafka" / version
    if not (folder / ".complete").exists():
        raise ServerFailed(f"Kafka {version} is not there; run: make .cache/kafka/{version}/.complete")
    return f"{folder}/*"


def answers_kafka(port: int) -> bool:
    """Whether a broker on the loopback port answers ApiVersions: a port opens before Kafka is ready to serve."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as peer:
            header = RequestHeader(api_key=18, api_version=0, correlation_id=7, client_id="ready")
            peer.sendall(b"".join(bytes(part) for part in encode_request(header, ApiVersionsRequest())))
            stream = peer.makefile("rb")
            size = int.from_bytes(stream.read(4), "big")
            frame = stream.read(size)
    except OSError:
        return False
    if not frame:
        return False
    correlation_id, _ = decode_response(18, 0, frame)
    return correlation_id == 7


class Server:
    """A server process with a log; subclasses say its command and when it is ready."""

    name = "server"
    given_up_by = signal.SIGKILL

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / f"{self.name}.log"
        self.process: subprocess.Popen[bytes] | ForkedProcess | None = None

    def command(self) -> Sequence[str]:
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        return os.environ

    def ready(self) -> bool:
        raise NotImplementedError

    def start(self) -> None:
        """Start the process and wait until it serves. Raises ServerFailed."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Start the process."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as sink:
            streams = {"stdin": subprocess.DEVNULL, "stdout": sink, "stderr": sink}
            self.process = start_process(self.command(), cwd=ROOT, env=dict(self.environment()), **streams)

    def wait_ready(self) -> None:
        """Until it serves. Raises ServerFailed."""
        try:
            wait_until(lambda: self._alive() and self.ready(), START_TIMEOUT_S, f"{self.name} to serve")
        except AssertionError as failed:
            self._end(self.given_up_by)
            raise ServerFailed(f"{failed}; its log ends:\n{self.log_tail()}") from failed

    def _alive(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise ServerFailed(f"{self.name} ended with {self.process.returncode}")
        return True

    def kill9(self) -> None:
        """End the process as a power cut would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the process as an operator would; SIGKILL when it does not end in time."""
        self._end(signal.SIGTERM)

    def restart(self) -> None:
        """Stop and start again with the same data and port."""
        self.stop()
        self.start()

    def _end(self, number: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(number)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def log_tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-LOG_TAIL_LINES:])

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class KafkaServer(Server):
    """One node of Apache Kafka in KRaft mode, with the settings of `overrides` on top."""

    def __init__(self, version: str, folder: Path, overrides: Mapping[str, str] | None = None) -> None:
        self.name = f"kafka-{version}"
        super().__init__(folder)
        self.version = version
        self.port = free_port()
        self.controller_port = free_port()
        self.overrides = dict(overrides or {})

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def properties(self) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.folder / "data"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "log.cleaner.dedupe.buffer.size": str(8 << 20),
            **self.overrides,
        }

    def start(self) -> None:
        settings = self.folder / "server.properties"
        if not settings.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            settings.write_text("".join(f"{key}={value}\n" for key, value in self.properties().items()))
            self.format_storage(settings)
        super().start()

    def format_storage(self, settings: Path) -> None:
        arguments = ["format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", str(settings), *self.format_options()]
        run_java(self.version, "kafka.tools.StorageTool", *arguments)

    def format_options(self) -> Sequence[str]:
        return ()

    def command(self) -> Sequence[str]:
        options = (*KAFKA_HEAP, *kept_classes(server_of(self.version)), "-cp", kafka_class_path(self.version))
        return [java(), *options, "kafka.Kafka", str(self.folder / "server.properties")]

    def ready(self) -> bool:
        return answers_kafka(self.port)


class KafkaOnZooKeeper(KafkaServer):
    """One broker of Apache Kafka 3.9, the last release that keeps its metadata in ZooKeeper."""

    def __init__(self, folder: Path, zookeeper: str, node_id: int = 1) -> None:
        super().__init__("3.9.1", folder)
        self.name = f"kafka-zookeeper-{node_id}"
        self.log = folder / f"{self.name}.log"
        self.zookeeper = zookeeper
        self.node_id = node_id

    def properties(self) -> dict[str, str]:
        modes = ("process.roles", "node.id", "controller.", "listener")
        kept = {key: value for key, value in super().properties().items() if not key.startswith(modes)}
        return {
            **kept,
            "broker.id": str(self.node_id),
            "zookeeper.connect": self.zookeeper,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
        }

    def format_storage(self, settings: Path) -> None:
        """ZooKeeper's mode has nothing to format."""


class ZooKeeperServer(Server):
    """A ZooKeeper server; leave `members` out for one that is alone."""

    def __init__(self, folder: Path, number: int = 1, members: Sequence[Member] = (), tick_ms: int = 500) -> None:
        self.name = f"zookeeper-{number}"
        super().__init__(folder)
        self.members = members or zookeeper_members(folder, 1)
        self.member = self.members[number - 1]
        self.tick_ms = tick_ms

    @property
    def address(self) -> str:
        return self.member.address

    def command(self) -> Sequence[str]:
        configure(self.members, self.tick_ms)
        return [(line := command(self.member))[0], *kept_classes(ZOOKEEPER), *line[1:]]

    def ready(self) -> bool:
        return serves(self.member)

    def pause(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)


class ZooKeeperEnsemble:
    """Three ZooKeeper servers; none of them serves before a second one runs."""

    def __init__(self, folder: Path, tick_ms: int = 500) -> None:
        members = zookeeper_members(folder, 3)
        self.servers = [ZooKeeperServer(folder, member.number, members, tick_ms) for member in members]

    @property
    def address(self) -> str:
        return ",".join(server.address for server in self.servers)

    def __enter__(self) -> Self:
        for server in self.servers:
            server.launch()
        for server in self.servers:
            server.wait_ready()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self.servers:
            server.stop()


def zookeeper_members(folder: Path, count: int) -> list[Member]:
    return [Member(n, free_port(), free_port(), free_port(), folder / str(n)) for n in range(1, count + 1)]


class FarshoreBroker(Server):
    """farshore's broker as a process of its own. One that stands still says where before it ends."""

    name = "broker"
    given_up_by = signal.SIGABRT

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.data_dir = folder / "data"
        self.port = free_port()

    def environment(self) -> Mapping[str, str]:
        return {**super().environment(), "PYTHONFAULTHANDLER": "1"}

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def command(self) -> Sequence[str]:
        where = ["--data-dir", str(self.data_dir), "--listen", self.bootstrap]
        return [*FARSHORE, "broker", "run", *where]

    def launch(self) -> None:
        if (command := list(self.command()))[:3] != FARSHORE:
            return super().launch()
        self.process = start_farshore(command[3:], ROOT, self.log, self.environment())
        return None

    def ready(self) -> bool:
        return answers_kafka(self.port)


class Toxiproxy(Server):
    """A toxiproxy server; `url` is its control address."""

    name = "toxiproxy"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> Sequence[str]:
        binary = CACHE / "bin" / "toxiproxy-server"
        if not binary.exists():
            raise ServerFailed("toxiproxy is not there; run: make .cache/bin/toxiproxy-server")
        return [str(binary), "-host", "127.0.0.1", "-port", str(self.port)]

    def ready(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


def java() -> str:
    """The java to run Kafka with."""
    found = shutil.which("java")
    if found is None:
        raise ServerFailed("there is no java; run: make java")
    return found


def run_java(
    version: str,
    main_class: str,
    *arguments: str,
    stdin: str | None = None,
    timeout_s: float = 300.0,
    expect: int = 0,
    options: Sequence[str] = (),
) -> str:
    """Run a Java tool of a Kafka release to its end; its standard output. AssertionError with all it said otherwise."""
    jvm = [java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    jvm += kept_classes(tools_of(version))
    path = kafka_class_path(version)
    if not options:
        said = warm_tools(tuple(jvm), path).run([main_class, *arguments], stdin or "", timeout_s)
        if said is not None:
            return said.out_of(expect, main_class, *arguments)
    return run([*jvm, *options, "-cp", path, main_class, *arguments], stdin=stdin, timeout_s=timeout_s, expect=expect)


def run(command: Sequence[str], *, stdin: str | None = None, timeout_s: float = 120.0, expect: int = 0) -> str:
    """Run a program to its end; its standard output. AssertionError with all it said when it ends otherwise."""
    done = subprocess.run(command, input=stdin or "", capture_output=True, text=True, timeout=timeout_s, check=False)
    # Java's class path is long and says nothing.
    shown = re.sub(r"-cp \S+", "-cp ...", " ".join(command))
    assert done.returncode == expect, f"{shown}\nended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def wait_until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Poll another process with a deadline. AssertionError when it passes."""
    deadline = (began := time.monotonic()) + timeout_s
    while not condition():
        took_s = time.monotonic() - began
        assert began + took_s < deadline, f"waited {timeout_s:.0f} s for {what}"
        time.sleep(pause_s(took_s))
        began = time.monotonic()
