"""What a fleet does when workers die, leave and join, beside Kafka's MirrorMaker 2 under the same load; what it costs.

Both mirror the same topics of one source into one target, one after the other, with three processes each. When a record
was at the target is read from its logs' ends, looked at each LOOK_S, and from the batches below them.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Literal

from broker.client.cluster import Cluster
from broker.client.log import append, read_records
from broker.client.offsets import log_end_offsets
from broker.client.site import Site
from broker.client.topics import NewTopic, create_topics
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from tests.bench.clusters import running_cluster, service
from tests.bench.fleet_load import Arrival, Arrivals, Content, Load, content, handover_s, loaded, longest_gap_s
from tests.bench.fleet_peers import BEST, PREFIX, PROCESSES, Fleet, MirrorMaker, Peer, bench_etcd
from tests.bench.measure import cpu_seconds
from tests.mirror.fleet.etcd_server import EtcdServer

Part = Literal["takeover", "default", "topics", "rolling", "moves", "cuts", "coordinator"]
PARTS: Final[tuple[Part, ...]] = ("takeover", "topics", "rolling", "moves", "cuts", "coordinator", "default")
LOAD_TOPICS: Final = 6
PARTITIONS: Final = 4
LOOK_S: Final = 0.02
SEEN_S: Final = 1.0
"""What happened before was seen by then."""
STANDS_STILL_S: Final = 10.0
ADD_WITHIN_S: Final = 5.0
"""Topics are added at any moment between two looks for new ones."""
ON_ITS_WAY_S: Final = 0.3
"""What a killed process had sent is at the target by then."""
PATIENCE_S: Final = 420.0
"""MirrorMaker 2 waits five minutes before it gives a lost process's work to others."""
MADE_AT_ONCE: Final = 100
"""Topics of one request: a busy disk takes longer over more than a client waits."""
COORDINATED_S: Final = 60.0
POLL_S: Final = 0.2
RESTS_S: Final = 20.0
"""Longer than a fleet that changed is left alone, and than its loads are measured."""
MANY: Final = "many"
CUT_INTO: Final = (2, 3)


@dataclass(frozen=True, slots=True)
class FleetSetup:
    """`kills` of each mirror, `topics` on the link before others are added, `units` that are coordinated."""

    directory: Path
    kills: int
    topics: int
    units: int
    parts: frozenset[Part]


@dataclass(slots=True)
class Taken:
    """Of one mirror: from each kill to the first record of the partition that waited longest."""

    takeovers_s: list[float] = field(default_factory=list)
    content: Content | None = None


@dataclass(slots=True)
class Rolled:
    took_s: float
    longest_idle_s: float
    content: Content


@dataclass(slots=True)
class Cut:
    """`took_s`: the command, with what Python needs to start; `idle_s`: of the partition that stood longest."""

    took_s: float
    idle_s: float


@dataclass(slots=True)
class Coordinated:
    """Processor time of each member, the leader first, and of etcd, in parts of a core; writes are etcd's revisions."""

    shared_out_s: float
    balanced_s: float
    """Behind it no unit moved."""
    member_cores: list[float]
    etcd_cores: float
    writes_per_s: float


@dataclass(slots=True)
class FleetResults:
    taken: dict[str, Taken] = field(default_factory=dict)
    added_s: list[float] = field(default_factory=list)
    rolled: Rolled | None = None
    handovers_s: list[float] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    coordinated: Coordinated | None = None


def chosen_parts(only: Collection[str]) -> frozenset[Part]:
    """All, where none is named."""
    return frozenset(each for each in PARTS if not only or each in only)


def bench_fleet(setup: FleetSetup, say: Callable[[str], None]) -> FleetResults:
    """Raises ServerFailed, also where MirrorMaker's jars are not there."""
    results = FleetResults()
    bench = _Bench(setup, say, results)
    setup.directory.mkdir(parents=True, exist_ok=True)
    if setup.parts - {"coordinator"}:
        asyncio.run(bench.run())
    if "coordinator" in setup.parts:
        say(f"{PROCESSES} workers agree on {setup.units:,} units, for {COORDINATED_S:.0f} s")
        results.coordinated = coordinated(setup.directory / "coordinator", setup.units)
    return results


class _Bench:
    def __init__(self, setup: FleetSetup, say: Callable[[str], None], results: FleetResults) -> None:
        self._setup, self._say, self._results = setup, say, results

    async def run(self) -> None:
        setup, folder = self._setup, self._setup.directory
        with ExitStack() as stack:
            self._source = stack.enter_context(running_cluster("farshore", folder / "source"))
            self._target = stack.enter_context(running_cluster("farshore", folder / "target"))
            self._etcd = stack.enter_context(bench_etcd(folder / "etcd"))
            if "takeover" in setup.parts:
                await self._takeovers(self._fleet("takeover"), "takeover", setup.kills)
                await self._takeovers(self._mirror_maker("MirrorMaker 2, best", "best", BEST), "best", setup.kills)
            if "rolling" in setup.parts:
                await self._roll(self._fleet("rolling"))
            if "moves" in setup.parts:
                await self._move(self._fleet("moves"))
            if "cuts" in setup.parts:
                await self._cut(self._fleet_of("cuts", {"cuts": "cuts-.*"}))
            if "topics" in setup.parts:
                await self._add_topics()
            if "default" in setup.parts:
                await self._takeovers(self._mirror_maker("MirrorMaker 2, default", "default", {}), "default", 1)

    def _fleet(self, name: str) -> Fleet:
        return self._fleet_of(name, {topic: topic for topic in _topics(name)})

    def _fleet_of(self, name: str, links: dict[str, str]) -> Fleet:
        return Fleet(self._setup.directory / name, self._source.bootstrap, self._target.bootstrap, self._etcd, links)

    def _mirror_maker(self, kind: str, name: str, settings: dict[str, str]) -> MirrorMaker:
        folder, ways = self._setup.directory / name, (self._source.bootstrap, self._target.bootstrap)
        return MirrorMaker(folder, kind, *ways, f"{name}-.*", LOAD_TOPICS * PARTITIONS, settings)

    @asynccontextmanager
    async def _running(self, peer: Peer, name: str) -> AsyncIterator[_Run]:
        """A mirror of topics of its own, under load."""
        async with Cluster(Site("east", self._source.bootstrap)) as east:
            await _make(east, _topics(name), PARTITIONS)
        partitions = [TopicPartition(topic, number) for topic in _topics(name) for number in range(PARTITIONS)]
        there = [TopicPartition(peer.target_topic(each.topic), each.partition) for each in partitions]
        with closing(peer), loaded(self._source.bootstrap, partitions) as load:
            async with self._west() as west:
                await asyncio.to_thread(peer.start_all)
                await _until(lambda: _has_all(west, {each.topic for each in there}), "the topics at the target")
                run = _Run(peer, west, there)
                watching = asyncio.ensure_future(run.arrivals.watch(LOOK_S))
                await _until(run.flows, "records in every partition")
                try:
                    yield run
                finally:
                    watching.cancel()
                await run.count(load)

    async def _takeovers(self, peer: Peer, name: str, kills: int) -> None:
        taken = self._results.taken[peer.kind] = Taken()
        async with self._running(peer, name) as run:
            for number in range(kills):
                self._say(f"{peer.kind}: kill {number + 1} of {kills}")
                taken.takeovers_s.append(await run.takeover_s(number % PROCESSES))
        taken.content = run.content

    async def _roll(self, peer: Fleet) -> None:
        self._say("rolling restart of the whole fleet")
        async with self._running(peer, "rolling") as run:
            began_s = time.monotonic()
            for number in range(PROCESSES):
                await asyncio.to_thread(peer.stop, number)
                await asyncio.to_thread(peer.start, number)
                await asyncio.to_thread(peer.settle)
            over_s = time.monotonic()
            await asyncio.sleep(SEEN_S)
            batches = (await run.arrivals.read()).values()
            idle_s = max(longest_gap_s(each, began_s - SEEN_S, over_s) for each in batches)
        assert run.content is not None
        self._results.rolled = Rolled(over_s - began_s, idle_s, run.content)

    async def _move(self, peer: Fleet) -> None:
        """Each worker is drained in turn."""
        async with self._running(peer, "moves") as run:
            for number in range(self._setup.kills):
                await asyncio.to_thread(_rest, peer)
                self._say(f"graceful moves: drain {number + 1} of {self._setup.kills}")
                name = peer.names[number % PROCESSES]
                began_s = time.monotonic()
                await asyncio.to_thread(peer.fleet, "drain", name, "--yes")
                await asyncio.sleep(5 * SEEN_S)  # it returns when the worker runs nothing, before others do
                found = [handover_s(each, began_s) for each in (await run.arrivals.read()).values()]
                self._results.handovers_s += [each for each in found if each is not None]
                await asyncio.to_thread(peer.fleet, "undrain", name, "--yes")

    async def _cut(self, peer: Fleet) -> None:
        """One link of all topics is cut into two units, then into three, and so on in turn."""
        async with self._running(peer, "cuts") as run:
            for number in range(self._setup.kills):
                self._say(f"link cut {number + 1} of {self._setup.kills}")
                began_s = time.monotonic()
                await asyncio.to_thread(peer.cut, "cuts", CUT_INTO[number % len(CUT_INTO)])
                took_s = time.monotonic() - began_s
                await _until(partial(run.flows_since, time.monotonic()), "records in every partition again")
                await asyncio.sleep(RESTS_S)  # a second unit may begin later than the first one
                batches = (await run.arrivals.read()).values()
                idle_s = max(longest_gap_s(each, began_s - SEEN_S, time.monotonic()) for each in batches)
                self._results.cuts.append(Cut(took_s, idle_s))

    async def _add_topics(self) -> None:
        """From a topic's creation at the source to its first record at the target."""
        names = [f"{MANY}-{number:05}" for number in range(self._setup.topics)]
        with closing(self._fleet_of("topics", {MANY: f"{MANY}-.*"})) as peer:
            async with Cluster(Site("east", self._source.bootstrap)) as east, self._west() as west:
                self._say(f"a link of {len(names):,} topics")
                await _make(east, names, 1)
                await asyncio.to_thread(peer.start_all)
                await _until(lambda: _has_all(west, names), "every topic to be at the target")
                await _arrived(east, west, names[-1])  # they are made before the session that mirrors them begins
                for number in range(self._setup.kills):
                    self._say(f"add topic {number + 1} of {self._setup.kills}")
                    await asyncio.sleep(random.uniform(0.0, ADD_WITHIN_S))
                    added_s = await _added_s(east, west, f"{MANY}-new-{number}")
                    self._say(f"there after {added_s:.2f} s")
                    self._results.added_s.append(added_s)

    def _west(self) -> Cluster:
        return Cluster(Site("west", self._target.bootstrap))


def _topics(name: str) -> list[str]:
    return [f"{name}-{number}" for number in range(LOAD_TOPICS)]


class _Run:
    """A mirror that runs under load. `content` is there behind its end."""

    def __init__(self, peer: Peer, west: Cluster, partitions: Sequence[TopicPartition]) -> None:
        self.peer, self.west = peer, west
        self.arrivals = Arrivals(west, partitions)
        self.content: Content | None = None

    async def flows(self) -> bool:
        return all((await self.arrivals.read()).values())

    async def flows_since(self, since_s: float) -> bool:
        return all(batches[-1].at_s > since_s for batches in (await self.arrivals.read()).values())

    async def takeover_s(self, number: int) -> float:
        """Kills one and starts it again when all partitions have records."""
        await asyncio.to_thread(self.peer.kill, number)
        killed_s = time.monotonic()
        firsts: list[float] = []

        async def all_flow() -> bool:
            behind_s, found = killed_s + ON_ITS_WAY_S, (await self.arrivals.read()).values()
            firsts[:] = [each.at_s for batches in found if (each := _first(batches, behind_s)) is not None]
            return len(firsts) == len(found)

        await _until(all_flow, "every partition to have records again")
        await asyncio.to_thread(self.peer.start, number)
        await asyncio.to_thread(self.peer.settle)
        return max(firsts) - killed_s

    async def count(self, load: Load) -> None:
        """The load ends; what it wrote is at the target when that stands still, or never will be."""
        load.stop.set()
        await asyncio.to_thread(load.join)
        before, until_s = -1, time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:
            self.content = await content(self.west, self.arrivals.partitions, load)
            if not self.content.lost or self.content.records == before:
                return
            before = self.content.records
            await asyncio.sleep(STANDS_STILL_S)


def _first(batches: Sequence[Arrival], behind_s: float) -> Arrival | None:
    at = bisect_right(batches, behind_s, key=lambda each: each.at_s)
    return batches[at] if at < len(batches) else None


async def _make(east: Cluster, names: Sequence[str], partitions: int) -> None:
    for first in range(0, len(names), MADE_AT_ONCE):
        some = names[first : first + MADE_AT_ONCE]
        failures = await create_topics(east, [NewTopic(name, partitions, 1, {"retention.ms": "-1"}) for name in some])
        if failures:
            raise RuntimeError(f"topics were not made: {failures}")


async def _has_all(west: Cluster, names: Collection[str]) -> bool:
    return set(names) <= (await west.metadata()).topics.keys()


async def _added_s(east: Cluster, west: Cluster, name: str) -> float:
    began_s = time.monotonic()
    await _make(east, [name], 1)
    await _arrived(east, west, name)
    return time.monotonic() - began_s


async def _arrived(east: Cluster, west: Cluster, name: str) -> None:
    """A record of a topic's first partition, its first one, is at the target."""
    where = TopicPartition(name, 0)
    await append(east, where, encode_batch([Record(0, time.time_ns() // 1_000_000, None, b"1", ())]))

    async def is_there() -> bool:
        if not await _has_all(west, [name]):
            return False
        end = (await log_end_offsets(west, [where]))[where]
        return bool([record async for record in read_records(west, where, 0, end)])

    await _until(is_there, f"{name} at the target")


async def _until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not await condition():
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"waited {PATIENCE_S:.0f} s for {what}")
        await asyncio.sleep(POLL_S)


def coordinated(folder: Path, units: int) -> Coordinated:
    """Members that hold so many units together and move nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    with bench_etcd(folder / "etcd") as etcd, _members(etcd, folder, units) as pids:
        began_s = time.monotonic()
        while len(_held(etcd)) < units or len(set(_held(etcd))) < PROCESSES:
            if time.monotonic() > began_s + PATIENCE_S:
                raise RuntimeError(f"after {PATIENCE_S:.0f} s {len(_held(etcd))} of {units} units are held")
            time.sleep(POLL_S)
        shared_out_s = time.monotonic() - began_s
        held, same_since_s = _held(etcd), time.monotonic()  # the sharing leaves moves, and first words of loads
        while time.monotonic() < same_since_s + COORDINATED_S / 2:
            time.sleep(1.0)
            if (now := _held(etcd)) != held or len(now) < units:
                held, same_since_s = now, time.monotonic()
        balanced_s = same_since_s - began_s
        before = [cpu_seconds(pid) for pid in (*pids, etcd.pid)]
        revision, began_s = etcd.revision(), time.monotonic()
        time.sleep(COORDINATED_S)
        took_s = time.monotonic() - began_s
        spent = [(cpu_seconds(pid) - cpu_s) / took_s for pid, cpu_s in zip((*pids, etcd.pid), before, strict=True)]
        return Coordinated(shared_out_s, balanced_s, spent[:-1], spent[-1], (etcd.revision() - revision) / took_s)


def _rest(peer: Fleet) -> None:
    """Until nothing was moved for RESTS_S: the first sharing is over, and loads are known."""
    held, since_s = peer.holders(), time.monotonic()
    while time.monotonic() < since_s + RESTS_S:
        time.sleep(1.0)
        if (now := peer.holders()) != held:
            held, since_s = now, time.monotonic()


def _held(etcd: EtcdServer) -> list[str]:
    said = etcd.ctl("get", "--prefix", f"{PREFIX}held/", "--print-value-only")
    return [line for line in said.splitlines() if line.strip()]


@contextmanager
def _members(etcd: EtcdServer, folder: Path, units: int) -> Iterator[list[int]]:
    with ExitStack() as stack:
        pids = []
        for number in range(PROCESSES):
            command = [sys.executable, "-m", "tests.bench.fleet_member", str(etcd.address), f"worker-{number}"]
            command.append(str(units))
            pids.append(stack.enter_context(service(command, folder / f"{number}.log")).pid)
            if not number:
                time.sleep(1.0)  # the first one leads
        yield pids
