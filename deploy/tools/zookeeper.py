"""ZooKeeper servers on this machine, out of the jars that PySpark carries, or of Debian's package where that is there.

    python -m deploy.tools.zookeeper var/zookeeper                  one server on port 2181, until SIGINT or SIGTERM
    python -m deploy.tools.zookeeper var/zookeeper --servers 3      an ensemble on 2181, 2182 and 2183

A server keeps data, configuration and its `zookeeper.log` in its folder (DIR/1, DIR/2, ...), and finds them again.
"""

from __future__ import annotations

import argparse
import importlib.util
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.local.processes import port_is_free
from deploy.tools.errors import ToolsError
from deploy.tools.java import require_java

HOST: Final = "127.0.0.1"
CLIENT_PORT: Final = 2181
TICK_MS: Final = 2000
DEBIAN_JARS: Final = Path("/usr/share/java")
# A server of an ensemble may take this many ticks to find its leader, and to fall behind it.
INIT_TICKS: Final = 20
SYNC_TICKS: Final = 10
JAVA_OPTIONS: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
MAIN_CLASS: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
STOP_TIMEOUT_S: Final = 10.0
START_TIMEOUT_S: Final = 60.0
LOOK_S: Final = 0.1
LOG_TAIL_LINES: Final = 5
LOGGING: Final = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %-5p [%t] %c{1}: %m%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
"""
"""Without it log4j, in PySpark's jars, tells nothing but errors, and those without their day."""


@dataclass(frozen=True, slots=True)
class Member:
    """One server: its number in the ensemble, from 1 on, its ports and its folder."""

    number: int
    client_port: int
    quorum_port: int
    election_port: int
    folder: Path

    @property
    def address(self) -> str:
        """For clients."""
        return f"{HOST}:{self.client_port}"

    @property
    def config(self) -> Path:
        return self.folder / "zoo.cfg"

    @property
    def logging(self) -> Path:
        return self.folder / "log4j2.properties"

    @property
    def log(self) -> Path:
        """Of a server that `main` runs."""
        return self.folder / "zookeeper.log"


def class_path() -> str:
    """Jars with a ZooKeeper server. Raises ToolsError naming how to get them."""
    # Only its place is asked for: importing it would load all of Spark.
    spec = importlib.util.find_spec("pyspark")
    if spec is not None and spec.origin is not None:
        jars = Path(spec.origin).parent / "jars"
        if list(jars.glob("zookeeper-[0-9]*.jar")):
            return f"{jars}/*"
    if (DEBIAN_JARS / "zookeeper.jar").exists():
        return f"{DEBIAN_JARS}/*"
    raise ToolsError(
        "there is no ZooKeeper: PySpark, which carries one, is not installed, and neither is Debian's package",
        hint="run: make setup (or, on Debian: sudo apt-get install zookeeper)",
    )


def configure(members: Sequence[Member], tick_ms: int = TICK_MS) -> None:
    """Writes each member's configuration into its folder, which is made if need be. Raises OSError."""
    ensemble = [f"server.{m.number}={HOST}:{m.quorum_port}:{m.election_port}" for m in members]
    for member in members:
        data = member.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        lines = [
            f"tickTime={tick_ms}",
            f"dataDir={data}",
            f"clientPortAddress={HOST}",
            f"clientPort={member.client_port}",
            "admin.enableServer=false",
            "maxClientCnxns=0",
        ]
        if len(members) > 1:
            lines += [f"initLimit={INIT_TICKS}", f"syncLimit={SYNC_TICKS}", *ensemble]
            (data / "myid").write_text(f"{member.number}\n")
        member.config.write_text("\n".join(lines) + "\n")
        member.logging.write_text(LOGGING)


def command(member: Member) -> list[str]:
    """What runs a configured member. Raises ToolsError where Java or the jars are missing."""
    logging = f"-Dlog4j2.configurationFile={member.logging}"
    return [require_java(), *JAVA_OPTIONS, logging, "-cp", class_path(), MAIN_CLASS, str(member.config)]


def serves(member: Member) -> bool:
    """Whether it answers clients: alone, or with most of its ensemble."""
    try:
        with socket.create_connection((HOST, member.client_port), timeout=2) as peer:
            peer.sendall(b"srvr")
            answer = b"".join(iter(lambda: peer.recv(4096), b""))
    except OSError:
        return False
    return b"Mode: " in answer


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.tools.zookeeper", description="Run ZooKeeper servers.")
    parser.add_argument("folder", type=Path, help="where the servers keep everything, their logs too")
    parser.add_argument("--servers", type=int, default=1, choices=(1, 3, 5), help="how many [%(default)s]")
    parser.add_argument("--port", type=int, default=CLIENT_PORT, help="of the first; the others follow [%(default)s]")
    given = parser.parse_args(arguments)
    members = [
        Member(n, given.port + n - 1, given.port + 700 + n, given.port + 800 + n, (given.folder / str(n)).absolute())
        for n in range(1, given.servers + 1)
    ]
    try:
        _refuse_taken(members)
        commands = [command(member) for member in members]
        configure(members)
        processes = [_started(member, each) for member, each in zip(members, commands, strict=True)]
    except (ToolsError, OSError) as error:
        print(f"error: {error}\nhint: {getattr(error, 'hint', 'give another folder')}", file=sys.stderr)
        return 1
    for member in members:
        print(f"log of {member.address}: {member.log}", file=sys.stderr, flush=True)
    return _wait(members, processes)


def _refuse_taken(members: Sequence[Member]) -> None:
    """Raises ToolsError."""
    alone = len(members) == 1
    ports = [p for m in members for p in (m.client_port, *(() if alone else (m.quorum_port, m.election_port)))]
    taken = [f"{HOST}:{port}" for port in ports if not port_is_free(port)]
    if taken:
        raise ToolsError(f"another program listens on {', '.join(taken)}", hint="stop it, or give another --port")


def _started(member: Member, command: Sequence[str]) -> subprocess.Popen[bytes]:
    with member.log.open("ab") as sink:
        return subprocess.Popen(command, stdout=sink, stderr=sink)


def _wait(members: Sequence[Member], processes: Sequence[subprocess.Popen[bytes]]) -> int:
    """Until one ends, or this process is told to; then all end. 1 where one ended by itself."""

    def stop(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    try:
        return _watch(members, processes)
    except KeyboardInterrupt:
        return 0
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(STOP_TIMEOUT_S)


def _watch(members: Sequence[Member], processes: Sequence[subprocess.Popen[bytes]]) -> int:
    """Tells when all serve, and when one has ended, which it returns 1 for."""
    starting, late_at = list(members), time.monotonic() + START_TIMEOUT_S
    while True:
        for member, process in zip(members, processes, strict=True):
            if process.poll() is not None:
                lines = member.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
                told = f"error: the server {member.address} ended with {process.returncode}; its log ends:"
                print(told, *lines, sep="\n", file=sys.stderr, flush=True)
                return 1
        if starting:
            starting = [member for member in starting if not serves(member)]
            if not starting:
                print(f"zookeeper: {','.join(m.address for m in members)}", file=sys.stderr, flush=True)
            elif time.monotonic() > late_at:
                late = ", ".join(member.address for member in starting)
                print(f"{late}: no answer after {START_TIMEOUT_S:.0f} s; its log says why", file=sys.stderr, flush=True)
                late_at = float("inf")
        time.sleep(LOOK_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
