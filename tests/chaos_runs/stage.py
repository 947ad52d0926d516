"""The stage of a run of hands: two clusters, a mirror, and topics that are written to meanwhile."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.log import append
from broker.client.site import Site
from broker.client.topics import NewTopic, create_topics, delete_topics, list_topics
from broker.wire.compression import Compression
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from mirror.outlook import GapOutlook
from tests.chaos_runs.clusters import ClusterServer
from tests.chaos_runs.looking import content_of
from tests.chaos_runs.mirror_process import Operator
from tests.chaos_runs.oracle import Content
from tests.mirror.harness import read_all

BATCH_RECORDS_MAX = 15
CLOCK_STEP_MS = 37
WRITE_TIMEOUT_S = 20.0
TOPIC_CONFIGS = {"segment.ms": "700", "retention.ms": "-1"}
"""Segments roll soon, so that retention finds some."""


@dataclass(frozen=True)
class Sent:
    """A record that the source acknowledged: where, in which life of the topic, and what it held."""

    life: int
    offset: int
    content: Content


@dataclass
class Topic:
    """One topic with one partition, what happens to it, and what is known of its records."""

    name: str
    action: str
    seed: str = ""
    """Of all that is random about it."""
    sent: list[Sent] = field(default_factory=list)
    foreign: set[Content] = field(default_factory=set)
    """What somebody else wrote into the target."""
    mirrored_before: list[Content] = field(default_factory=list)
    """What the target had when the action began."""
    cut_away: set[Content] = field(default_factory=set)
    """What a person cut from the start of the target."""
    moved: list[Content] = field(default_factory=list)
    """What a person copied to another name at the target."""
    outlooks: list[GapOutlook] = field(default_factory=list)
    """What was shown before each consent."""
    consents: int = 0
    life: int = 0
    count: int = 0
    clock_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    """The time of its next records."""
    is_gone: bool = False
    """The source has it no more."""
    writable: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.chance = random.Random(f"{self.seed}-{self.name}")
        self.writer_chance = random.Random(f"writer-{self.seed}-{self.name}")

    @property
    def where(self) -> TopicPartition:
        return TopicPartition(self.name, 0)


@dataclass
class Stage:
    """What the actions work on."""

    source: ClusterServer
    target: ClusterServer
    operator: Operator
    topics: list[Topic]
    folder: Path
    chance: random.Random
    """Of what happens to all of it; what one topic suffers has its own, and so has its writer."""
    notes: list[str] = field(default_factory=list)

    def site(self, server: ClusterServer) -> Site:
        return Site("east" if server is self.source else "west", server.bootstrap)

    async def read(self, server: ClusterServer, topic: Topic) -> list[Record]:
        """All records of the topic there, none where there is no such topic."""
        async with Cluster(self.site(server)) as cluster:
            if topic.name not in (await cluster.metadata([topic.name])).topics:
                return []
            return await read_all(cluster, topic.where)

    async def make(self, *topics: Topic) -> None:
        """Create them at the source. AssertionError when that fails."""
        new = [NewTopic(topic.name, 1, 1, TOPIC_CONFIGS) for topic in topics]
        async with Cluster(self.site(self.source)) as cluster:
            failures = await create_topics(cluster, new)
        assert not failures, failures

    async def remove_topics(self, prefix: str) -> None:
        """Delete at both sites what begins so: the seeds to come need not carry it along."""
        for server in (self.source, self.target):
            async with Cluster(self.site(server)) as cluster:
                names = [name for name in await list_topics(cluster) if name.startswith(prefix)]
                await delete_topics(cluster, names)

    def batch(self, topic: Topic, clock_ms: int, word: str = "r") -> list[Record]:
        """New records, each with a content of its own."""
        records = []
        for number in range(topic.writer_chance.randint(1, BATCH_RECORDS_MAX)):
            topic.count += 1
            padding = "x" * topic.writer_chance.randrange(200)
            value = f"{word}-{topic.name}-{topic.life}-{topic.count}-{padding}".encode()
            records.append(Record(number, clock_ms + number, b"k%d" % (topic.count % 9), value, ()))
        return records

    async def write(self, cluster: Cluster, topic: Topic, clock_ms: int) -> None:
        """One batch at the source; one that is not acknowledged is nobody's promise."""
        records = self.batch(topic, clock_ms)
        codec = topic.writer_chance.choice(list(Compression))
        base = await append(cluster, topic.where, encode_batch(records, compression=codec))
        topic.sent += [Sent(topic.life, base + at, content_of(record)) for at, record in enumerate(records)]

    async def write_all(self, stop: asyncio.Event, pause_s: float) -> None:
        """Write to random topics until told to stop; a source that is away is waited for."""
        chance = random.Random(f"writer-{self.operator.link.name}")
        while not stop.is_set():
            try:
                async with Cluster(self.site(self.source)) as cluster:
                    while not stop.is_set():
                        topic = chance.choice(self.topics)
                        if not topic.writable.locked():  # else somebody is at work on it: the others are not to wait
                            await self._write_one(cluster, topic)
                        await asyncio.sleep(pause_s * chance.random() * 2)
            except (ClientError, TimeoutError):
                await asyncio.sleep(0.2)

    async def _write_one(self, cluster: Cluster, topic: Topic) -> None:
        async with topic.writable, asyncio.timeout(WRITE_TIMEOUT_S):
            if not topic.is_gone:
                topic.clock_ms += CLOCK_STEP_MS
                await self.write(cluster, topic, topic.clock_ms)

    @asynccontextmanager
    async def writing(self, pause_s: float) -> AsyncIterator[None]:
        """Write while the context is open; leaving it waits for the last answer."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.write_all(stop, pause_s))
            try:
                yield
            finally:
                stop.set()

    async def note_mirrored(self, topics: Sequence[Topic]) -> None:
        """Before an action: what the target has must be there in the end, if nothing happens to the target."""
        for topic in topics:
            topic.mirrored_before = [content_of(record) for record in await self.read(self.target, topic)]
