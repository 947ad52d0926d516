"""`farshore cluster start`: a cluster in a folder of this machine, with a ZooKeeper of its own, until it is stopped."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.base.address import parse_address
from broker.base.waiting import told_if_long
from broker.client.site import Site
from broker.data_dir import DataDirectory
from deploy.config import load
from deploy.errors import AlreadyRuns, ConfigError, PortTaken, ServiceDied
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
from deploy.tools.zookeeper import CLIENT_PORT, HOST, command

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
    """A line of what `cluster start` prints. `pid` is None where the broker has ended since."""

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

    def pid(self, broker: LocalBroker) -> int | None:
        """Of a broker that `cluster start` runs; None of one that does not run, or was started by hand."""
        try:
            pid = int(self.pid_file(broker).read_text(encoding="utf-8"))
            os.kill(pid, 0)
        except PermissionError:
            return pid  # somebody else's
        except (OSError, ValueError):
            return None
        return pid

    def write_file(self) -> None:
        """Makes the folder, unless it is there. Raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.file.exists():
            self.file.write_text(site_tables(SITE, self.brokers, self.zookeeper), encoding="utf-8")

    def start_again(self, broker: LocalBroker) -> str:
        """The command that starts a broker of it, from any folder."""
        return shlex.join(("farshore", "--config", str(self.file), *broker.run))


def cluster_in(folder: Path, wanted: Wanted) -> LocalCluster:
    """The cluster that the folder has, or a new one, of which nothing is written. Raises ConfigError where the folder
    has another one than is wanted.
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
    return LocalCluster(folder, local_brokers(SITE, ports, "broker"), zookeeper_port)


def _read(folder: Path) -> LocalCluster:
    sites = load(folder / FILE).model.sites
    site = sites.get(SITE)
    host, _, port = (
        site.cluster.zookeeper.partition(":") if site is not None and site.cluster is not None else ("",) * 3
    )
    listens = [each.listen for each in site.brokers if each.listen is not None] if site is not None else []
    if site is None or len(listens) < len(site.brokers) or len(sites) > 1 or host != HOST or not port.isdecimal():
        raise ConfigError(f"{folder / FILE} was not written by `cluster start`", "name another folder with --dir")
    brokers = [
        LocalBroker(SITE, each.node_id, parse_address(listen).port, each.data_dir.name)
        for each, listen in zip(site.brokers, listens, strict=True)
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


def refuse_taken(cluster: LocalCluster) -> None:
    """Raises AlreadyRuns where brokers of this cluster run, PortTaken where another program listens on their ports."""
    running = [each for each in cluster.brokers if DataDirectory.is_in_use(cluster.folder / each.name)]
    by_hand = [each for each in running if cluster.pid(each) is None]
    if by_hand:
        named = " and ".join(f"broker {each.node_id} ({each.address})" for each in by_hand)
        raise AlreadyRuns(
            f"{named} of this cluster runs already, started by hand: its folder {cluster.folder / by_hand[0].name} is "
            "in use",
            "stop it where it was started (Ctrl-C, or kill it), then start the cluster again: it has that broker too",
        )
    if running:
        named = ", ".join(f"broker {each.node_id} is process {cluster.pid(each)}" for each in running)
        raise AlreadyRuns(
            f"the cluster in {cluster.folder} runs already: {named}",
            f"use it: farshore --config {cluster.file} cluster describe --site {SITE}; Ctrl-C stops it where it runs",
        )
    listeners = {cluster.zookeeper_port: "ZooKeeper"} | {
        each.port: f"broker {each.node_id}" for each in cluster.brokers
    }
    taken = [f"{HOST}:{port} ({whose})" for port, whose in listeners.items() if not port_is_free(port)]
    if taken:
        raise PortTaken(
            f"another program listens on {', '.join(taken)}",
            "stop it, or start a cluster in another --dir with --base-port and --zookeeper-port",
        )


async def run_cluster(
    cluster: LocalCluster, say: Callable[[str], None], ready: Callable[[Sequence[RunningBroker], Sequence[str]], None]
) -> None:
    """Starts everything and waits for ever; everything ends with it, the brokers in order. `say` is told of brokers
    that end by themselves, in a line each; `ready` is called once, with what is not as it should be. Raises
    AlreadyRuns, PortTaken, ToolsError, with nothing written; ServiceFailed, OSError.
    """
    refuse_taken(cluster)
    member = zookeeper_member(cluster.folder, cluster.zookeeper_port)
    command(member)  # where Java is missing, nothing is begun
    cluster.write_file()
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
        with told_if_long(
            say, f"for ZooKeeper at {cluster.zookeeper} to start; its log: {cluster.folder}/{ZOOKEEPER}.log"
        ):
            await start_zookeeper(processes, member)
        try:
            ids = ", ".join(str(broker.node_id) for broker in cluster.brokers)
            with told_if_long(say, f"for brokers {ids} to serve; what each waits for: {cluster.folder}/broker-N.log"):
                await start_brokers(processes, cluster.brokers)
            for broker in cluster.brokers:
                _write_pid(cluster, broker, processes)
            with told_if_long(say, "until all brokers agree and every replica is in sync"):
                lacking = await whole(Site(SITE, cluster.bootstrap_servers), len(cluster.brokers), WHOLE_PATIENCE_S)
            ready([_running(broker, processes) for broker in cluster.brokers], lacking)
            exit_code = await zookeeper_died
            raise ServiceDied(
                f"ZooKeeper {how_ended(exit_code)}, so the cluster stops; {processes.log_tail(ZOOKEEPER)}",
                "the same command starts all of it again, with what was acknowledged",
            )
        finally:
            await asyncio.shield(_stop_brokers(cluster, processes, say))


def _write_pid(cluster: LocalCluster, broker: LocalBroker, processes: Processes) -> None:
    """For scripts, and for a start that finds the broker running."""
    if (pid := processes.pid(broker.name)) is not None:
        cluster.pid_file(broker).write_text(f"{pid}\n", encoding="utf-8")


def _running(broker: LocalBroker, processes: Processes) -> RunningBroker:
    return RunningBroker(broker.node_id, broker.rack, broker.address, processes.pid(broker.name))


async def _stop_brokers(cluster: LocalCluster, processes: Processes, say: Callable[[str], None]) -> None:
    await processes.stop([broker.name for broker in cluster.brokers], STOP_TIMEOUT_S)
    for broker in cluster.brokers:
        cluster.pid_file(broker).unlink(missing_ok=True)
        if port_answers(broker.port):
            say(f"broker {broker.node_id} was started elsewhere and still runs: stop it there")


def how_ended(exit_code: int) -> str:
    """`was killed (SIGKILL)`, `ended with 1`."""
    return f"was killed ({signal.Signals(-exit_code).name})" if exit_code < 0 else f"ended with {exit_code}"
