"""A fleet of three workers that share a link through etcd, under kills, sleep, cuts and an etcd that goes away, while
three kinds of producers write; then every record is compared.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from broker.base.address import Address
from broker.base.children import die_with_parent
from broker.client.cluster import Cluster
from broker.client.log import read_records
from broker.client.offsets import log_end_offsets
from broker.client.site import Site
from chaos.toxics import connect, proxied
from mirror.link import Link
from tests.chaos_runs.clusters import ClusterServer
from tests.chaos_runs.content_runs import PARTITIONS, ComparedRun, ContentResult
from tests.chaos_runs.mirror_process import Operator
from tests.chaos_runs.warm_commands import Said
from tests.interop.servers import ROOT
from tests.mirror.fleet.etcd_server import EtcdServer
from tests.mirror.harness import eventually, make_topic

WORKERS = 3
LEASE_S = 2
DEAD_AFTER_S = 0.3
"""What a killed worker had sent has landed by then."""
TAKEOVER_TIMEOUT_S = 60.0
POLL_S = 0.02


@dataclass
class FleetResult(ContentResult):
    """Also how long a link stood still whose worker was killed."""

    takeovers_s: list[float] = field(default_factory=list)

    def line(self) -> str:
        waits = " ".join(f"{wait:.2f}" for wait in self.takeovers_s)
        return f"{super().line()}\n     from kill -9 to the next record: {waits or 'none'} s"


@dataclass
class FleetOperator(Operator):
    """Workers of one file, but for the address of etcd: each has a proxy of its own on the way there."""

    etcd: EtcdServer | None = None
    proxies: Mapping[str, Any] = field(default_factory=dict)
    workers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    started: int = 0

    @property
    def prefix(self) -> str:
        return f"/{self.link.name}/"

    def start_mirror(self) -> subprocess.Popen[bytes]:
        """Another worker; its proxy is the next in turn."""
        number = self.started
        self.started += 1
        name, proxy = f"worker-{number}", self.proxies[str(number % WORKERS)]
        config = self.folder / f"{name}.toml"
        fleet = f'[fleet]\netcd = ["{proxy.listen}"]\nprefix = "{self.prefix}"\nlease_seconds = {LEASE_S}\n'
        config.write_text(self.config.read_text() + fleet)
        command = [sys.executable, "-m", "deploy.cli", "--config", str(config), "mirror", "run", "--worker", name]
        with self.log.open("ab") as sink:
            child = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, preexec_fn=die_with_parent
            )
        self.children.append(child)
        self.workers[name] = child
        return child

    def proxy_of(self, name: str) -> Any:
        return self.proxies[str(int(name.removeprefix("worker-")) % WORKERS)]

    def kill(self, name: str) -> None:
        child = self.workers.pop(name)
        self.children.remove(child)
        child.kill()
        child.wait()

    def holder(self) -> str | None:
        """Who runs the link, as etcd has it; None: nobody, or a worker that was killed."""
        assert self.etcd is not None
        said = self.etcd.ctl("get", "--print-value-only", f"{self.prefix}held/{self.link.name}")
        name = json.loads(said)["worker"] if said.strip() else None
        return name if name in self.workers else None

    def fleet(self, command: str) -> Said:
        """`farshore fleet`, with the file of a worker."""
        config = self.folder / f"{next(iter(self.workers))}.toml"
        return self.commands.run(["--config", str(config), "fleet", *command.split()])


@dataclass
class FleetRun(ComparedRun[ClusterServer]):
    """Faults of a fleet of three, one after the other."""

    etcd: EtcdServer | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.result: FleetResult = FleetResult(self.seed, self.pair)
        self._proxies: dict[str, Any] = {}

    async def make_topic(self, east: Cluster) -> None:
        await make_topic(east, self.topic, PARTITIONS)

    def operator_of(self, link: Link) -> Operator:
        return FleetOperator(link, self.folder, self.commands, etcd=self.etcd, proxies=self._proxies)

    async def _run(self) -> None:
        server = connect(Address("127.0.0.1", self.toxiproxy.port), 10.0)
        with ExitStack() as stack:
            for number in range(WORKERS):
                proxies = stack.enter_context(self._proxy(server, number))
                self._proxies[str(number)] = next(iter(proxies.values()))
            await super()._run()

    def _proxy(self, server: Any, number: int) -> Any:
        assert self.etcd is not None
        return proxied(server, f"f{self.seed}{number}", (str(self.etcd.address),))

    async def disturb(self, operator: Operator, proxies: Mapping[str, Any]) -> None:
        """Each fault is taken off again; a worker that was killed is replaced."""
        assert isinstance(operator, FleetOperator)
        for _ in range(WORKERS - 1):
            operator.start_mirror()
        async with Cluster(Site("west", self.target.bootstrap)) as west:
            await eventually(lambda: self._flows(west), "the first records")
        ends_s = time.monotonic() + self.length_s
        kinds: dict[str, Callable[[FleetOperator, str], Awaitable[None]]] = {
            "holder-kill": self._kill_holder,
            "holder-sleep": self._sleep,
            "holder-cut": self._cut,
            "etcd-kill": self._kill_etcd,
            "drain": self._drain,
        }
        weights = {"holder-kill": 3, "holder-sleep": 2}
        while time.monotonic() < ends_s:
            await asyncio.sleep(self.chance.uniform(0.5, 3.0))
            holder = await self._until_held(operator)
            (name,) = self.chance.choices(list(kinds), [weights.get(kind, 1) for kind in kinds])
            self.result.faults[name] = self.result.faults.get(name, 0) + 1
            await kinds[name](operator, holder)

    async def _until_held(self, operator: FleetOperator) -> str:
        deadline_s = time.monotonic() + TAKEOVER_TIMEOUT_S
        while (holder := operator.holder()) is None:
            assert time.monotonic() < deadline_s, "nobody takes the link"
            await asyncio.sleep(0.1)
        return holder

    async def _kill_holder(self, operator: FleetOperator, holder: str) -> None:
        async with Cluster(Site("west", self.target.bootstrap)) as west:
            operator.kill(holder)
            killed_s = time.monotonic()
            await asyncio.sleep(DEAD_AFTER_S)
            at = await log_end_offsets(west, self.partitions)
            while not await self._has_more(west, at):
                assert time.monotonic() < killed_s + TAKEOVER_TIMEOUT_S, "nobody takes the link over"
                await asyncio.sleep(POLL_S)
            self.result.takeovers_s.append(time.monotonic() - killed_s)
        operator.start_mirror()

    async def _flows(self, west: Cluster) -> bool:
        if self.topic not in (await west.metadata([self.topic])).topics:
            return False
        return await self._has_more(west, dict.fromkeys(self.partitions, 0))

    async def _has_more(self, west: Cluster, since: Mapping[Any, int]) -> bool:
        """Whether a record came; a fence's marker is none."""
        for where, end in (await log_end_offsets(west, self.partitions)).items():
            async for _ in read_records(west, where, since[where], end):
                return True
        return False

    async def _sleep(self, operator: FleetOperator, holder: str) -> None:
        """Past its lease, mostly; then it wakes into whatever it was about."""
        os.kill(operator.workers[holder].pid, signal.SIGSTOP)
        await asyncio.sleep(self.chance.uniform(0.5, 3 * LEASE_S))
        os.kill(operator.workers[holder].pid, signal.SIGCONT)

    async def _cut(self, operator: FleetOperator, holder: str) -> None:
        proxy = operator.proxy_of(holder)
        proxy.disable()
        try:
            await asyncio.sleep(self.chance.uniform(0.5, 4 * LEASE_S))
        finally:
            proxy.enable()

    async def _kill_etcd(self, operator: FleetOperator, holder: str) -> None:
        assert self.etcd is not None
        self.etcd.stop()
        await asyncio.sleep(self.chance.uniform(0.0, 3 * LEASE_S))
        self.etcd.start()

    async def _drain(self, operator: FleetOperator, holder: str) -> None:
        said = await asyncio.to_thread(operator.fleet, f"drain {holder} --yes --timeout 30s")
        if said.code:
            self.result.problems.append(f"drain: {said.err.strip()[-300:]}")
        said = await asyncio.to_thread(operator.fleet, f"undrain {holder} --yes")
        if said.code:
            self.result.problems.append(f"undrain: {said.err.strip()[-300:]}")
