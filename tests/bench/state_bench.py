"""How long a link is opened, and an offset translated, where its state is large: many partitions, or many intervals.

The states are made: by a first opening, and then as a worker would have left them after the cleaner, with the newest
entries not packed yet. The logs are real, with records that are all alike, so that a start has copies to compare.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple, TypeAlias

from broker.base.garbage import passing_over_what_stays, without_looks
from broker.client.cluster import Cluster
from broker.client.log import append
from broker.client.site import Site
from broker.client.topics import NewTopic, create_topics
from broker.wire.compression import Compression
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from mirror.coordinator.embedded import Unconditional
from mirror.link import Link
from mirror.offsets.entries import Block, Checkpoint, Entry, LastRecord
from mirror.offsets.intervals import End, Interval
from mirror.offsets.limits import PAGE_INTERVALS_MAX
from mirror.offsets.pages import pack_page
from mirror.offsets.state import load_partial_state, read_entries
from mirror.offsets.state_writer import StateLog
from mirror.offsets.taking_over import claim_link
from mirror.worker.holds import Attempts, Holds
from mirror.worker.limits import WorkerLimits
from mirror.worker.origins import Passage
from mirror.worker.startup import Restarts, open_link
from tests.bench.clusters import running_cluster
from tests.bench.joining_bench import BORN, Stood, stood_still
from tests.bench.measure import ROOT
from tests.bench.mirror_bench import mirror_config

TOPIC = "flights"
TOPICS, PARTITIONS_EACH = 100, 100
INTERVALS = 10_000_000
PACKED_INTERVALS = 40
"""Of each partition where there are many."""
MARKERS = 1
"""What the first opening leaves at the beginning of each target partition."""
OPEN_BLOCKS = 4
"""Small entries of a partition that are not packed yet: half of what there may be."""
BATCH_RECORDS = 10_000

Clusters: TypeAlias = tuple[Cluster, Cluster]
Make: TypeAlias = Callable[[Link, Clusters], Awaitable[None]]


class Opened(NamedTuple):
    """Medians, in seconds. `reading_s` is the state alone, `opening_s` all that a start does before it fetches, and
    `opening_cpu_s` what the worker computes for that.

    `translating_s` is with connections that are there, `command_s` the whole of `farshore offsets translate`.
    """

    what: str
    reading_s: float
    translating_s: float
    command_s: float
    opening_s: float
    opening_cpu_s: float


@dataclass(slots=True)
class StateResults:
    opened: list[Opened] = field(default_factory=list)
    stood: list[Stood] = field(default_factory=list)
    """Where there are many partitions."""


def bench_state(directory: Path, rounds: int, say: Callable[[str], None]) -> StateResults:
    results = StateResults()
    one, many = [TOPIC], [f"{TOPIC}-{number}" for number in range(TOPICS)]
    for what, topics, make in (
        (f"{INTERVALS:,} intervals in one partition", one, _make_intervals),
        (f"{TOPICS * PARTITIONS_EACH:,} partitions", many, _make_partitions),
    ):
        folder = directory / topics[0]
        with running_cluster("farshore", folder / "east") as east, running_cluster("farshore", folder / "west") as west:
            link = Link("east-west", Site("east", east.bootstrap), Site("west", west.bootstrap), tuple(topics))
            config = folder / "farshore.toml"
            config.write_text(mirror_config(east.bootstrap, west.bootstrap, '", "'.join(topics)))
            say(f"making {what}")
            asyncio.run(_with_clusters(link, lambda clusters, link=link, make=make: make(link, clusters)))  # type: ignore[misc]
            say(f"measuring {what}")
            results.opened.append(_measured(what, link, config, rounds))
            if topics is many:
                say(f"partitions join {what}")
                with passing_over_what_stays(time.monotonic):
                    wider = replace(link, topics=(*topics, BORN))
                    results.stood = asyncio.run(stood_still(wider, topics[0], PARTITIONS_EACH))
    return results


def _measured(what: str, link: Link, config: Path, rounds: int) -> Opened:
    reading, translating, command, opening, computing = [], [], [], [], []
    for _ in range(rounds):
        reading.append(asyncio.run(_with_clusters(link, lambda clusters: read_entries(link, clusters[1]))))
        translating.append(asyncio.run(_with_clusters(link, lambda clusters: _translate(link, clusters))))
        command.append(_command_s(link, config))
        with passing_over_what_stays(time.monotonic):  # as a worker's process does
            before_s = time.process_time()
            opening.append(asyncio.run(_with_clusters(link, lambda clusters: _open(link, clusters))))
            computing.append(time.process_time() - before_s)
    return Opened(what, *map(statistics.median, (reading, translating, command, opening, computing)))


async def _with_clusters(link: Link, measured: Callable[[Clusters], Awaitable[object]]) -> float:
    """Seconds, without what connecting takes."""
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        began = time.monotonic()
        await measured((source, target))
        return time.monotonic() - began


async def _translate(link: Link, clusters: Clusters) -> None:
    where = (link.topics[0], 0)
    state = await load_partial_state(link, clusters[1], only={where})
    assert state.map.to_target(*where, 0) is not None


def _command_s(link: Link, config: Path) -> float:
    began = time.monotonic()
    named = ["--link", link.name, "--topic", link.topics[0], "--partition", "0", "--offset", "0"]
    command = [sys.executable, "-m", "deploy.cli", "--config", str(config), "offsets", "translate", *named]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


async def _open(link: Link, clusters: Clusters) -> None:
    """As a worker's session does."""
    source, target = clusters
    limits = WorkerLimits()
    holds = Holds(Attempts(limits, target.clock), target.clock)
    passage = Passage(link, source, target)

    def tell(_event: object, /, **_fields: object) -> None:
        pass

    patience_ms, permit = limits.compare_patience_ms, Unconditional()
    with without_looks():
        opened = await open_link(link, source, target, passage, tell, Restarts(), holds, patience_ms, permit)
    stopped = [replicator.gap for replicator in opened.replicators.values() if replicator.gap is not None]
    assert not stopped, stopped[0]
    assert not holds.current, next(iter(holds.current.values()))


async def _make_partitions(link: Link, clusters: Clusters) -> None:
    seeded = random.Random(9)
    for where, log in await _first_opening(link, clusters, PARTITIONS_EACH):
        await _fill(link, clusters, where, log, _intervals(seeded, PACKED_INTERVALS))


async def _make_intervals(link: Link, clusters: Clusters) -> None:
    ((where, log),) = await _first_opening(link, clusters, 1)
    await _fill(link, clusters, where, log, _intervals(random.Random(9), INTERVALS))


def _intervals(seeded: random.Random, count: int) -> list[Interval]:
    """Transactions of one or two records, each with a marker behind it."""
    records = seeded.choices((1, 1, 1, 2), k=count - 1)
    first = Interval(0, MARKERS)
    return list(accumulate(records, lambda at, more: Interval(at[0] + more + 1, at[1] + more), initial=first))


async def _first_opening(link: Link, clusters: Clusters, partitions: int) -> list[tuple[Checkpoint, StateLog]]:
    """What the link's state says of each partition then, and who may write there now."""
    source, target = clusters
    failures = await create_topics(source, [NewTopic(topic, partitions, 1) for topic in link.topics])
    assert not failures, failures
    await _open(link, clusters)
    log = (await claim_link(target, link, "bench")).log
    entries = await read_entries(link, target)
    assert entries.owner is not None
    writer = entries.owner.writer
    return [(replace(known, writer=writer), log) for known in entries.checkpoints.values()]


async def _fill(
    link: Link, clusters: Clusters, known: Checkpoint, log: StateLog, intervals: Sequence[Interval]
) -> None:
    """The logs and the state as if the link had mirrored this."""
    source, target = clusters
    topic, partition, last = known.topic, known.partition, intervals[-1]
    there = TopicPartition(link.target_topic(topic), partition)
    await _append_records(source, TopicPartition(topic, partition), last.source_start + 1)
    await _append_records(target, there, last.target_start - MARKERS)
    producer_id, epoch = known.writer
    last_batch = encode_batch(_alike(1), producer_id=producer_id, producer_epoch=epoch, base_sequence=0)
    landed = await append(target, there, last_batch)
    assert landed == last.target_start, "the last record lies where the map says"
    packed = len(intervals) - OPEN_BLOCKS
    entries: list[Entry] = []
    for at in range(0, packed, PAGE_INTERVALS_MAX):
        some = intervals[at : min(at + PAGE_INTERVALS_MAX, packed)]
        to = intervals[at + len(some)].source_start
        entries.append(pack_page(topic, partition, some, to, [producer_id]))
    entries += [Block(topic, partition, known.writer, 0, (interval,)) for interval in intervals[packed:]]
    end = End(last.source_start + 1, last.target_start + 1)
    last_record = LastRecord(last.source_start, last.target_start, producer_id)
    entries.append(replace(known, end=end, position=end.source_next, sequence=1, last=last_record, leader_epochs=()))
    await log.append(entries)


async def _append_records(cluster: Cluster, where: TopicPartition, count: int) -> None:
    if count >= BATCH_RECORDS:
        whole = encode_batch(_alike(BATCH_RECORDS), compression=Compression.ZSTD)
        for _ in range(count // BATCH_RECORDS):
            await append(cluster, where, whole)
    if count % BATCH_RECORDS:
        await append(cluster, where, encode_batch(_alike(count % BATCH_RECORDS), compression=Compression.ZSTD))


def _alike(count: int) -> list[Record]:
    return [Record(at, 1_700_000_000_000, None, b"a record") for at in range(count)]
