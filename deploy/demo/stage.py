"""The demo's stage: a scratch folder, two sites, one mirror, and the clock and voice of the story."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from broker.base.time_limits import timeout
from broker.client.site import Site
from deploy.config import load
from deploy.demo.results import DemoResult, StepTime
from deploy.errors import DemoFailed
from deploy.local.brokers import (
    LocalBroker,
    local_brokers,
    site_tables,
    start_brokers,
    start_zookeeper,
    whole,
    zookeeper_member,
)
from deploy.local.locks import Locks
from deploy.local.locksmith import make_locks
from deploy.local.processes import Processes, free_ports, services
from deploy.tools.etcd import EtcdServer, etcd_program
from deploy.tools.etcd import command as etcd_command
from deploy.tools.etcd import serves as etcd_serves
from deploy.tools.zookeeper import Member
from mirror.api import Link

LINK = "east-west"
AIRLINES = ("UA", "B6", "EV", "DL", "AA", "MQ", "US", "9E", "WN")
"""The largest nine; where the mirror is a fleet, each has a topic and a link of its own."""
FLIGHTS = "flights"
LIVE = "departures"
MIRROR = "mirror"
GROUP = "analysts"
PARTITIONS = 4
CONFIG = """
state_dir = "state"

{sites}
[[links]]
name = "{link}"
source = "east"
target = "west"
topics = ["{flights}", "{live}"]
topic_names = "same"
groups = [".*"]

[audit]
jars = {jars}
"""
FLEET = """
[fleet]
etcd = ["{etcd}"]
"""
AIRLINE_LINK = """
[[links]]
name = "{name}"
source = "east"
target = "west"
topics = ["{topic}"]
topic_names = "same"
"""
MIN_INSYNC_REPLICAS = 2
"""Where a site has several brokers: one of them may go, and what was acknowledged is still on one at least."""
WHOLE_PATIENCE_S = 120.0

TELL_TIME_S = 15.0

Brokers: TypeAlias = tuple[LocalBroker, ...]


@asynccontextmanager
async def telling_time(console: Console, every_s: float = TELL_TIME_S) -> AsyncIterator[None]:
    """Of a body that says nothing until it has ended, that it goes on: an audit takes minutes on a busy machine."""
    began_s = time.monotonic()

    async def tell() -> None:
        while True:
            await asyncio.sleep(every_s)
            console.print(f"  [dim]... goes on, {time.monotonic() - began_s:.0f} s by now[/]")

    telling = asyncio.create_task(tell())
    try:
        yield
    finally:
        telling.cancel()


@dataclass(slots=True)
class Stage:
    """What every scene gets: where things run, and where its findings go."""

    config: Path
    processes: Processes
    link: Link
    sites: dict[str, Brokers]
    zookeeper: Member | None
    etcd: EtcdServer | None
    mirrors: tuple[str, ...]
    """The services that mirror: one, or the workers of a fleet."""
    console: Console
    result: DemoResult

    @property
    def east(self) -> Site:
        return self.link.source

    @property
    def west(self) -> Site:
        return self.link.target

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Announce a step, and say how long it took."""
        self.console.print(f"[bold cyan]▸[/] {name}")
        started_s = time.monotonic()
        yield
        seconds = time.monotonic() - started_s
        self.result.steps.append(StepTime(name, seconds))
        self.console.print(f"  [green]✓[/] {seconds:.1f} s")

    @contextmanager
    def bar(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """A progress bar; yields the function that sets how much is done."""
        shown = (TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*shown, console=self.console, disable=not self.console.is_terminal) as progress:
            task = progress.add_task(what, total=total)
            yield lambda completed: progress.update(task, completed=completed)

    @asynccontextmanager
    async def within(self, timeout_s: float, what: str) -> AsyncIterator[None]:
        """Give the body so long until `what`. Raises DemoFailed with the end of the mirror's log."""
        try:
            async with timeout(timeout_s):
                yield
        except TimeoutError as error:
            told = "; ".join(f"{name}: {self.processes.log_tail(name)}" for name in self.mirrors)
            raise DemoFailed(f"waited {timeout_s:.0f} s in vain until {what}; {told}") from error

    async def command(self, *arguments: str, expect: int = 0) -> Any:
        """Run a `farshore` command with `-o json` and return its document."""
        self.console.print(f"  [dim]$ farshore {' '.join(arguments)}[/]")
        async with telling_time(self.console):
            return json.loads((await self.processes.run(*arguments, "-o", "json", expect=expect)).stdout)

    async def show(self, *arguments: str) -> None:
        """Run a `farshore` command and show what it prints."""
        self.console.print(f"  [dim]$ farshore {' '.join(arguments)}[/]")
        self.console.print((await self.processes.run(*arguments)).stdout.rstrip(), highlight=False, markup=False)

    @property
    def brokers(self) -> int:
        """At each site."""
        return len(self.sites["east"])

    async def start_zookeeper(self) -> None:
        if self.zookeeper is not None:
            await start_zookeeper(self.processes, self.zookeeper)

    async def start_site(self, name: str) -> None:
        """Start a site's brokers; also again after they were killed."""
        await start_brokers(self.processes, self.sites[name])
        await self.until_whole(name)

    async def kill9_site(self, name: str) -> None:
        for broker in self.sites[name]:
            await self.processes.kill9(broker.name)

    async def until_whole(self, name: str) -> None:
        """Returns when every broker of a site answers and every replica is in sync. Raises DemoFailed."""
        lacking = await whole(self._site(name), self.brokers, WHOLE_PATIENCE_S)
        if lacking:
            raise DemoFailed(f"{name} is not whole after {WHOLE_PATIENCE_S:.0f} s: {'; '.join(lacking)}")

    def _site(self, name: str) -> Site:
        return self.east if name == self.east.name else self.west

    async def create_topic(self, name: str) -> None:
        """At east; with a replica on each broker."""
        replicas = ["--replication-factor", str(self.brokers)]
        if self.brokers > MIN_INSYNC_REPLICAS:
            replicas += ["--config", f"min.insync.replicas={MIN_INSYNC_REPLICAS}"]
        await self.processes.run(
            *("topic", "create", "--site", "east", "--topic", name, "--partitions", str(PARTITIONS)),
            *("--config", "retention.ms=-1", *replicas),
        )

    @property
    def workers(self) -> int:
        return len(self.mirrors)

    async def start_mirror(self) -> None:
        """One process, or a fleet and its etcd."""
        if self.etcd is None:
            await self.processes.start(MIRROR, ["mirror", "run", "--link", LINK], lambda: True)
            return
        etcd = self.etcd
        await self.processes.start_program("etcd", etcd_command(etcd), lambda: etcd_serves(etcd))
        for name in self.mirrors:
            await self.start_worker(name)

    async def start_worker(self, name: str) -> None:
        await self.processes.start(name, ["mirror", "run", "--worker", name], lambda: True)

    def stall_mirror(self) -> None:
        """As a cut line would."""
        for name in self.mirrors:
            self.processes.stall(name)

    def let_mirror_go_on(self) -> None:
        for name in self.mirrors:
            self.processes.go_on(name)


def airline_topic(code: str) -> str:
    return f"flights-{code}"


def spark_jars() -> list[str]:
    """The connector's jars where `make demo` has put them; empty elsewhere, and Spark then fetches them itself."""
    return [str(jar.resolve()) for jar in sorted(Path(".cache/spark", version("pyspark")).glob("*.jar"))]


def sites_of(brokers: int, ports: Sequence[int]) -> dict[str, Brokers]:
    """The two sites, with so many brokers each."""
    east, west = ports[:brokers], ports[brokers:]
    if brokers == 1:
        return {"east": (LocalBroker("east", 1, east[0], "east"),), "west": (LocalBroker("west", 1, west[0], "west"),)}
    return {"east": local_brokers("east", east, "east"), "west": local_brokers("west", west, "west")}


def alone_tables(broker: LocalBroker, locks: Locks | None) -> str:
    """A site of one broker, which keeps its metadata by itself."""
    site, own = f"[sites.{broker.site}]", [f"[sites.{broker.site}.broker]", f'data_dir = "{broker.name}"']
    lines = [site, f'bootstrap_servers = "{broker.address}"', *own]
    if locks is not None:
        lines += [*locks.listeners(f"SASL_SSL://{broker.address}"), *locks.logins(), *locks.security_table(broker.site)]
    return "\n".join(lines) + "\n"


def configuration(
    sites: Mapping[str, Brokers],
    zookeeper: Member | None,
    etcd: EtcdServer | None,
    locks: Mapping[str, Locks] | None = None,
) -> str:
    """The demo's farshore.toml; with a ZooKeeper the sites keep their metadata there, each by itself; with an etcd the
    mirror is a fleet, which also has a link for each airline; with locks nobody gets in without.
    """
    tables = [
        site_tables(site, brokers, f"{zookeeper.address}/{site}", (locks or {}).get(site))
        if zookeeper is not None
        else alone_tables(brokers[0], (locks or {}).get(site))
        for site, brokers in sites.items()
    ]
    text = CONFIG.format(sites="\n".join(tables), link=LINK, flights=FLIGHTS, live=LIVE, jars=json.dumps(spark_jars()))
    if etcd is None:
        return text
    airlines = [AIRLINE_LINK.format(name=code.lower(), topic=airline_topic(code)) for code in AIRLINES]
    return "\n".join([text, FLEET.format(etcd=etcd.address), *airlines])


@asynccontextmanager
async def stage(
    console: Console, result: DemoResult, brokers: int = 1, workers: int = 1, is_locked: bool = False
) -> AsyncIterator[Stage]:
    """Set everything up, with so many brokers at each site and so many that mirror; take everything down again,
    whatever happens. Raises ToolsError where an etcd is needed and not there.
    """
    if workers > 1:
        etcd_program()
    with tempfile.TemporaryDirectory(prefix="farshore-demo-") as folder:
        *ports, zookeeper_port, etcd_port, peer_port = free_ports(2 * brokers + 3)
        etcd = EtcdServer(etcd_port, peer_port, Path(folder) / "etcd") if workers > 1 else None
        mirrors = tuple(f"worker-{number}" for number in range(1, workers + 1)) if workers > 1 else (MIRROR,)
        zookeeper = zookeeper_member(Path(folder), zookeeper_port) if brokers > 1 else None
        sites = sites_of(brokers, ports)
        locks = {site: make_locks(Path(folder) / "locks" / site) for site in sites} if is_locked else {}
        config = Path(folder) / "farshore.toml"
        config.write_text(configuration(sites, zookeeper, etcd, locks))
        link = load(config).link(LINK)
        async with services(config, Path(folder), console.width - 2) as processes:
            yield Stage(config, processes, link, sites, zookeeper, etcd, mirrors, console, result)
