"""Three of farshore's brokers as processes: one cluster on a real ZooKeeper, by a configuration file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tests.interop.servers import FarshoreBroker
from tests.ports import free_port

NODES: Final = (1, 2, 3)
SESSION_MS: Final = 4000
LONG_SESSION_MS: Final = 10_000
"""The longest that the tests' ZooKeeper grants: where no broker is killed, none is taken for dead that a busy machine
holds up.
"""

KEEPS_ALL: Final = {"retention.ms": "-1"}
"""Of a topic whose records' timestamps are long past: retention looks at them at any time, and would take them."""


class ClusterBroker(FarshoreBroker):
    """One of the brokers that a configuration file names."""

    def __init__(self, folder: Path, file: Path, node_id: int, port: int) -> None:
        super().__init__(folder)
        self.name = f"broker-{node_id}"
        self.log = folder / f"{self.name}.log"
        self.port, self.file, self.node_id = port, file, node_id

    def command(self) -> list[str]:
        run = ["broker", "run", "--site", "east", "--node-id", str(self.node_id)]
        return [*super().command()[:3], "--config", str(self.file), *run]


def replicas_at(bootstrap: str) -> int:
    """How many a topic of a test has: a cluster's address names all of its brokers."""
    return len(bootstrap.split(","))


@contextmanager
def cluster_of_brokers(
    folder: Path, zookeeper: str, session_ms: int = SESSION_MS, settings: str = ""
) -> Iterator[dict[int, ClusterBroker]]:
    """Brokers by node id, when all serve; `zookeeper` has a chroot of its own. `settings`: more lines of its
    table.
    """
    ports = {node: free_port() for node in NODES}
    tables = "".join(
        f'[[sites.east.brokers]]\nnode_id = {node}\nlisten = "127.0.0.1:{port}"\ndata_dir = "data-{node}"\n'
        for node, port in ports.items()
    )
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "farshore.toml"
    file.write_text(
        f'[sites.east]\nbootstrap_servers = "{",".join(f"127.0.0.1:{port}" for port in ports.values())}"\n'
        f'[sites.east.cluster]\nzookeeper = "{zookeeper}"\nzookeeper_session_timeout_ms = {session_ms}\n'
        f"{settings}{tables}"
    )
    brokers = {node: ClusterBroker(folder / f"broker-{node}", file, node, port) for node, port in ports.items()}
    with ExitStack() as stack:
        for broker in brokers.values():
            stack.callback(broker.stop)
            broker.launch()
        for broker in brokers.values():
            broker.wait_ready()
        yield brokers
