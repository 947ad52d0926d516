"""What the worker's tests share: workers that run while a test looks, and records to compare."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from broker.base.clock import Clock, SystemClock
from broker.client.cluster import Cluster
from broker.client.log import append, read_records
from broker.client.offsets import log_end_offsets, log_start_offsets
from broker.client.site import Site
from broker.client.topics import NewTopic, create_topics
from broker.wire.compression import Compression
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets.entries import Gap
from mirror.offsets.operations import resume_link
from mirror.offsets.state import read_entries
from mirror.worker.events import Event, EventSink
from mirror.worker.limits import WorkerLimits
from mirror.worker.service import WorkerSettings, run_links
from tests.polling import pause_s

DEADLINE_S = 180.0
QUICK = WorkerLimits(
    checkpoint_interval_ms=200,
    topic_refresh_interval_ms=500,
    config_sync_interval_ms=500,
    group_sync_interval_ms=500,
    heartbeat_interval_ms=500,
)
DRIFT_STAYS = replace(QUICK, config_sync_interval_ms=600_000, config_apply_after_ms=600_000)
"""A config that a test gives a target topic: the second pass over configs would take it back as drift."""


@dataclass
class Later(SystemClock):
    """The machine's clock, so much later; below zero: what a worker with it stamps is as if it had run so long ago."""

    by_ms: int = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.by_ms


LONG_AGO = Later(-2 * 60_000)
"""Of a worker that ended so long before the test looks that nobody takes it for living."""
BEFORE = Later(-60_000)
"""Also long ago, and long after LONG_AGO."""


@dataclass
class Told:
    """The events of the links, as they came."""

    events: list[tuple[str, Event, dict[str, object]]] = field(default_factory=list)
    _more: asyncio.Event = field(default_factory=asyncio.Event)

    def sink(self, link: str) -> EventSink:
        def tell(event: Event, /, **fields: object) -> None:
            self.events.append((link, event, fields))
            self._more.set()

        return tell

    def count(self, event: Event, link: str | None = None) -> int:
        return sum(seen is event and link in (None, name) for name, seen, _ in self.events)

    async def wait_for(self, event: Event, count: int = 1) -> list[dict[str, object]]:
        """Wait until the event was told `count` times -> the fields of each. TimeoutError when that takes too long."""
        async with asyncio.timeout(DEADLINE_S):
            while len(self.of(event)) < count:
                self._more.clear()
                await self._more.wait()
        return self.of(event)

    def of(self, event: Event) -> list[dict[str, object]]:
        return [fields for _, seen, fields in self.events if seen is event]


@asynccontextmanager
async def running(
    *links: Link, limits: WorkerLimits = QUICK, told: Told | None = None, clock: Clock | None = None
) -> AsyncIterator[Told]:
    """Run a worker for the links while the context is open; a worker that ends by itself fails the test."""
    told = told or Told()
    async with asyncio.TaskGroup() as tasks:
        worker = tasks.create_task(run_links(links, WorkerSettings(limits, clock or SystemClock(), told.sink)))
        try:
            yield told
        finally:
            worker.cancel()


def link_between(source: str, target: str, topics: Sequence[str], *, name: str = "", **more: Any) -> Link:
    """A link from bootstrap to bootstrap, with a name of its own."""
    name = name or f"east-west-{uuid.uuid4().hex[:8]}"
    return Link(name, Site("east", source), Site("west", target), tuple(topics), **more)


async def accept_all(link: Link, target: Cluster, operation_id: str) -> tuple[Gap, ...]:
    """Accept every gap that is open."""
    return await resume_link(link, target, operation_id, tuple((await read_entries(link, target)).open_gaps().values()))


async def eventually(condition: Callable[[], Awaitable[bool]], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Ask a cluster until it says yes. AssertionError when the deadline passes."""
    try:
        async with asyncio.timeout(deadline_s):
            began = time.monotonic()
            while not await condition():
                await asyncio.sleep(pause_s(time.monotonic() - began))
                began = time.monotonic()
    except TimeoutError:
        raise AssertionError(f"waited {deadline_s:.0f} s for {what}") from None


async def make_topic(cluster: Cluster, name: str, partitions: int = 1, **configs: str) -> None:
    """Without retention by time, unless asked for: the tests' records are old."""
    named = {"retention.ms": "-1"} | {key.replace("_", "."): value for key, value in configs.items()}
    failures = await create_topics(cluster, [NewTopic(name, partitions, 1, named)])
    assert not failures, failures


async def write(
    cluster: Cluster, where: TopicPartition, records: Iterable[Record], codec: Compression = Compression.NONE
) -> int:
    """Append the records as one batch -> the offset of the first."""
    return await append(cluster, where, encode_batch(list(records), compression=codec))


def some_records(start: int, count: int, timestamp_ms: int = 1_700_000_000_000) -> list[Record]:
    """Records of all shapes: null and empty keys and values, headers with null values, times out of order."""
    shapes: list[tuple[bytes | None, bytes | None]] = [(b"k%d", b"v%d"), (None, b"v%d"), (b"k%d", None), (b"", b"")]
    records = []
    for at in range(start, start + count):
        key, value = shapes[at % len(shapes)]
        headers = (("n", b"%d" % at), ("null", None), ("n", b"")) if at % 3 == 0 else ()
        records.append(
            Record(
                at - start,
                timestamp_ms + at * 7 - (at % 5) * 1000,
                key and key.replace(b"%d", b"%d" % at),
                value and value.replace(b"%d", b"%d" % at) * (at % 20 + 1),
                headers,
            )
        )
    return records


async def read_all(cluster: Cluster, where: TopicPartition) -> list[Record]:
    """Every record of a partition, read uncommitted."""
    start = (await log_start_offsets(cluster, [where]))[where]
    end = (await log_end_offsets(cluster, [where]))[where]
    return [record async for record in read_records(cluster, where, start, end)]


def contents(records: Iterable[Record]) -> list[tuple[object, ...]]:
    """What a mirror must keep of each record: everything but the offset."""
    return [tuple(record)[1:] for record in records]


async def wait_for_records(cluster: Cluster, where: TopicPartition, count: int) -> list[Record]:
    """Read until `count` records are there -> the records (more, if there are more)."""
    found: list[Record] = []

    async def there() -> bool:
        if where.topic not in (await cluster.metadata([where.topic])).topics:
            return False
        found[:] = await read_all(cluster, where)
        return len(found) >= count

    try:
        await eventually(there, f"{count} records in {where}")
    except AssertionError as error:
        raise AssertionError(f"{error}, {len(found)} are there") from None
    return found
