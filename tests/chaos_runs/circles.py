"""Sites that mirror one topic to each other, under its name: writers at each, mirrors killed, contents compared."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from broker.client.cluster import Cluster
from broker.client.offsets import log_end_offsets
from broker.client.site import Site
from broker.wire.compression import Compression
from broker.wire.records import Record
from broker.wire.vocabulary import TopicPartition
from deploy.topology import connect
from mirror.link import Link
from mirror.offsets.entries import GapStatus
from mirror.offsets.state import load_link_state
from tests.chaos_runs.mirror_process import UNEXPECTED
from tests.forking import ForkedProcess, start_farshore
from tests.interop.servers import ROOT
from tests.mirror.harness import make_topic, read_all, write

Ways = Sequence[tuple[str, str]]
"""(source, target) of each link."""
PAIR: Ways = (("east", "west"), ("west", "east"))
RING: Ways = (("east", "north"), ("north", "west"), ("west", "east"))
MESH: Ways = tuple((a, b) for a in ("east", "north", "west") for b in ("east", "north", "west") if a != b)
CIRCLES: Mapping[str, Sequence[Ways]] = {
    "pair": [[way] for way in PAIR],
    "mesh": [MESH],
    "ring": [[way] for way in RING],
}
"""The files of each kind: a pair and a ring whose files know one link each, a mesh in one file."""
CIRCLE_SITES = {"east": "3.9.1", "north": "ours", "west": "4.3.0"}
PARTITIONS = 2
BATCH_RECORDS_MAX = 20
SETTLE_TIMEOUT_S = 150.0
POLL_S = 0.5


@dataclass
class CircleResult:
    """What one run came to; `problems` are what must not be."""

    records: int = 0
    """That all sites together wrote."""
    copies: int = 0
    """Of those, at sites that did not write them."""
    kills: int = 0
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def line(self) -> str:
        text = f"{self.records} records, {self.copies} copies, {self.kills} kills, {self.seconds:.0f} s"
        return "\n     ".join([f"{'FAIL' if self.problems else 'ok  '} {text}", *self.problems[:10]])


@dataclass
class Circle:
    """`sites`: names and bootstrap addresses. Each of `files` is a configuration with a mirror process of its own."""

    sites: Mapping[str, str]
    files: Sequence[Ways]
    folder: Path
    seed: int

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        linked = {name for ways in self.files for way in ways for name in way}
        self.sites = {name: bootstrap for name, bootstrap in self.sites.items() if name in linked}
        self.chance = random.Random(self.seed)
        self.topic = f"circle-{self.seed}-{self.chance.getrandbits(24):x}"
        self.partitions = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        self.sent: dict[str, dict[TopicPartition, list[bytes]]] = {
            name: {where: [] for where in self.partitions} for name in self.sites
        }
        self.result = CircleResult()
        self._mirrors: dict[int, ForkedProcess] = {}

    def links(self) -> list[Link]:
        """All of them, each as its file declares it."""
        found: list[Link] = []
        for ways in self.files:
            found += connect([self._link(*way) for way in ways])
        return found

    async def run(self, kills: int, length_s: float = 0.0) -> CircleResult:
        """Write at all sites; kill `kills` mirrors one after the other, evenly over `length_s`; compare."""
        started_s = time.monotonic()
        stop = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as tasks:
                for name in self.sites:
                    tasks.create_task(self._write(name, stop))
                for at in range(len(self.files)):
                    self._start(at)
                for _ in range(kills):
                    await self._until_moved()
                    await asyncio.sleep(length_s / kills * (0.5 + self.chance.random()))
                    at = self.chance.randrange(len(self.files))
                    self._kill(at)
                    self.result.kills += 1
                    self._start(at)
                await self._until_moved()
                stop.set()
            await self._settle()
            await self._compare()
        finally:
            for at in list(self._mirrors):
                self._kill(at)
            self.result.seconds = time.monotonic() - started_s
        return self.result

    # -- the mirrors

    def _link(self, source: str, target: str) -> Link:
        ends = (Site(source, self.sites[source]), Site(target, self.sites[target]))
        return Link(f"{self.topic}-{source}-{target}", *ends, (self.topic,))

    def _start(self, at: int) -> None:
        config = self.folder / f"farshore-{at}.toml"
        lines = [f"state_dir = {json.dumps(str(self.folder / f'var-{at}'))}"]
        for name in sorted({name for way in self.files[at] for name in way}):
            lines += [f"[sites.{name}]", f"bootstrap_servers = {json.dumps(self.sites[name])}"]
        for way in self.files[at]:
            link = self._link(*way)
            lines += ["[[links]]", f'name = "{link.name}"', f'source = "{way[0]}"', f'target = "{way[1]}"']
            lines += [f"topics = {json.dumps(list(link.topics))}", 'topic_names = "same"', "groups = []"]
        config.write_text("\n".join(lines) + "\n")
        self._mirrors[at] = start_farshore(["--config", str(config), "mirror", "run"], ROOT, self._log(at))

    def _kill(self, at: int) -> None:
        child = self._mirrors.pop(at)
        child.kill()
        child.wait()

    def _log(self, at: int) -> Path:
        return self.folder / f"mirror-{at}.log"

    def _said(self) -> str:
        return "; ".join(self._log(at).read_text(errors="replace")[-1500:] for at in range(len(self.files)))

    # -- the records

    async def _write(self, name: str, stop: asyncio.Event) -> None:
        chance = random.Random(f"{self.seed}-{name}")
        async with Cluster(Site(name, self.sites[name])) as cluster:
            await make_topic(cluster, self.topic, PARTITIONS)
            while not stop.is_set():
                where = chance.choice(self.partitions)
                sent = self.sent[name][where]
                values = [
                    b"%s/%d/%s"
                    % (name.encode(), len(sent) + at, chance.randbytes(chance.randrange(200)).hex().encode())
                    for at in range(chance.randint(1, BATCH_RECORDS_MAX))
                ]
                records = [Record(at, 1_700_000_000_000 + at, b"k", value) for at, value in enumerate(values)]
                await write(cluster, where, records, chance.choice(list(Compression)))
                sent += values
                await asyncio.sleep(chance.random() * 0.05)

    async def _ends(self) -> dict[str, int]:
        found = {}
        for name, bootstrap in self.sites.items():
            async with Cluster(Site(name, bootstrap)) as cluster:
                if self.topic in (await cluster.metadata([self.topic])).topics:
                    found[name] = sum((await log_end_offsets(cluster, self.partitions)).values())
        return found

    def _wanted(self) -> int:
        return sum(len(values) for sent in self.sent.values() for values in sent.values())

    async def _until_moved(self) -> None:
        """Copies (or at least the fences' markers) came to every site since now."""
        before, own = await self._ends(), {name: sum(map(len, sent.values())) for name, sent in self.sent.items()}
        deadline_s = time.monotonic() + SETTLE_TIMEOUT_S
        while True:
            now = await self._ends()
            grown = {name: sum(map(len, sent.values())) - own[name] for name, sent in self.sent.items()}
            if len(before) == len(now) and all(now[name] - before[name] > grown[name] + 10 for name in now):
                return
            if len(before) < len(now):
                before = now
            assert time.monotonic() < deadline_s, f"nothing moves: {before}, {now}; {self._said()}"
            await asyncio.sleep(POLL_S)

    async def _settle(self) -> None:
        """Until every site holds as many records as were written, or no more come."""
        deadline_s = time.monotonic() + SETTLE_TIMEOUT_S
        while time.monotonic() < deadline_s:
            counts = [sum(len(found) for found in (await self._read(name)).values()) for name in self.sites]
            if min(counts) >= self._wanted():
                await asyncio.sleep(2.0)  # what would come twice, or go round, is on its way now
                return
            await asyncio.sleep(POLL_S)
        self.result.problems.append(f"not mirrored in time; {self._said()}")

    async def _read(self, name: str) -> dict[TopicPartition, list[Record]]:
        async with Cluster(Site(name, self.sites[name])) as cluster:
            return {where: await read_all(cluster, where) for where in self.partitions}

    async def _compare(self) -> None:
        """Each record once at every site, in the order of its site; and where the links' maps say."""
        result = self.result
        result.records, result.copies = self._wanted(), self._wanted() * (len(self.sites) - 1)
        there = {name: await self._read(name) for name in self.sites}
        for name, logs in there.items():
            for where, records in logs.items():
                found = [record.value or b"" for record in records]
                wanted = Counter(value for sent in self.sent.values() for value in sent[where])
                lost, more = wanted - Counter(found), Counter(found) - wanted
                if lost or more:
                    result.problems.append(f"{where} at {name}: {lost.total()} lost, {more.total()} twice or extra")
                for origin in self.sites:
                    came = [value for value in found if value.startswith(origin.encode() + b"/")]
                    if not (lost or more) and came != self.sent[origin][where]:
                        result.problems.append(f"{where} at {name}: records of {origin} in another order")
        for link in self.links():
            async with Cluster(link.target) as target:
                state = await load_link_state(link, target)
            # A local writer is a foreign one until the other file's link has registered: then that gap is gone.
            gaps = [gap for gap in state.entries.gaps.values() if gap.status is not GapStatus.GONE]
            result.problems += [f"{link.name}: {gap}" for gap in gaps]
            for where in self.partitions:
                at_target = {record.offset: record.value for record in there[link.target.name][where]}
                source = {record.offset: record.value for record in there[link.source.name][where]}
                own = f"{link.source.name}/".encode()
                for offset, value in source.items():
                    if (value or b"").startswith(own):
                        at = state.map.to_target(*where, offset)
                        if at is None or at_target.get(at) != value:
                            result.problems.append(f"{link.name} {where}: {offset} is translated to {at}")
                            break
        result.problems += [
            f"mirror {at} said: {line}"
            for at in range(len(self.files))
            for line in self._log(at).read_text(errors="replace").splitlines()
            if any(word in line for word in UNEXPECTED)
        ]
        result.problems += [
            f"mirror {at} ended: {self._said()}" for at, m in self._mirrors.items() if m.poll() is not None
        ]
        if not result.records:
            result.problems.append("nothing was written: this run proves nothing")
