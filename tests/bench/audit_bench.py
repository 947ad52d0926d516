"""What an audit costs beside a plain `count()` of Spark over the same topics, by the same connector, in one session.

Both copies are topics of one cluster, with the same records at the same offsets, in the same batches. The map has one
interval, or is cut into many: each record has to find its own among them, whatever they say. Everything is read as
often as there are rounds, in turns, after one round that warms Java up. What opens no batch is also given compressed
ones.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from broker.client.cluster import Cluster
from broker.client.log import append
from broker.client.site import Site
from broker.client.topics import NewTopic, create_topics
from broker.wire.compression import Compression
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from monitoring.audit.job import AuditJob, run_job
from monitoring.audit.model import FrozenLink, FrozenPartition, FrozenSite, Side, Span, Step
from monitoring.audit.outcome import AuditResult
from monitoring.audit.phases import Sites, digest_site
from monitoring.audit.ranges import plan
from monitoring.audit.reader import read_records, spans_of
from monitoring.audit.session import SparkSettings, spark_session
from monitoring.audit.tables import write_tables
from monitoring.audit.unopened import digest_batches
from tests.bench.clusters import ClusterKind, running_cluster
from tests.bench.data import PARTITIONS, RECORD_BYTES
from tests.bench.measure import family_cpu_seconds
from tests.conftest import SPARK_JARS

SOURCE, TARGET = "flights", "east.flights"
INTERVALS = 100_000
BATCH_RECORDS = 1_000
CONFIGS = {"retention.ms": "-1"}
START_MS = 1_357_000_000_000
ZSTD = "-zstd"
"""What the names of topics with compressed batches end with."""
COUNT, COUNT_ZSTD = "count()", "count() of zstd"
BATCHES, BATCHES_ZSTD = "batches of the source", "batches of the source, of zstd"
RECORDS_KINDS = (
    COUNT,
    "digest of the source",
    "digest of the target, 1 interval",
    f"digest of the target, {INTERVALS:,} intervals",
    "whole audit",
    f"whole audit, {INTERVALS:,} intervals",
)
BATCHES_KINDS = (
    COUNT,
    BATCHES,
    "whole audit by batches",
    COUNT_ZSTD,
    BATCHES_ZSTD,
    "whole audit by batches, of zstd",
)
PARTS = {"records": RECORDS_KINDS, "batches": BATCHES_KINDS}
KINDS = tuple(dict.fromkeys([*RECORDS_KINDS, *BATCHES_KINDS]))


@dataclass
class Reading:
    """Seconds of wall and of Spark's processor time, in each round."""

    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)


@dataclass
class AuditRuns:
    """By kind; `records` of one site. `digest_ratio`: bytes of digests per audited byte."""

    records: int
    readings: dict[str, Reading]
    digest_ratio: float = 0.0
    digest_bytes: int = 0

    def over_count(self, kind: str, of: Callable[[Reading], Sequence[float]]) -> float:
        """Medians; a whole audit reads two sites, and is held against two counts."""
        sites = 2 if kind.startswith("whole") else 1
        counted = self.readings[COUNT_ZSTD if kind.endswith("of zstd") else COUNT]
        return statistics.median(of(self.readings[kind])) / statistics.median(of(counted)) / sites


def bench_audit(
    directory: Path,
    kind: ClusterKind,
    payload_bytes: int,
    rounds: int,
    values: Sequence[bytes],
    say: Callable[[str], None],
    only: Collection[str] = (),
) -> AuditRuns:
    """Of these of PARTS, or of all. Raises ServerFailed, and what Spark and the client raise."""
    each = payload_bytes // RECORD_BYTES // PARTITIONS // BATCH_RECORDS * BATCH_RECORDS
    kinds = [kind for part, kinds in PARTS.items() if not only or part in only for kind in kinds]
    jars = tuple(sorted(str(jar) for jar in SPARK_JARS.glob("*.jar")))
    directory.mkdir(parents=True)
    with running_cluster(kind, directory / "cluster") as cluster:
        say(f"writing {4 * PARTITIONS * each:,} records")
        asyncio.run(_write(cluster.bootstrap, each, values))
        with spark_session(SparkSettings("local[*]", jars, directory / "spark.log")) as spark:
            return _measure(spark, directory, cluster.bootstrap, each, rounds, say, kinds)


def _measure(
    spark: Any,
    directory: Path,
    bootstrap: str,
    each: int,
    rounds: int,
    say: Callable[[str], None],
    kinds: Collection[str],
) -> AuditRuns:
    found: list[AuditResult] = []
    deeds = {kind: deed for kind, deed in _deeds(spark, directory, bootstrap, each, found).items() if kind in kinds}
    runs = AuditRuns(PARTITIONS * each, {kind: Reading() for kind in deeds})
    java = spark.sparkContext._gateway.proc.pid
    for nth in range(rounds + 1):
        for kind, deed in deeds.items():
            say(f"round {nth} of {rounds}: {kind}")
            started_s, cpu_s = time.monotonic(), family_cpu_seconds(java)
            deed()
            if nth:
                runs.readings[kind].wall_s.append(time.monotonic() - started_s)
                runs.readings[kind].cpu_s.append(family_cpu_seconds(java) - cpu_s)
    last = next((each for each in reversed(found) if not each.records_unopened), found[-1])
    runs.digest_bytes = last.digest_bytes
    runs.digest_ratio = runs.digest_bytes / last.audited_bytes
    return runs


def _deeds(
    spark: Any, directory: Path, bootstrap: str, each: int, found: list[AuditResult]
) -> dict[str, Callable[[], Any]]:
    """What is measured, by KINDS; whole audits add what they say to `found`."""
    plain, cut = frozen_link(bootstrap, each, PARTITIONS), frozen_link(bootstrap, each, INTERVALS)
    packed = frozen_link(bootstrap, each, PARTITIONS, ZSTD)

    def sites(frozen: FrozenLink) -> Sites:
        return Sites(spark, frozen, plan(frozen)[0])

    def count(frozen: FrozenLink) -> None:
        partitions = tuple(plan(frozen)[0])
        name = partitions[0].topic
        read = read_records(spark, frozen.source, spans_of(partitions, Side.SOURCE), {name: name})
        assert read.count() == PARTITIONS * each

    def batches(frozen: FrozenLink) -> None:
        rows = digest_batches(sites(frozen), Side.SOURCE).collect()
        assert sum(row["records"] for row in rows if not row["unclear"]) == PARTITIONS * each

    def whole(frozen: FrozenLink, *, may_stay_closed: bool = False) -> None:
        job = AuditJob("bench", frozen, lambda: START_MS, lambda _: _starts(), may_stay_closed=may_stay_closed)
        found.append(run_job(spark, job, lambda tables: write_tables(tables, directory, "bench")))
        assert found[-1].verdict.is_equal
        assert found[-1].records_unopened == (2 * PARTITIONS * each if may_stay_closed else 0)

    return dict(
        zip(
            KINDS,
            (
                lambda: count(plain),
                lambda: digest_site(sites(plain), Side.SOURCE),
                lambda: digest_site(sites(plain), Side.TARGET),
                lambda: digest_site(sites(cut), Side.TARGET),
                lambda: whole(plain),
                lambda: whole(cut),
                lambda: batches(plain),
                lambda: whole(plain, may_stay_closed=True),
                lambda: count(packed),
                lambda: batches(packed),
                lambda: whole(packed, may_stay_closed=True),
            ),
            strict=True,
        )
    )


def _starts() -> dict[tuple[Side, str, int], int]:
    places = ((Side.SOURCE, SOURCE), (Side.TARGET, TARGET))
    return {
        (side, topic + kind, partition): 0
        for side, topic in places
        for kind in ("", ZSTD)
        for partition in range(PARTITIONS)
    }


def frozen_link(bootstrap: str, each: int, intervals: int, kind: str = "") -> FrozenLink:
    """Both topics of a kind with `each` records a partition, and a map of so many intervals in all."""
    site = FrozenSite("east", bootstrap, None)
    length = max(1, -(-each * PARTITIONS // intervals))
    steps = tuple(Step(start, start) for start in range(0, each, length))
    whole = Span(0, each)
    return FrozenLink(
        "east-west",
        site,
        replace(site, name="west"),
        START_MS,
        tuple(
            FrozenPartition(SOURCE + kind, number, TARGET + kind, whole, whole, steps, (each, each))
            for number in range(PARTITIONS)
        ),
    )


async def _write(bootstrap: str, each: int, values: Sequence[bytes]) -> None:
    async with Cluster(Site("east", bootstrap)) as cluster:
        for kind, codec in (("", Compression.NONE), (ZSTD, Compression.ZSTD)):
            names = (SOURCE + kind, TARGET + kind)
            new = [NewTopic(name, partitions=PARTITIONS, configs=CONFIGS) for name in names]
            assert not await create_topics(cluster, new)
            async with asyncio.TaskGroup() as group:
                for partition in range(PARTITIONS):
                    batches = _batches(each, itertools.cycle(values), codec)
                    group.create_task(_append(cluster, names, partition, batches))


async def _append(cluster: Cluster, names: Sequence[str], partition: int, batches: Iterator[bytearray]) -> None:
    for batch in batches:
        for name in names:
            await append(cluster, TopicPartition(name, partition), batch)


def _batches(each: int, values: Iterator[bytes], codec: Compression) -> Iterator[bytearray]:
    for start in range(0, each, BATCH_RECORDS):
        yield encode_batch(
            [
                Record(nth, START_MS + start + nth, b"key-%d" % (start + nth), next(values), ())
                for nth in range(BATCH_RECORDS)
            ],
            compression=codec,
        )
