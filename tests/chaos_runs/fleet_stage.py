"""A fleet of three workers for rounds of faults: two clusters, an etcd of three, and a proxy on each way to it.

The workers run a link for each of LINKS, whose pattern takes the topics of every round.
"""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from broker.base.address import Address
from broker.client.site import Site
from chaos.toxics import connect, proxied
from mirror.link import Link
from tests.chaos_runs.clusters import PAIRS, ClusterServer, make_cluster
from tests.chaos_runs.mirror_process import UNEXPECTED
from tests.chaos_runs.warm_commands import Said, WarmCommands
from tests.forking import ForkedProcess, start_farshore
from tests.interop.servers import ROOT, Toxiproxy
from tests.mirror.fleet.etcd_server import EtcdCluster, EtcdServer

WORKERS = 3
LINKS = ("red", "green", "blue")
LEASE_S = 2
PREFIX = "/fleet/"
STOP_TIMEOUT_S = 30.0
PATIENCE_S = 180.0
POLL_S = 0.05


@dataclass(frozen=True)
class Key:
    """A key of the fleet at etcd. `lease_id` 0: it has none."""

    value: str
    created: int
    lease_id: int


@dataclass
class FleetStage:
    """What rounds work on. `proxies` are those of each slot, a worker's place, on its way to the etcd servers."""

    source: ClusterServer
    target: ClusterServer
    etcd: EtcdCluster
    commands: WarmCommands
    folder: Path
    proxies: list[list[Any]]
    workers: dict[str, ForkedProcess] = field(default_factory=dict)
    started: int = 0
    hands: ThreadPoolExecutor = field(default_factory=partial(ThreadPoolExecutor, 1))
    """What starts processes, since each ends with the thread that started it; faults are its, one at a time."""

    @property
    def log(self) -> Path:
        """What all workers said."""
        return self.folder / "workers.log"

    def links(self) -> list[Link]:
        east, west = Site("east", self.source.bootstrap), Site("west", self.target.bootstrap)
        return [Link(name, east, west, (f"{name}-.*",)) for name in LINKS]

    def start_worker(self) -> str:
        slots = {self.slot(name) for name in self.workers}
        slot = next(slot for slot in range(WORKERS) if slot not in slots)
        name = f"worker-{self.started}-{slot}"
        self.started += 1
        config = self._config(slot)
        command = ["--config", str(config), "mirror", "run", "--worker", name]
        self.workers[name] = start_farshore(command, ROOT, self.log)
        return name

    def _config(self, slot: int) -> Path:
        """The same for all of a slot, and the same but for its way to etcd for all workers."""
        config = self.folder / f"slot-{slot}.toml"
        if not config.exists():
            etcd = json.dumps([proxy.listen for proxy in self.proxies[slot]])
            lines = ['state_dir = "state"', "[fleet]", f"etcd = {etcd}", f'prefix = "{PREFIX}"']
            lines += [f"lease_seconds = {LEASE_S}"]
            for name, server in (("east", self.source), ("west", self.target)):
                lines += [f"[sites.{name}]", f'bootstrap_servers = "{server.bootstrap}"']
            for name in LINKS:
                lines += ["[[links]]", f'name = "{name}"', 'source = "east"', 'target = "west"']
                lines += [f'topics = ["{name}-.*"]', 'topic_names = "same"']
            config.write_text("\n".join(lines) + "\n")
        return config

    def slot(self, worker: str) -> int:
        return int(worker.rpartition("-")[2])

    def farshore(self, *arguments: str) -> Said:
        return self.commands.run(["--config", str(self._config(0)), *arguments])

    def kill(self, worker: str) -> None:
        child = self.workers.pop(worker)
        child.kill()
        child.wait()

    def stop(self, worker: str) -> None:
        """As an operator does; subprocess.TimeoutExpired where it does not end."""
        child = self.workers.pop(worker)
        child.terminate()
        code = child.wait(STOP_TIMEOUT_S)
        assert code in (0, 130, 143, -signal.SIGTERM), f"{worker} ended with {code}"

    def signal(self, worker: str, number: signal.Signals) -> None:
        self.workers[worker].send_signal(number)

    def keys(self, below: str) -> dict[str, Key]:
        """By their names behind it. subprocess.CalledProcessError where etcd does not answer."""
        server = next(server for server in self.etcd.servers if server.is_running)
        found = json.loads(server.ctl("get", "--prefix", f"{PREFIX}{below}", "-w", "json"))
        return {
            _text(item["key"]).removeprefix(f"{PREFIX}{below}"): Key(
                _text(item.get("value", "")), item["create_revision"], item.get("lease", 0)
            )
            for item in found.get("kvs", [])
        }

    def held(self) -> dict[str, Key]:
        """What living workers hold: who, and since which revision; the value is the worker's name."""
        found = {}
        for unit, key in self.keys("held/").items():
            worker = json.loads(key.value)["worker"]
            if worker in self.workers:
                found[unit] = Key(worker, key.created, key.lease_id)
        return found

    def units_of(self, worker: str) -> dict[str, Key]:
        return {unit: key for unit, key in self.held().items() if key.value == worker}

    def fleet_leader(self) -> str:
        """The worker whose key was made first."""
        workers = self.keys("workers/")
        return min(workers, key=lambda name: workers[name].created)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Blocks. AssertionError when it takes too long; an etcd that does not answer is asked again."""
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                if condition():
                    return
            except (subprocess.CalledProcessError, json.JSONDecodeError, ValueError):
                pass
            assert time.monotonic() < deadline_s, f"waited {PATIENCE_S:.0f} s for {what}"
            time.sleep(POLL_S)

    def until_shared(self) -> None:
        """Until each worker holds something, and nothing is held by nobody."""

        def is_shared() -> bool:
            held, planned = self.held(), self.keys("plan/")
            return held.keys() == planned.keys() != set() and {key.value for key in held.values()} == set(self.workers)

        self.until(is_shared, "every worker to hold a part")

    def ended(self) -> list[str]:
        """Workers that ended by themselves, in words."""
        return [
            f"{name} ended with {child.returncode}" for name, child in self.workers.items() if child.poll() is not None
        ]

    def unexpected_lines(self) -> list[str]:
        """Lines of the workers' log that no worker should say."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return [line for line in text.splitlines() if any(word in line for word in UNEXPECTED)]

    def close(self) -> None:
        for worker in list(self.workers):
            self.kill(worker)
        self.hands.shutdown()


def _text(encoded: str) -> str:
    return base64.b64decode(encoded).decode()


@contextmanager
def fleet_stage(pair: str, folder: Path) -> Iterator[FleetStage]:
    """All of it, running, for as long as the context is open. Raises ServerFailed."""
    source_kind, target_kind = PAIRS[pair]
    with ExitStack() as stack:
        source, target = make_cluster(source_kind, folder / "source"), make_cluster(target_kind, folder / "target")
        stack.enter_context(source)
        stack.enter_context(target)
        toxiproxy = stack.enter_context(Toxiproxy(folder / "toxiproxy"))
        etcd = stack.enter_context(closing(EtcdCluster(folder / "etcd")))
        etcd.start()
        server = connect(Address("127.0.0.1", toxiproxy.port), 10.0)
        upstreams = tuple(str(each.address) for each in etcd.servers)
        proxies = [
            list(stack.enter_context(proxied(server, f"f{slot}", upstreams)).values()) for slot in range(WORKERS)
        ]
        commands = stack.enter_context(WarmCommands())
        stage = stack.enter_context(closing(FleetStage(source, target, etcd, commands, folder, proxies)))
        for _ in range(WORKERS):
            stage.start_worker()
        stage.until_shared()
        yield stage


def etcd_leader(etcd: EtcdCluster, but: EtcdServer | None = None) -> EtcdServer | None:
    """As a server says that runs; None where it knows none, or still that one."""
    asked = next(server for server in etcd.servers if server.is_running and server is not but)
    try:
        leader = etcd.leader(asked)
    except (subprocess.CalledProcessError, ValueError):
        return None
    return None if leader is but else leader
