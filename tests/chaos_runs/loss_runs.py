"""A site is lost, or left, while it is written to; what `farshore failover` states as lost is held against its disk.

Two ways: applications write to the same topics at the other site, too, and a link back brings that to the first.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker.base.address import Address
from broker.client.cluster import Cluster
from broker.client.configs import alter_topic_configs
from broker.client.offsets import log_end_offsets
from broker.client.site import Site
from broker.client.topics import list_topics
from broker.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from broker.wire.records import Record
from broker.wire.vocabulary import BROKER_RESOURCE, ConfigOperation, TopicPartition
from chaos.toxics import connect, proxied
from deploy.cli.terminal import ExitCode
from mirror.link import Link
from tests.chaos_runs.clusters import ClusterServer
from tests.chaos_runs.lagging import ThreeBrokers, are_shown, lag
from tests.chaos_runs.looking import read_committed, read_settled
from tests.chaos_runs.loss_judgement import OnDisk, Verdict, judge
from tests.chaos_runs.loss_writers import CONFIGS, Other, Source
from tests.chaos_runs.mirror_process import Operator
from tests.chaos_runs.noting import noted
from tests.chaos_runs.warm_commands import WarmCommands
from tests.interop.servers import KafkaServer, Toxiproxy
from tests.mirror.harness import eventually

MIRRORS = ("healthy", "throttled", "stalled", "dead")
LOST_SHARE = 0.7
"""Of the sources are killed; the others are left alive, and quiet."""
BEGIN_S = 180.0
LIFE_S = (4.0, 9.0)
EVENTS = (1, 4)
"""Topics and partitions that are born meanwhile."""
THROTTLED_KB_PER_S = 12
STALLED_FROM_BYTES = "200"
"""The target's max.message.bytes: most batches are longer."""
COMPACTED_LATER = (
    ("min.compaction.lag.ms", ConfigOperation.SET, "86400000"),
    ("max.compaction.lag.ms", ConfigOperation.SET, "86400000"),
)
"""No record is old enough as long as a run lasts."""
FAILOVER = ("failover", "--allow-data-loss", "--even-if-source-answers", "--even-if-source-partly-there")


@dataclass
class LossResult:
    """What one seed came to."""

    seed: int
    pair: str
    mirror: str = ""
    is_source_lost: bool = True
    ways: str = "one way"
    topics: int = 0
    partitions: int = 0
    written: int = 0
    left_open: int = 0
    """Transactions that no marker will ever end, by partition: their records count as never committed."""
    verdict: Verdict = field(default_factory=Verdict)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        return not self.problems

    def line(self) -> str:
        said = self.verdict
        certainties = " ".join(f"{name} {count}" for name, count in sorted(said.certainties.items()))
        source = "lost" if self.is_source_lost else "alive"
        text = (
            f"{'ok  ' if self.is_good else 'FAIL'} seed {self.seed} {self.pair} {self.ways}, mirror {self.mirror} "
            f"source {source}: "
            f"{self.written} records in {self.topics} topics, {self.partitions} partitions; lost {said.lost_records} "
            f"records, {said.lost_offsets} offsets, stated {said.stated_offsets}, unclear {said.unclear_offsets}; "
            f"{certainties}, unknowable {said.unknowable}; {self.left_open} left open; {self.seconds:.0f} s"
        )
        return "\n     ".join([text, *self.problems[:10]])


class LossRun:
    """One seed on two running clusters; `folder` keeps what was said."""

    def __init__(
        self, seed: int, pair: str, sites: tuple[ClusterServer | ThreeBrokers, ClusterServer], toxiproxy: Toxiproxy,
        commands: WarmCommands, folder: Path, *, two_ways: bool = False,
    ) -> None:  # fmt: skip
        self.seed = seed
        self.source, self.target = sites
        self.toxiproxy = toxiproxy
        self.commands = commands
        self.folder = folder
        self.chance = random.Random(f"loss-{pair}-{seed}")
        lost = self.chance.random() < LOST_SHARE
        self.result = LossResult(seed, pair, MIRRORS[seed % len(MIRRORS)], lost)
        self.two_ways = two_ways
        self.uncompacted: dict[TopicPartition, set[int]] = {}
        """Offsets of records that the source had when it was to compact nothing more."""
        self.back_chance = random.Random(f"loss-back-{pair}-{seed}")
        self.lagging: TopicPartition | None = None
        """Where a leader had records that nobody was shown."""
        folder.mkdir(parents=True, exist_ok=True)

    async def run(self) -> LossResult:
        return await noted(self._run, self.result, self.folder / "traceback.txt")

    async def _run(self) -> None:
        if isinstance(self.source, ThreeBrokers):
            self.source.wake()
        if self.source.process is None:  # it did not come again in the seed before
            await asyncio.to_thread(self.source.start)
        prefix = f"loss-{self.seed}-"
        for server in (self.source, self.target):
            await compact_soon(server)
        toxics = connect(Address("127.0.0.1", self.toxiproxy.port), 10.0)
        with proxied(toxics, f"l{self.seed}", (self.target.bootstrap,)) as proxies:
            listen = proxies[self.target.bootstrap].listen
            west = Site("west", listen, {self.target.bootstrap: listen})
            link = Link(f"loss-{self.seed}", Site("east", self.source.bootstrap), west, (re.escape(prefix) + ".*",))
            operator = Operator(link, self.folder, self.commands)
            try:
                async with (
                    Cluster(link.source, client_id="shop") as cluster,
                    Cluster(Site("west", self.target.bootstrap), client_id="shop") as other,
                ):
                    source = Source(cluster, prefix, random.Random(f"writer-{self.seed}"))
                    async with self._back(operator, source, other):
                        operator.write_config()
                        said = await self._live_and_lose(source, operator, proxies[self.target.bootstrap])
                if isinstance(self.source, ThreeBrokers):
                    self.source.wake()
                if self.source.process is None:
                    await asyncio.to_thread(self.source.start)
                await self._judge(source, said)
            finally:
                operator.kill_mirrors()

    @asynccontextmanager
    async def _back(self, operator: Operator, source: Source, west: Cluster) -> AsyncIterator[None]:
        """What is there more where both sites are written to. Nobody writes any more when it ends."""
        if not self.two_ways:
            yield
            return
        link, chance = operator.link, self.back_chance
        back = Link(f"back-{self.seed}", Site("west", self.target.bootstrap), link.source, link.topics)
        operator.back = back if (is_declared := chance.random() < 0.5) else None
        self.result.ways = f"two ways ({'declared' if is_declared else 'registered'})"
        mirror = Operator(back, self.folder, self.commands, "back", back=link if is_declared else None)
        mirror.write_config()
        mirror.start_mirror()
        writer = Other(west, source.prefix, random.Random(f"west-{self.seed}"), first=source)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(writer.write_until_stopped())
            faults = tasks.create_task(self._trouble(mirror))
            try:
                yield
            finally:
                writer.stopped = True
                faults.cancel()
                mirror.kill_mirrors()

    async def _trouble(self, mirror: Operator) -> None:
        """The mirror of the link back dies, at any moment; mostly another one goes on."""
        while self.back_chance.random() < 0.7:
            await asyncio.sleep(self.back_chance.uniform(2.0, 15.0))
            await asyncio.to_thread(mirror.kill_mirrors)
            await asyncio.sleep(self.back_chance.uniform(0.0, 5.0))
            if self.back_chance.random() < 0.8:
                mirror.start_mirror()

    async def _live_and_lose(self, source: Source, operator: Operator, proxy: Any) -> dict[str, Any]:
        """-> what the failover said."""
        for kind in CONFIGS:
            await source.make_topic(kind)
        writing = asyncio.create_task(source.write_until_stopped())
        try:
            operator.start_mirror()
            await eventually(lambda: self._has_begun(source), "the mirror to bring something", BEGIN_S)
            with throttled(proxy) if self.result.mirror == "throttled" else _nothing():
                await self._live(source)
                if self.result.mirror == "dead":
                    operator.kill_mirrors()
                    await self._live(source)
                if not self.result.is_source_lost:
                    source.stopped = True
                    await writing
                    await self._stop_compaction(source)
                if isinstance(self.source, ThreeBrokers):
                    self.lagging = await lag(self.source, source, self.chance)
                if self.result.is_source_lost:
                    await asyncio.to_thread(self.source.kill9)
            if self.chance.random() < 0.5:
                operator.kill_mirrors()
            return await self._fail_over(operator)
        finally:
            source.stopped = True
            await asyncio.wait([writing])  # a transaction in a thread comes to its end, or finds nobody

    async def _stop_compaction(self, source: Source) -> None:
        """A source that lives would take records after the failover counted them, and before the judge does."""
        compacted = sorted(name for name, kind in source.kinds.items() if kind == "compacted")
        assert not await alter_topic_configs(source.cluster, dict.fromkeys(compacted, COMPACTED_LATER))
        for where in source.born_ms:
            if where.topic in compacted:
                records = await read_committed(source.cluster, where)
                self.uncompacted[where] = {record.offset for record in records}

    async def _fail_over(self, operator: Operator) -> dict[str, Any]:
        ran = await asyncio.to_thread(operator.farshore, *FAILOVER, "--link", operator.link.name, "--yes", "-o", "json")
        (self.folder / "said.txt").write_text(f"{ran.code}\n{ran.err}\n{ran.out}\n")
        # An Apache Kafka that lives refuses no writes: that it was left so is a finding, and the only one.
        stays_open = not self.result.is_source_lost and isinstance(self.source, KafkaServer)
        wanted = ExitCode.FINDINGS if stays_open else ExitCode.DONE
        assert ran.code == wanted, f"the failover ended with {ran.code}, not {wanted}: {ran.err[-900:]}"
        result: dict[str, Any] = json.loads(ran.out)
        assert result["verified"], ran.out[-900:]
        others = (
            "stranded",
            "late_commits",
            "source_readers",
            "left_partitions",
            "unanswered_groups",
            "unplanned_skips",
        )
        assert (result["is_source_open"], [name for name in others if result[name]]) == (stays_open, [])
        return result

    async def _live(self, source: Source) -> None:
        """For a while, in which topics and partitions are born, and where it is so the target takes no more of some."""
        happens = [self._is_born] * self.chance.randint(*EVENTS)
        happens += [self._stall] * (2 if self.result.mirror == "stalled" else 0)
        self.chance.shuffle(happens)
        pause_s = self.chance.uniform(*LIFE_S) / (len(happens) + 1)
        for happen in happens:
            await asyncio.sleep(pause_s)
            await happen(source)
        await asyncio.sleep(pause_s)

    async def _is_born(self, source: Source) -> None:
        if self.chance.random() < 0.4:
            await source.grow()
        else:
            await source.make_topic(self.chance.choice(sorted(CONFIGS)))

    async def _stall(self, source: Source) -> None:
        """The mirror has to leave a gap, and stops there."""
        async with Cluster(Site("west", self.target.bootstrap)) as west:
            there = sorted(source.kinds.keys() & (await list_topics(west)).keys())
            if there:
                limit = ("max.message.bytes", ConfigOperation.SET, STALLED_FROM_BYTES)
                assert not await alter_topic_configs(west, {self.chance.choice(there): [limit]})

    async def _has_begun(self, source: Source) -> bool:
        async with Cluster(Site("west", self.target.bootstrap)) as west:
            there = await list_topics(west)
            wheres = [where for where in source.born_ms if where.topic in there]
            return bool(wheres) and any((await log_end_offsets(west, wheres)).values())

    async def _judge(self, source: Source, said: dict[str, Any]) -> None:
        result = self.result
        async with (
            Cluster(Site("east", self.source.bootstrap)) as east,
            Cluster(Site("west", self.target.bootstrap)) as west,
        ):
            if self.lagging is not None:
                await are_shown(east, self.lagging)
            there = await list_topics(west)
            partitions = [
                TopicPartition(name, partition.partition)
                for name, topic in (await list_topics(east)).items()
                if name in source.kinds
                for partition in topic.partitions
            ]
            ends = await log_end_offsets(east, partitions)
            found = {}
            for where in partitions:
                at_west = where.partition < len(there[where.topic].partitions) if where.topic in there else False
                at_source = await self._read_source(east, where)
                gone = self.uncompacted.get(where, set()) - {record.offset for record in at_source}
                assert not gone, f"{where} was compacted between the failover and the judgement: {len(gone)} records"
                found[where] = OnDisk(
                    at_source,
                    ends[where],
                    await read_committed(west, where) if at_west else [],
                    source.offsets.get(where, {}),
                    source.born_ms.get(where, 0),
                )
        result.topics, result.partitions, result.written = len(source.kinds), len(partitions), source.written
        result.verdict = judge(said, found, is_source_lost=result.is_source_lost)
        result.problems += result.verdict.wrong

    async def _read_source(self, east: Cluster, where: TopicPartition) -> list[Record]:
        if not (self.result.is_source_lost and isinstance(self.source, KafkaServer)):
            return await read_committed(east, where)
        found = await read_settled(east, where)
        self.result.left_open += len(found.open_producers)
        return found.records


async def compact_soon(server: ClusterServer | ThreeBrokers) -> None:
    """Its brokers look twice a second for what they can compact."""
    change = AlterableConfig("log.cleaner.backoff.ms", ConfigOperation.SET, "500")
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(BROKER_RESOURCE, "", [change])])
    async with Cluster(Site("site", server.bootstrap)) as cluster:
        (answer,) = (await (await cluster.any_connection()).request(request)).responses
    assert not answer.error_code, answer


@contextmanager
def throttled(proxy: Any) -> Iterator[None]:
    """Each connection to the target takes so many bytes in a second."""
    proxy.add_toxic(name="slow", type="bandwidth", stream="upstream", attributes={"rate": THROTTLED_KB_PER_S})
    try:
        yield
    finally:
        proxy.destroy_toxic("slow")


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def totals(results: Iterable[LossResult]) -> str:
    """How often each certainty was stated, by what the mirror and the source did."""
    lines = []
    groups: dict[tuple[str, str], list[LossResult]] = {}
    for result in results:
        source = "lost" if result.is_source_lost else "alive"
        for key in ((result.mirror, source), ("all", "")):
            groups.setdefault(key, []).append(result)
    for (mirror, source), of in sorted(groups.items(), key=lambda item: (item[0][0] == "all", item[0])):
        said = sum((one.verdict.certainties for one in of), Counter[str]())
        ranges = [one.verdict.in_likely_range for one in of if one.verdict.in_likely_range is not None]
        lines.append(
            f"mirror {mirror:9} source {source:5} {len(of):4} seeds, {sum(not one.is_good for one in of)} failed; "
            f"partitions exact {said['exact']}, at_least {said['at_least']}, unknown {said['unknown']}, unknowable "
            f"{sum(one.verdict.unknowable for one in of)}; lost {sum(one.verdict.lost_offsets for one in of)} offsets, "
            f"stated {sum(one.verdict.stated_offsets for one in of)}, unclear "
            f"{sum(one.verdict.unclear_offsets for one in of)}; within the likely range {sum(ranges)} of "
            f"{len(ranges)}"
        )
    return "\n".join(lines)
