"""Three of farshore's brokers and three ZooKeeper servers as processes, with a proxy on each way between them.

Brokers dial each other, and ZooKeeper, by their own file's addresses; clients are told a proxy's address by each
broker. Where we may mount, each broker's disk is a small file system of its own, which can be filled.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from broker.base.address import Address
from chaos.toxics import connect
from tests.chaos_runs.brokers_faults import NODES, SERVERS, Fault, FaultKind, Manner, Way, all_ways
from tests.interop.servers import FarshoreBroker, Server, Toxiproxy, ZooKeeperServer, zookeeper_members
from tests.ports import free_port

SESSION_MS: Final = 3000
TICK_MS: Final = 500
DISK_MIB: Final = 192
STREAMS: Final[dict[Manner, tuple[str, ...]]] = {
    Manner.SILENT: ("upstream", "downstream"),
    Manner.ASKING: ("upstream",),
    Manner.ANSWERING: ("downstream",),
}


class StagedBroker(FarshoreBroker):
    """Its port is behind the clients' proxy, and its listener for brokers behind one for each other broker."""

    def __init__(self, folder: Path, node_id: int) -> None:
        super().__init__(folder / f"broker-{node_id}")
        self.name = f"broker-{node_id}"
        self.log = self.folder / f"{self.name}.log"
        self.node_id = node_id
        self.disk = self.folder / "disk"
        self.data_dir = self.disk / "data"
        self.inter_broker_port = free_port()
        self.file = self.folder / "farshore.toml"

    def command(self) -> list[str]:
        run = ["broker", "run", "--site", "east", "--node-id", str(self.node_id)]
        return [*super().command()[:3], "--config", str(self.file), *run]


class BrokersStage:
    """Use as a context; all serve inside of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.brokers = {f"broker-{node}": StagedBroker(folder, node) for node in NODES}
        members = zookeeper_members(folder / "zookeeper", len(SERVERS))
        self.zookeepers = {
            f"zookeeper-{number}": ZooKeeperServer(folder / "zookeeper", number, members, TICK_MS) for number in SERVERS
        }
        self.ended_alone: list[str] = []
        """What became of brokers that nobody killed."""
        self._toxiproxy = Toxiproxy(folder / "toxiproxy")
        self._proxies: dict[Way, Any] = {}
        self._chroot = f"/chaos-{uuid.uuid4().hex[:8]}"
        self._mounted: list[Path] = []
        self._down: set[str] = set()
        self._stack = ExitStack()

    @property
    def bootstrap(self) -> str:
        return ",".join(self._proxies["clients", name].listen for name in self.brokers)

    @property
    def can_fill_disks(self) -> bool:
        """Only who may mount has disks that can be filled without harm to others."""
        return os.geteuid() == 0

    def __enter__(self) -> Self:
        try:
            self._stack.enter_context(self._toxiproxy)
            self._make_proxies()
            servers: list[Server] = [*self.zookeepers.values(), *self.brokers.values()]
            for server in servers:
                self._stack.callback(server.stop)
            for zookeeper in self.zookeepers.values():
                zookeeper.launch()
            for zookeeper in self.zookeepers.values():
                zookeeper.wait_ready()
            for broker in self.brokers.values():
                self._prepare(broker)
                broker.launch()
            for broker in self.brokers.values():
                broker.wait_ready()
        except BaseException:  # what has begun ends, and the error goes on
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for broker in self.brokers.values():
            _signal(broker, signal.SIGCONT)
        self._close()

    def _close(self) -> None:
        self._stack.close()
        for disk in self._mounted:
            subprocess.run(["umount", str(disk)], check=True)
        self._mounted.clear()

    def _make_proxies(self) -> None:
        server = connect(Address("127.0.0.1", self._toxiproxy.port), timeout_s=10)
        for way in all_ways():
            dialling, dialled = way
            if dialled in self.zookeepers:
                upstream = self.zookeepers[dialled].address
            else:
                broker = self.brokers[dialled]
                port = broker.port if dialling == "clients" else broker.inter_broker_port
                upstream = f"127.0.0.1:{port}"
            self._proxies[way] = server.create(upstream=upstream, name=f"{dialling}-{dialled}")

    def _prepare(self, broker: StagedBroker) -> None:
        broker.disk.mkdir(parents=True)
        if self.can_fill_disks:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "none", str(broker.disk)], check=True)
            self._mounted.append(broker.disk)
        others = {
            f"127.0.0.1:{other.inter_broker_port}": self._proxies[broker.name, name].listen
            for name, other in self.brokers.items()
            if other is not broker
        }
        mapped = ", ".join(f'"{registered}" = "{dialled}"' for registered, dialled in others.items())
        zookeeper = ",".join(self._proxies[broker.name, name].listen for name in self.zookeepers)
        broker.file.write_text(
            f'[sites.east]\nbootstrap_servers = "{self.bootstrap}"\naddress_map = {{ {mapped} }}\n'
            f'[sites.east.cluster]\nzookeeper = "{zookeeper}{self._chroot}"\n'
            f"zookeeper_session_timeout_ms = {SESSION_MS}\nreplica_lag_time_max_ms = 3000\n"
            "leader_imbalance_check_interval_seconds = 5\n"
            f'[[sites.east.brokers]]\nnode_id = {broker.node_id}\nlisten = "127.0.0.1:{broker.port}"\n'
            f'inter_broker_listen = "127.0.0.1:{broker.inter_broker_port}"\n'
            f'advertised = "{self._proxies["clients", broker.name].listen}"\ndata_dir = "{broker.data_dir}"\n'
        )

    # -- faults

    def begin(self, fault: Fault) -> None:
        match fault.kind:
            case FaultKind.CUT:
                for way in fault.ways:
                    self._cut(way, fault.manner)
            case FaultKind.PAUSE:
                for name in fault.names:
                    _signal(self.brokers[name], signal.SIGSTOP)
            case FaultKind.DISK_FULL:
                for name in fault.names:
                    self._fill(self.brokers[name])
            case _:
                for name in fault.names:
                    self._server(name).kill9()
                    self._down.add(name)

    def end(self, fault: Fault) -> None:
        match fault.kind:
            case FaultKind.CUT:
                for way in fault.ways:
                    self._mend(way, fault.manner)
            case FaultKind.PAUSE:
                for name in fault.names:
                    _signal(self.brokers[name], signal.SIGCONT)
            case FaultKind.DISK_FULL:
                for name in fault.names:
                    (self.brokers[name].disk / "filler").unlink()
            case _:
                self._launch(fault.names)

    def revive(self) -> None:
        """Brokers that ended by themselves are started again; only one without ZooKeeper at its start may have."""
        for name, broker in self.brokers.items():
            if name not in self._down and broker.process is not None and broker.process.poll() is not None:
                tail = broker.log_tail()
                said = tail.splitlines()[-2:]  # the error and its hint
                if not said or not said[0].startswith("error: no session with ZooKeeper"):
                    self.ended_alone.append(f"{name} ended with {broker.process.returncode}; its log ends:\n{tail}")
                broker.launch()

    def all_serve(self) -> bool:
        return all(broker.ready() for broker in self.brokers.values())

    def wait_ready(self) -> None:
        """Until all serve. Raises ServerFailed."""
        for broker in self.brokers.values():
            broker.wait_ready()

    def copy_partitions(self, topics: Iterable[str], to: Path) -> None:
        """The folders of these topics' partitions, as each broker has them, and what its coordinators wrote."""
        for name, broker in self.brokers.items():
            for topic in (*topics, "__consumer_offsets", "__transaction_state"):
                for folder in broker.data_dir.glob(f"{topic}-*"):
                    shutil.copytree(folder, to / name / folder.name)

    def _server(self, name: str) -> Server:
        return self.brokers[name] if name in self.brokers else self.zookeepers[name]

    def _launch(self, names: Iterable[str]) -> None:
        for name in names:
            self._down.discard(name)
            self._server(name).launch()

    def _cut(self, way: Way, manner: Manner) -> None:
        proxy = self._proxies[way]
        if manner is Manner.REFUSED:
            proxy.disable()
            return
        for stream in STREAMS[manner]:
            proxy.add_toxic(name=f"cut-{stream}", type="timeout", stream=stream, attributes={"timeout": 0})

    def _mend(self, way: Way, manner: Manner) -> None:
        proxy = self._proxies[way]
        if manner is Manner.REFUSED:
            proxy.enable()
            return
        for stream in STREAMS[manner]:
            proxy.destroy_toxic(f"cut-{stream}")

    def _fill(self, broker: StagedBroker) -> None:
        """All but the last few kilobytes, so that a write is cut in its middle."""
        with (broker.disk / "filler").open("wb") as filler:
            while True:
                room = os.statvfs(broker.disk)
                filled = os.fstat(filler.fileno()).st_size
                try:
                    more = max(room.f_bavail - 2, 1) * room.f_frsize
                    os.posix_fallocate(filler.fileno(), filled, more)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    continue  # the broker has written meanwhile
                return


def _signal(broker: StagedBroker, number: signal.Signals) -> None:
    if broker.process is not None and broker.process.poll() is None:
        broker.process.send_signal(number)
