"""`farshore cluster start`: a cluster in a folder of this machine, with a ZooKeeper of its own, until it is stopped."""

from __future__ import annotations

import asyncio
import shlex
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.base.address import parse_address
from broker.client.site import Site
from deploy.config import load
from deploy.errors import ConfigError, PortTaken, ServiceDied
from deploy.local.brokers import (
    STOP_TIMEOUT_S,
    ZOOKEEPER,
    LocalBroker,
    local_brokers,
    site_tables,
    start_brokers,
    start_zookeeper,
    whole,
    zookeeper_member,
)
from deploy.local.processes import Processes, port_answers, port_is_free, services
from deploy.tools.zookeeper import CLIENT_PORT, HOST

SITE: Final = "local"
FILE: Final = "farshore.toml"
BROKERS: Final = 3
BASE_PORT: Final = 9092
WHOLE_PATIENCE_S: Final = 60.0
COLUMNS: Final = 120


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a caller asks for; None: what the folder has, or the default."""

    brokers: int | None = None
    base_port: int | None = None
    zookeeper_port: int | None = None


@dataclass(frozen=True, slots=True)
class RunningBroker:
    """A line of what `cluster start` prints."""

    node_id: int
    rack: str
    address: str
    pid: int | None


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """A cluster by its folder: what stands in the folder's farshore.toml."""

    folder: Path
    brokers: tuple[LocalBroker, ...]
    zookeeper_port: int

    @property
    def file(self) -> Path:
        return self.folder / FILE

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    @property
    def zookeeper(self) -> str:
        return f"{HOST}:{self.zookeeper_port}"

    def pid_file(self, broker: LocalBroker) -> Path:
        return self.folder / f"{broker.name}.pid"

    def start_again(self, broker: LocalBroker) -> str:
        """The command that starts a broker of it, from any folder."""
        return shlex.join(("farshore", "--config", str(self.file), *broker.run))


def cluster_in(folder: Path, wanted: Wanted) -> LocalCluster:
    """The cluster that the folder has, or a new one, whose file is written. Raises ConfigError where the folder has
    another one than is wanted, OSError.
    """
    folder = folder.resolve()  # what is printed is typed elsewhere
    if (folder / FILE).exists():
        cluster = _read(folder)
        _check_wanted(cluster, wanted)
        return cluster
    first = BASE_PORT if wanted.base_port is None else wanted.base_port
    ports = range(first, first + (wanted.brokers or BROKERS))
    zookeeper_port = CLIENT_PORT if wanted.zookeeper_port is None else wanted.zookeeper_port
    if zookeeper_port in ports:
        raise ConfigError(
            f"port {zookeeper_port} would be a broker's and ZooKeeper's", "give another --base-port or --zookeeper-port"
        )
    cluster = LocalCluster(folder, local_brokers(SITE, ports, "broker"), zookeeper_port)
    folder.mkdir(parents=True, exist_ok=True)
    cluster.file.write_text(site_tables(SITE, cluster.brokers, cluster.zookeeper), encoding="utf-8")
    return cluster


def _read(folder: Path) -> LocalCluster:
    sites = load(folder / FILE).model.sites
    site = sites.get(SITE)
    host, _, port = (
        site.cluster.zookeeper.partition(":") if site is not None and site.cluster is not None else ("",) * 3
    )
    if site is None or len(sites) > 1 or host != HOST or not port.isdecimal():
        raise ConfigError(f"{folder / FILE} was not written by `cluster start`", "name another folder with --dir")
    brokers = [
        LocalBroker(SITE, each.node_id, parse_address(each.listen).port, each.data_dir.name) for each in site.brokers
    ]
    return LocalCluster(folder, tuple(brokers), int(port))


def _check_wanted(cluster: LocalCluster, wanted: Wanted) -> None:
    for what, asked, has in (
        ("brokers", wanted.brokers, len(cluster.brokers)),
        ("base port", wanted.base_port, cluster.brokers[0].port),
        ("ZooKeeper port", wanted.zookeeper_port, cluster.zookeeper_port),
    ):
        if asked not in (None, has):
            hint = "leave the option out, or name another folder with --dir"
            raise ConfigError(f"the cluster in {cluster.folder} has {what} {has}, not {asked}", hint)


def refuse_taken_ports(cluster: LocalCluster) -> None:
    """Raises PortTaken, naming whose each would be."""
    listeners = {cluster.zookeeper_port: "ZooKeeper"} | {
        each.port: f"broker {each.node_id}" for each in cluster.brokers
    }
    taken = [f"{HOST}:{port} ({whose})" for port, whose in listeners.items() if not port_is_free(port)]
    if taken:
        raise PortTaken(
            f"another program listens on {', '.join(taken)}: is a cluster running already?",
            "stop it, or start one in another --dir with --base-port and --zookeeper-port",
        )


async def run_cluster(
    cluster: LocalCluster, say: Callable[[str], None], ready: Callable[[Sequence[RunningBroker], Sequence[str]], None]
) -> None:
    """Starts everything and waits for ever; everything ends with it, the brokers in order. `say` is told of brokers
    that end by themselves, in a line each; `ready` is called once, with what is not as it should be. Raises PortTaken,
    ToolsError, ServiceFailed.
    """
    refuse_taken_ports(cluster)
    by_name = {broker.name: broker for broker in cluster.brokers}
    zookeeper_died: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def on_end(name: str, exit_code: int) -> None:
        if name == ZOOKEEPER:
            zookeeper_died.set_result(exit_code)
            return
        broker = by_name[name]
        cluster.pid_file(broker).unlink(missing_ok=True)
        say(f"broker {broker.node_id} {how_ended(exit_code)}; it starts again by: {cluster.start_again(broker)}")

    async with services(cluster.file, cluster.folder, COLUMNS, on_end) as processes:
        await start_zookeeper(processes, zookeeper_member(cluster.folder, cluster.zookeeper_port))
        try:
            await start_brokers(processes, cluster.brokers)
            lacking = await whole(Site(SITE, cluster.bootstrap_servers), len(cluster.brokers), WHOLE_PATIENCE_S)
            ready([_noted(cluster, broker, processes) for broker in cluster.brokers], lacking)
            exit_code = await zookeeper_died
            raise ServiceDied(
                f"ZooKeeper {how_ended(exit_code)}, so the cluster stops; {processes.log_tail(ZOOKEEPER)}"
            )
        finally:
            await asyncio.shield(_stop_brokers(cluster, processes, say))


def _noted(cluster: LocalCluster, broker: LocalBroker, processes: Processes) -> RunningBroker:
    """Its process id is in a file, too, for scripts. None: it has ended since."""
    pid = processes.pid(broker.name)
    if pid is not None:
        cluster.pid_file(broker).write_text(f"{pid}\n", encoding="utf-8")
    return RunningBroker(broker.node_id, broker.rack, broker.address, pid)


async def _stop_brokers(cluster: LocalCluster, processes: Processes, say: Callable[[str], None]) -> None:
    await processes.stop([broker.name for broker in cluster.brokers], STOP_TIMEOUT_S)
    for broker in cluster.brokers:
        cluster.pid_file(broker).unlink(missing_ok=True)
        if port_answers(broker.port):
            say(f"broker {broker.node_id} was started elsewhere and still runs: stop it there")


def how_ended(exit_code: int) -> str:
    """`was killed (SIGKILL)`, `ended with 1`."""
    return f"was killed ({signal.Signals(-exit_code).name})" if exit_code < 0 else f"ended with {exit_code}"
