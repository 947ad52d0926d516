"""ZooKeeper servers on this machine, out of the jars that PySpark carries, or of Debian's package where that is there.

    python -m deploy.tools.zookeeper var/zookeeper                  one server on port 2181, until SIGINT or SIGTERM
    python -m deploy.tools.zookeeper var/zookeeper --servers 3      an ensemble on 2181, 2182 and 2183

A server's data and configuration are kept in its folder and found again.
"""

from __future__ import annotations

import argparse
import importlib.util
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

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


def command(member: Member) -> list[str]:
    """What runs a configured member. Raises ToolsError where Java or the jars are missing."""
    return [require_java(), *JAVA_OPTIONS, "-cp", class_path(), MAIN_CLASS, str(member.config)]


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
    parser.add_argument("folder", type=Path, help="where the servers keep everything")
    parser.add_argument("--servers", type=int, default=1, choices=(1, 3, 5))
    parser.add_argument("--port", type=int, default=CLIENT_PORT, help="of the first server; the others follow")
    given = parser.parse_args(arguments)
    members = [
        Member(n, given.port + n - 1, given.port + 700 + n, given.port + 800 + n, (given.folder / str(n)).absolute())
        for n in range(1, given.servers + 1)
    ]
    try:
        configure(members)
        commands = [command(member) for member in members]
    except (ToolsError, OSError) as error:
        print(f"error: {error}\nhint: {getattr(error, 'hint', 'give another folder')}", file=sys.stderr)
        return 1
    processes = [subprocess.Popen(each) for each in commands]
    print(f"zookeeper: {','.join(member.address for member in members)}", file=sys.stderr, flush=True)
    return _wait(processes)


def _wait(processes: Sequence[subprocess.Popen[bytes]]) -> int:
    """Until one ends, or this process is told to; then all end."""

    def stop(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    try:
        processes[0].wait()
    except KeyboardInterrupt:
        pass
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(STOP_TIMEOUT_S)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
