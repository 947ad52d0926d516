"""Three processes that mirror the same topics: a fleet of farshore's, and Apache Kafka's MirrorMaker 2."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from broker.base.children import die_with_parent
from deploy.tools.etcd import etcd_program
from tests.bench.clusters import KAFKA_VERSION
from tests.bench.measure import ROOT
from tests.classes import CACHE
from tests.interop.servers import ServerFailed, java
from tests.mirror.fleet.etcd_server import EtcdServer
from tests.ports import free_port

PROCESSES = 3
LEASE_S = 2
PREFIX = "/bench/"
PATIENCE_S = 120.0
STOP_TIMEOUT_S = 60.0
MIRROR_MAKER = CACHE / "mirror-maker" / KAFKA_VERSION
MIRROR_MAKER_SETTLE_S = 20.0
"""What its processes do behind a start is nowhere to be asked: a rebalance, and its tasks' start, are over by then."""
BEST = {
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "1500",
    "scheduled.rebalance.max.delay.ms": "0",
    "offset.flush.interval.ms": "1000",
}
"""The least session that a broker allows, no waiting for who may come back, and positions written each second."""


class Peer(ABC):
    """Three processes, called by their numbers."""

    kind: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    @abstractmethod
    def command(self, number: int) -> Sequence[str]: ...

    @abstractmethod
    def settle(self) -> None:
        """Wait until each of them has its part."""

    def target_topic(self, topic: str) -> str:
        return topic

    def start(self, number: int) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{number}.log").open("ab") as sink:
            self._running[number] = subprocess.Popen(
                self.command(number),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                preexec_fn=die_with_parent,
            )

    def start_all(self) -> None:
        for number in range(PROCESSES):
            self.start(number)
        self.settle()

    def kill(self, number: int) -> None:
        child = self._running.pop(number)
        child.kill()
        child.wait()

    def stop(self, number: int) -> None:
        child = self._running.pop(number)
        child.terminate()
        child.wait(STOP_TIMEOUT_S)

    def close(self) -> None:
        for number in list(self._running):
            self.kill(number)


class Fleet(Peer):
    """`farshore mirror run`, with a link for each pattern of topics."""

    kind = "farshore"

    def __init__(self, folder: Path, source: str, target: str, etcd: EtcdServer, links: Mapping[str, str]) -> None:
        super().__init__(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._etcd, self._links = etcd, links
        self._started = 0
        self.config = folder / "farshore.toml"
        self._sites = (("east", source), ("west", target))
        self._write_file(units=1)
        self.names: dict[int, str] = {}

    def _write_file(self, units: int) -> None:
        """With each link cut into so many units."""
        lines = ["[fleet]", f'etcd = ["{self._etcd.address}"]', f'prefix = "{PREFIX}"', f"lease_seconds = {LEASE_S}"]
        for site, address in self._sites:
            lines += [f"[sites.{site}]", f'bootstrap_servers = "{address}"']
        for name, pattern in self._links.items():
            lines += ["[[links]]", f'name = "{name}"', 'source = "east"', 'target = "west"']
            lines += [f'topics = ["{pattern}"]', 'topic_names = "same"', f"units = {units}"]
        whole = self.config.with_suffix(".new")
        whole.write_text("\n".join(lines) + "\n")
        whole.replace(self.config)

    def command(self, number: int) -> Sequence[str]:
        # A new name each time: one that was killed is at etcd until its lease is over.
        self.names[number] = f"worker-{number}-{self._started}"
        self._started += 1
        return [*self._farshore(), "mirror", "run", "--worker", self.names[number]]

    def _farshore(self) -> list[str]:
        return [sys.executable, "-m", "deploy.cli", "--config", str(self.config)]

    def fleet(self, *arguments: str) -> None:
        """RuntimeError where the command fails."""
        self._run("fleet", *arguments)

    def cut(self, link: str, units: int) -> None:
        """Cut anew, and say so in the file. RuntimeError where the command fails."""
        self._run("link", "cut", "--link", link, "--units", str(units), "--yes")
        self._write_file(units)

    def _run(self, *arguments: str) -> None:
        done = subprocess.run([*self._farshore(), *arguments], cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(arguments)} ended with {done.returncode}: {done.stderr}")

    def holders(self) -> dict[str, str]:
        """Of each unit."""
        found = json.loads(self._etcd.ctl("get", "--prefix", f"{PREFIX}held/", "-w", "json")).get("kvs", [])
        texts = [self._etcd.ctl("get", "--prefix", f"{PREFIX}held/", "--print-value-only")] if found else []
        values = [json.loads(line)["worker"] for text in texts for line in text.splitlines() if line.strip()]
        return {item["key"]: worker for item, worker in zip(found, values, strict=False)}

    def settle(self) -> None:
        names = {self.names[number] for number in self._running}
        parts = min(len(names), len(self._links))

        def has_settled() -> bool:
            held = self.holders()
            return len(held) >= len(self._links) and set(held.values()) <= names and len(set(held.values())) >= parts

        deadline_s = time.monotonic() + PATIENCE_S
        while not has_settled():
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"after {PATIENCE_S:.0f} s the fleet is {self.holders()}")
            time.sleep(0.2)


class MirrorMaker(Peer):
    """Kafka's own, as `connect-mirror-maker.sh` runs it: dedicated, its processes one Connect cluster.

    `settings` are of the workers at the target.
    """

    def __init__(
        self, folder: Path, kind: str, source: str, target: str, topics: str, tasks: int, settings: Mapping[str, str]
    ) -> None:
        super().__init__(folder)
        if not (MIRROR_MAKER / ".complete").exists():
            raise ServerFailed(f"MirrorMaker 2 is not there; run: make {MIRROR_MAKER.relative_to(ROOT)}/.complete")
        self.kind = kind
        self._source, self._target, self._topics = source, target, topics
        self._tasks, self._settings = tasks, settings

    def command(self, number: int) -> Sequence[str]:
        ones = ("replication", "checkpoints.topic.replication", "heartbeats.topic.replication")
        stores = ("offset-syncs.topic.replication", "offset.storage.replication", "status.storage.replication")
        properties = {
            "clusters": "east,west",
            "east.bootstrap.servers": self._source,
            "west.bootstrap.servers": self._target,
            "east->west.enabled": "true",
            "west->east.enabled": "false",
            "east->west.topics": self._topics,
            "tasks.max": str(self._tasks),
            "dedicated.mode.enable.internal.rest": "true",
            "listeners": f"http://127.0.0.1:{free_port()}",
            **{f"{name}.factor": "1" for name in (*ones, *stores, "config.storage.replication")},
            **{f"west.{name}": value for name, value in self._settings.items()},
        }
        file = self.folder / f"{number}.properties"
        file.write_text("".join(f"{name} = {value}\n" for name, value in properties.items()))
        options = ["-Xms256m", "-Xmx512m", "-XX:+UseG1GC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        main = "org.apache.kafka.connect.mirror.MirrorMaker"
        return [java(), *options, "-cp", f"{MIRROR_MAKER}/*", main, str(file)]

    def target_topic(self, topic: str) -> str:
        return f"east.{topic}"

    def settle(self) -> None:
        time.sleep(MIRROR_MAKER_SETTLE_S)


@contextmanager
def bench_etcd(folder: Path) -> Iterator[EtcdServer]:
    """As it is installed, with its fsync, where one is."""
    with closing(EtcdServer(folder, program=Path(etcd_program()))) as etcd:
        etcd.start()
        yield etcd
