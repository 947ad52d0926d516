"""A mirror under kills, pauses and latency while three kinds of producers write; then every record is compared."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from broker.base.address import Address
from broker.client.cluster import Cluster
from broker.client.site import Site
from broker.wire.vocabulary import TopicPartition
from chaos.toxics import Latency, connect, latency, proxied
from mirror.link import Link
from mirror.offsets.state import load_link_state
from tests.chaos_runs.clusters import ClusterServer, freeze, thaw
from tests.chaos_runs.looking import content_of, mistranslated, read_committed
from tests.chaos_runs.mirror_process import Operator
from tests.chaos_runs.noting import noted
from tests.chaos_runs.oracle import Differences, compare
from tests.chaos_runs.warm_commands import WarmCommands
from tests.chaos_runs.writers import Writer, writing
from tests.interop.servers import KafkaServer, Toxiproxy
from tests.mirror.harness import make_topic, read_all

PARTITIONS = 3
RATE_BURSTS_PER_S = 12.0
SETTLE_TIMEOUT = "150s"
LAST_RECORDS_S = 20.0
POLL_S = 0.5
KAFKA_KILLS_MAX = 1
"""A start of Kafka takes a good part of a minute's run."""


@dataclass
class ContentResult:
    """What one seed came to; `problems` are what must not be."""

    seed: int
    pair: str
    records: int = 0
    aborts: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    twice: int = 0
    extra: int = 0
    reordered: int = 0
    gaps: int = 0
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        return not self.problems

    def line(self) -> str:
        faults = " ".join(f"{name} {count}" for name, count in sorted(self.faults.items()))
        text = (
            f"{'ok  ' if self.is_good else 'FAIL'} seed {self.seed} {self.pair}: {self.records} records, "
            f"{self.aborts} aborts, lost {self.lost}, twice {self.twice}, extra {self.extra}, "
            f"reordered {self.reordered}, gaps {self.gaps} [{faults}] {self.seconds:.0f} s"
        )
        return "\n     ".join([text, *self.problems[:10]])


class Server(Protocol):
    """A cluster that runs."""

    @property
    def bootstrap(self) -> str:
        """Its addresses, with commas between them."""


S = TypeVar("S", bound=Server)


@dataclass
class ComparedRun(ABC, Generic[S]):
    """One seed on two running clusters; `folder` keeps what it said."""

    seed: int
    pair: str
    source: S
    target: S
    toxiproxy: Toxiproxy
    commands: WarmCommands
    folder: Path
    length_s: float

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.chance = random.Random(f"{self.pair}-{self.seed}")
        self.topic = f"content-{self.seed}"
        self.partitions = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        self.result = ContentResult(self.seed, self.pair)

    @property
    def groups(self) -> tuple[str, ...]:
        """Those that the link carries over."""
        return ()

    @abstractmethod
    async def make_topic(self, east: Cluster) -> None:
        """The topic of the run."""

    @abstractmethod
    async def disturb(self, operator: Operator, proxies: Mapping[str, Any]) -> None:
        """All that happens to the mirror and to its clusters, and the end of it."""

    def operator_of(self, link: Link) -> Operator:
        """Who runs the link's mirror."""
        return Operator(link, self.folder, self.commands)

    async def run(self) -> ContentResult:
        return await noted(self._run, self.result, self.folder / "traceback.txt")

    async def _run(self) -> None:
        async with Cluster(Site("east", self.source.bootstrap)) as east:
            await self.make_topic(east)
        server = connect(Address("127.0.0.1", self.toxiproxy.port), 10.0)
        of_site = {"east": self.source.bootstrap.split(","), "west": self.target.bootstrap.split(",")}
        upstreams = tuple(at for addresses in of_site.values() for at in addresses)
        with proxied(server, f"r{self.seed}", upstreams) as proxies:
            listens = {at: proxies[at].listen for at in upstreams}
            source, target = (
                Site(name, ",".join(listens[at] for at in addresses), {at: listens[at] for at in addresses})
                for name, addresses in of_site.items()
            )
            link = Link(self.topic, source, target, (self.topic,), groups=self.groups)
            operator = self.operator_of(link)
            operator.write_config()
            try:
                operator.start_mirror()
                with writing(self.source.bootstrap, self.partitions, str(self.seed), RATE_BURSTS_PER_S) as (
                    writers,
                    stop,
                ):
                    await self.disturb(operator, proxies)
                    stop.set()
                await self.check(operator, writers)
            finally:
                operator.kill_mirrors()

    async def kill_mirror(self, operator: Operator) -> None:
        operator.kill_mirrors()
        await asyncio.sleep(self.chance.choice((0.0, 0.0, 1.0)))
        operator.start_mirror()

    async def pause_mirror(self, operator: Operator) -> None:
        """A mirror that sleeps; half of the time another one takes over, and the first wakes into it."""
        operator.signal_mirrors(signal.SIGSTOP)
        taken_over = self.chance.random() < 0.5
        sleeper = operator.children[:]
        if taken_over:
            operator.start_mirror()
        await asyncio.sleep(self.chance.uniform(1.0, 5.0))
        for child in sleeper:
            child.send_signal(signal.SIGCONT)
        if taken_over:
            await asyncio.sleep(self.chance.uniform(0.0, 2.0))
            for child in sleeper:
                child.kill()
                child.wait()
                operator.children.remove(child)

    async def delay(self, proxies: Mapping[str, Any]) -> None:
        with slow(proxies, self.chance.choice((20, 100, 300))):
            await asyncio.sleep(self.chance.uniform(2.0, 6.0))

    async def check(self, operator: Operator, writers: list[Writer]) -> None:
        """When all that disturbs is over: the mirror comes to rest by itself, and both sites are compared."""
        await self.settle(operator)
        await self.compare(operator, writers)

    async def settle(self, operator: Operator) -> None:
        """Until the link is healthy and everything is mirrored."""
        problems = self.result.problems
        said = await asyncio.to_thread(
            operator.farshore, "status", "--link", operator.link.name, "--until", "healthy", "--timeout", SETTLE_TIMEOUT
        )
        for goal in ("lag<1s",) if not said.code else ():
            said = await asyncio.to_thread(
                operator.farshore, "status", "--link", operator.link.name, "--until", goal, "--timeout", SETTLE_TIMEOUT
            )
        if said.code:
            problems.append(f"not healthy after {SETTLE_TIMEOUT}: {said.err.strip()[-600:]} {said.out.strip()[-600:]}")
        status = await asyncio.to_thread(operator.status)
        # The last records may be younger than a second, and on their way.
        until_s = time.monotonic() + LAST_RECORDS_S
        while status["lag_records"] and time.monotonic() < until_s:
            await asyncio.sleep(POLL_S)
            status = await asyncio.to_thread(operator.status)
        (self.folder / "status.json").write_text(str(status))
        self.result.gaps = len(status["gaps"])
        if status["gaps"]:
            problems.append(f"the gap ledger: {status['gaps']}")
        if status["lag_records"] != 0:
            problems.append(f"status says lag {status['lag_records']}")

    async def compare(self, operator: Operator, writers: list[Writer]) -> None:
        """Each record with its copy, the sites with what the writers know, and the mirror's own words."""
        problems = self.result.problems
        problems += [f"the mirror said: {line}" for line in operator.unexpected_lines()]
        problems += [f"a mirror ended with {code}" for code in operator.ended_mirrors()]
        values: list[bytes | None] = []
        aborts = sum(writer.written.aborts for writer in writers)
        async with (
            Cluster(Site("east", self.source.bootstrap)) as east,
            Cluster(Site("west", self.target.bootstrap)) as west,
        ):
            offset_map = (await load_link_state(operator.link, west)).map
            for where in self.partitions:
                source, target = await read_committed(east, where), await read_all(west, where)
                found = compare([content_of(record) for record in source], [content_of(record) for record in target])
                self._count(where, found)
                problems += mistranslated(offset_map, where, source, target, self.chance)
                values += [record.value for record in source]
        self.result.records, self.result.aborts = len(values), aborts
        at_source = set(values)
        for writer in writers:
            gone, shown = writer.written.acknowledged - at_source, writer.written.aborted & at_source
            if gone or shown:
                text = (
                    f"the source lost {len(gone)} of the {writer.kind} producer's records, shows {len(shown)} aborted"
                )
                problems.append(text)
        if not values:
            problems.append("nothing was written: this run proves nothing")

    def _count(self, where: TopicPartition, found: Differences) -> None:
        self.result.lost += len(found.lost)
        self.result.twice += len(found.twice)
        self.result.extra += len(found.extra)
        self.result.reordered += found.reordered
        if found:
            first = [
                f"{name}: {getattr(found, name)[:2]}" for name in ("lost", "twice", "extra") if getattr(found, name)
            ]
            self.result.problems.append(f"{where} differs; {found.reordered} reordered; {'; '.join(first)[:400]}")


class ContentRun(ComparedRun[ClusterServer]):
    """Faults of whole clusters, each of one broker."""

    async def make_topic(self, east: Cluster) -> None:
        await make_topic(east, self.topic, PARTITIONS)

    async def disturb(self, operator: Operator, proxies: Mapping[str, Any]) -> None:
        """One fault after the other, at random, until the time is over; each is taken off again."""
        ends_s = time.monotonic() + self.length_s
        kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "mirror-kill": lambda: self.kill_mirror(operator),
            "mirror-pause": lambda: self.pause_mirror(operator),
            "source-kill": lambda: self._kill(self.source),
            "target-kill": lambda: self._kill(self.target),
            "source-pause": lambda: self._pause(self.source),
            "target-pause": lambda: self._pause(self.target),
            "source-latency": lambda: self.delay({"": proxies[self.source.bootstrap]}),
            "target-latency": lambda: self.delay({"": proxies[self.target.bootstrap]}),
        }
        kills_max = {
            name: KAFKA_KILLS_MAX
            for name, server in (("source-kill", self.source), ("target-kill", self.target))
            if isinstance(server, KafkaServer)
        }
        weights = {"mirror-kill": 4, "target-kill": 2, "source-kill": 2}
        while True:
            await asyncio.sleep(self.chance.uniform(0.5, 4.0))
            if time.monotonic() >= ends_s:
                return
            open_kinds = [name for name in kinds if self.result.faults.get(name, 0) < kills_max.get(name, 1_000)]
            (name,) = self.chance.choices(open_kinds, [weights.get(kind, 1) for kind in open_kinds])
            self.result.faults[name] = self.result.faults.get(name, 0) + 1
            await kinds[name]()

    async def _kill(self, server: ClusterServer) -> None:
        await asyncio.to_thread(server.kill9)
        await asyncio.to_thread(server.start)

    async def _pause(self, server: ClusterServer) -> None:
        freeze(server)
        try:
            await asyncio.sleep(self.chance.uniform(0.5, 4.0))
        finally:
            thaw(server)


@contextlib.contextmanager
def slow(proxies: Mapping[str, Any], latency_ms: int) -> Iterator[None]:
    with latency(proxies, Latency(latency_ms, latency_ms // 5)):
        yield
