"""One audit from end to end, on a link that was frozen before: two phases, a second look, and what is said of it."""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from monitoring import limits
from monitoring.audit import diff
from monitoring.audit.compacted import compare_compacted, read_to_end
from monitoring.audit.missing_rights import HINT_TO_GIVE
from monitoring.audit.model import AuditVerdict, ComparablePartition, FrozenLink, Kind, NotCompared, Place, Side
from monitoring.audit.outcome import AuditResult, PlotBar, RangeResult, RecordDifference
from monitoring.audit.phases import Sites, compare_sites, open_ranges, suspects_of
from monitoring.audit.ranges import plan
from monitoring.audit.reasons import Reason
from monitoring.audit.results import partition_results
from monitoring.audit.rounds import LogStarts, Round, read_until_settled
from monitoring.audit.sample import Chosen, Sample, choose, not_sampled, sampled
from monitoring.audit.session import cause_of, is_refusal
from monitoring.audit.tables import Tables
from monitoring.audit.unopened import digest_both
from monitoring.errors import ReadRefused, SparkFailed

# Says which step begins: shown as progress by a command, collected by a test.
Report = Callable[[str], None]
Store = Callable[[Tables], int]


@dataclass(frozen=True, slots=True)
class AuditJob:
    """What to compare; `clock_ms` gives milliseconds since 1970. Of what is sampled a share of the ranges.

    `look` says where the logs of partitions begin now, at both sites. `may_stay_closed` as in `Sites`.
    """

    run_id: str
    frozen: FrozenLink
    clock_ms: Callable[[], int]
    look: Callable[[Sequence[ComparablePartition]], LogStarts]
    report: Report = lambda _: None
    sample: Sample | None = None
    may_stay_closed: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """What one reading found: DataFrames of both sites' digests, all ranges and the records that differ, the ranges
    that do, and how many records of compacted partitions only one site has."""

    digests: Mapping[Side, Any]
    ranges: Any
    suspects: list[Any]
    differences: Any
    excused: Sequence[Any] = ()


def run_job(spark: Any, job: AuditJob, store: Store = lambda _: 0) -> AuditResult:
    """Digest both sites, compare, name what differs. `store` gets what was found, and says how many bytes digests take.

    Raises NothingToCompare when no partition can be compared, SparkFailed when Spark could not read a site, and what
    `job.look` raises.
    """
    frozen, chosen = scope_of(job)

    def read(partitions: Sequence[ComparablePartition]) -> Found:
        with spark_errors(frozen):
            sites = Sites(
                spark, frozen, partitions, chosen, is_searched=chosen is None, may_stay_closed=job.may_stay_closed
            )
            return read_both(sites, job.report)

    settled, rounds = read_until_settled(frozen, read, job.look, job.report)
    return conclude(spark, replace(job, frozen=settled), rounds, chosen, store)


def scope_of(job: AuditJob) -> tuple[FrozenLink, Chosen | None]:
    """What the job compares, and which ranges of it; None: all. Raises NothingToCompare."""
    if job.sample is None:
        plan(job.frozen)
        return job.frozen, None
    # No range of a compacted partition can be judged without the rest of it.
    partitions = tuple(
        replace(item, left_out=item.left_out or Reason.NOT_SAMPLED) if item.compacted else item
        for item in job.frozen.partitions
    )
    frozen = replace(job.frozen, partitions=partitions)
    return frozen, choose(plan(frozen)[0], job.sample)


def conclude(
    spark: Any, job: AuditJob, rounds: Sequence[Round[Found]], chosen: Chosen | None, store: Store = lambda _: 0
) -> AuditResult:
    """What is said of what the rounds found; the job's link is as they hold for it."""
    frozen = job.frozen
    partitions, not_compared = plan(frozen)
    not_compared += _dropped(rounds)
    if chosen is not None:
        not_compared += not_sampled(partitions, chosen)
    with spark_errors(frozen):
        sites = {Side.SOURCE: frozen.source.name, Side.TARGET: frozen.target.name}
        tables = Tables(
            {name: _settled(rounds, [done.found.digests[side] for done in rounds]) for side, name in sites.items()},
            _settled(rounds, [done.found.ranges for done in rounds]),
            _settled(rounds, [done.found.differences for done in rounds]),
        )
        totals = _totals(tables.ranges)
        digest_bytes = store(tables)
        bars, plot_step = _bars(tables.ranges)
        named = _named(tables.differences)
        listed = _listed(tables.differences) if named else []
    suspects = [row for done in rounds for row in done.found.suspects if _place(row) in done.partitions]
    suspects.sort(key=lambda row: (row["verdict"], row["topic"], row["partition"], row["range_start"]))
    found: dict[Kind, int] = defaultdict(int)
    for kinds in named.values():
        for kind, number in kinds.items():
            found[kind] += number
    results = partition_results(frozen, partitions, not_compared, totals, named)
    differing = sum(item.ranges_differing + item.ranges_moved for item in results)
    return AuditResult(
        job.run_id,
        frozen,
        job.clock_ms(),
        results,
        tuple(not_compared),
        tuple(_range(row) for row in suspects[: limits.AUDIT_RANGES_LISTED]),
        tuple(listed),
        dict(found),
        bars,
        plot_step,
        {"spark": spark.version, "python": platform.python_version()},
        digest_bytes,
        None if job.sample is None else sampled(job.sample, partitions, chosen or {}, differing),
    )


def read_both(sites: Sites, report: Report) -> Found:
    """One reading of both sites: phase one at each, phase two, and the ranges that differ."""
    plain = replace(sites, partitions=[item for item in sites.partitions if not item.compacted])
    digests = digest_both(plain, report)
    compacted = replace(sites, partitions=[item for item in sites.partitions if item.compacted])
    found = None
    if compacted.partitions:
        report("comparing the latest values of keys of compacted topics")
        found = compare_compacted(sites.spark, partial(read_to_end, compacted), report)
        digests = {side: diff.union([digests[side], found.digests[side]]) for side in Side}
    ranges = compare_sites(digests)
    suspects = suspects_of(ranges)
    report(f"opening {len(suspects)} differing ranges" if suspects else "no range differs")
    places = {(item.topic, item.partition) for item in plain.partitions}
    differences = open_ranges(plain, [row for row in suspects if _place(row) in places])
    if found is None:
        return Found(digests, ranges, suspects, differences)
    return Found(digests, ranges, suspects, diff.union([differences, found.differences]), found.excused)


def _dropped(rounds: Sequence[Round[Found]]) -> list[NotCompared]:
    """What one site has dropped of compacted partitions, and the other has not."""
    told = []
    for done in rounds:
        for row in done.found.excused:
            if (item := done.partitions.get(_place(row))) is not None:
                side = Side(row["side"])
                span = item.source if side is Side.SOURCE else item.target
                told.append(NotCompared(*_place(row), side, span, Reason.COMPACTED, row["count"]))
    return sorted(told, key=lambda one: (one.topic, one.partition, one.side))


def _settled(rounds: Sequence[Round[Found]], frames: Sequence[Any]) -> Any:
    """The rows of all rounds' frames, each of the partitions that its round holds for."""
    kept = []
    for done, frame in zip(rounds, frames, strict=True):
        places = [f"{topic}/{partition}" for topic, partition in done.partitions]
        kept.append(frame.where(F.concat_ws("/", "topic", "partition").isin(places)))
    return diff.union(kept)


def _named(differences: Any) -> dict[Place, dict[Kind, int]]:
    """How many records were named, by partition and kind."""
    named: dict[Place, dict[Kind, int]] = defaultdict(dict)
    for row in differences.groupBy("topic", "partition", "kind").count().collect():
        named[_place(row)][Kind(row["kind"])] = row["count"]
    return named


def _listed(differences: Any) -> list[RecordDifference]:
    """The first ones; records that only stand elsewhere come last."""
    moved = F.col("kind") == Kind.MOVED.value
    order = [moved, "topic", "partition", F.coalesce("source_offset", "target_offset"), "kind"]
    rows = differences.orderBy(*order).limit(limits.AUDIT_DIFFERENCES_LISTED_RECORDS).collect()
    return [diff.difference_of(row) for row in rows]


def _place(row: Any) -> Place:
    return row["topic"], row["partition"]


def _totals(ranges: Any) -> dict[Place, Any]:
    counts = [F.sum(name).alias(name) for name in _COUNTED]
    verdicts = [
        F.sum((F.col("verdict") == verdict.value).cast("bigint")).alias(verdict.value)
        for verdict in (AuditVerdict.DIFFERS, AuditVerdict.MOVED)
    ]
    both = F.col("source_records") + F.col("target_records")
    unopened = F.sum(F.when(F.col("source_batches") > 0, both).otherwise(0)).alias("records_unopened")
    sums = [F.count(F.lit(1)).alias("ranges"), unopened, *counts, *verdicts]
    rows = ranges.groupBy("topic", "partition").agg(*sums).collect()
    return {(row["topic"], row["partition"]): row for row in rows}


_COUNTED = ("source_records", "target_records", "source_bytes", "target_bytes")


def _bars(ranges: Any) -> tuple[tuple[PlotBar, ...], dict[str, int]]:
    """Records per topic by source offset, with ranges summed up until at most AUDIT_PLOT_BARS bars are left."""
    edges = ranges.groupBy("topic").agg(F.min("range_start").alias("low"), F.max("range_start").alias("high"))
    steps: dict[str, int] = {}
    unit = limits.AUDIT_RANGE_OFFSETS
    for row in edges.collect():
        number = (row["high"] - row["low"]) // unit + 1
        steps[row["topic"]] = unit * max(1, -(-number // limits.AUDIT_PLOT_BARS))
    if not steps:
        return (), {}
    step = F.create_map(*[F.lit(item) for pair in sorted(steps.items()) for item in pair])[F.col("topic")]
    start = (F.col("range_start") - F.pmod(F.col("range_start"), step)).alias("start")
    rows = (
        ranges.groupBy("topic", start)
        .agg(
            F.sum("source_records").alias("source_records"),
            F.sum("target_records").alias("target_records"),
            F.max(F.col("verdict") == AuditVerdict.DIFFERS.value).alias("differs"),
        )
        .orderBy("topic", "start")
        .collect()
    )
    return (
        tuple(
            PlotBar(row["topic"], row["start"], row["source_records"], row["target_records"], row["differs"])
            for row in rows
        ),
        steps,
    )


def _range(row: Any) -> RangeResult:
    return RangeResult(
        row["topic"],
        row["partition"],
        row["range_start"],
        row["source_records"],
        row["target_records"],
        row["source_bytes"],
        row["target_bytes"],
        _fingerprint(row, Side.SOURCE),
        _fingerprint(row, Side.TARGET),
        AuditVerdict(row["verdict"]),
    )


def _fingerprint(row: Any, side: Side) -> str:
    """The three sums, in hexadecimal; empty where the site has no record in the range."""
    sums = [row[f"{side}_{name}"] for name in ("content_1", "content_2", "ordered")]
    return "" if None in sums else "-".join(f"{found % 2**64:016X}" for found in sums)


@contextmanager
def spark_errors(frozen: FrozenLink) -> Iterator[None]:
    """Java's stack traces become one line with the cause; the log file keeps the rest. Raises ReadRefused, and
    SparkFailed for all else.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        if is_refusal(str(error)):
            raise ReadRefused(
                f"Spark may not read topics of link {frozen.link} (TOPIC_AUTHORIZATION_FAILED): a right went while it "
                f"read, at {frozen.source.name} or {frozen.target.name}, and now farshore may read there",
                f"run the audit again; if it comes again: {HINT_TO_GIVE}",
            ) from error
        sites = f"{frozen.source.bootstrap_servers} and {frozen.target.bootstrap_servers}"
        raise SparkFailed(
            f"Spark failed while it read both sites: {cause_of(error)}",
            f"the log has more; Spark itself connects to {sites} and to the addresses that the brokers there advertise",
        ) from error
