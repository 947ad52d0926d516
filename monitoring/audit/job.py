"""One audit from end to end, on a link that was frozen before: two scans, a comparison, and a second look."""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from monitoring import limits
from monitoring.audit import diff, digest
from monitoring.audit.model import (
    AuditResult,
    AuditVerdict,
    ComparablePartition,
    FrozenLink,
    FrozenPartition,
    NotCompared,
    PartitionResult,
    PlotBar,
    RecordDifference,
    Side,
    Span,
    WindowResult,
    coverage_of,
)
from monitoring.audit.ranges import plan
from monitoring.audit.reader import Spans, read_records, spans_of
from monitoring.errors import SparkFailed

# Says which step begins: shown as progress by a command, collected by a test.
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class AuditJob:
    """What to compare and how finely; `clock_ms` gives milliseconds since 1970."""

    run_id: str
    frozen: FrozenLink
    window_ms: int
    clock_ms: Callable[[], int]
    report: Report = lambda _: None


def run_job(spark: Any, job: AuditJob, store: Callable[[Any], None] = lambda _: None) -> AuditResult:
    """Read both sites, compare, name what differs. `store` gets the DataFrame of all windows while it is cached.

    Raises NothingToCompare when no partition can be compared, and SparkFailed when Spark could not read a site.
    """
    partitions, not_compared = plan(job.frozen)
    with _spark_errors(job.frozen):
        windows = _windows(spark, job, partitions).cache()
        try:
            job.report("reading both sites")
            totals = _totals(windows)
            store(windows)
            suspects = _suspects(windows)
            bars, plot_step = _bars(windows, job.window_ms)
        finally:
            windows.unpersist()
        differing = [row for row in suspects if row["verdict"] == AuditVerdict.DIFFERS]
        job.report(f"looking into {len(differing)} differing windows" if differing else "no window differs")
        differences, missing, surplus = _diff(spark, job, partitions, differing)
    return AuditResult(
        job.run_id,
        job.frozen,
        job.clock_ms(),
        job.window_ms,
        _results(job.frozen, partitions, not_compared, totals),
        tuple(not_compared),
        tuple(_window(row) for row in suspects[: limits.AUDIT_WINDOWS_LISTED]),
        tuple(differences),
        missing,
        surplus,
        bars,
        plot_step,
        {"spark": spark.version, "python": platform.python_version()},
    )


def _records(
    spark: Any, job: AuditJob, partitions: Sequence[ComparablePartition], spans: dict[Side, Spans]
) -> dict[Side, Any]:
    """Both sites' records, named as at the source, aligned by the map, with windows and hashes."""
    untimed = sorted({item.topic for item in partitions if not item.timestamps_comparable})
    names = {
        Side.SOURCE: {item.topic: item.topic for item in partitions},
        Side.TARGET: {item.target_topic: item.topic for item in partitions},
    }
    sites = {Side.SOURCE: job.frozen.source, Side.TARGET: job.frozen.target}
    aligned = {}
    for side, align in ((Side.SOURCE, digest.align_source), (Side.TARGET, digest.align_target)):
        records = align(read_records(spark, sites[side], spans[side], names[side]), partitions)
        aligned[side] = digest.with_hashes(digest.with_windows(records, job.window_ms, untimed))
    return aligned


def _windows(spark: Any, job: AuditJob, partitions: Sequence[ComparablePartition]) -> Any:
    spans: dict[Side, Spans] = {side: spans_of(tuple(partitions), side) for side in Side}
    records = _records(spark, job, partitions, spans)
    return digest.compare(digest.digest(records[Side.SOURCE]), digest.digest(records[Side.TARGET]))


def _totals(windows: Any) -> dict[tuple[str, int], Any]:
    counts = [F.sum(name).alias(name) for name in _COUNTED]
    verdicts = [
        F.sum((F.col("verdict") == verdict.value).cast("bigint")).alias(verdict.value)
        for verdict in (AuditVerdict.DIFFERS, AuditVerdict.MOVED)
    ]
    rows = windows.groupBy("topic", "partition").agg(F.count(F.lit(1)).alias("windows"), *counts, *verdicts).collect()
    return {(row["topic"], row["partition"]): row for row in rows}


_COUNTED = ("source_records", "target_records", "source_bytes", "target_bytes")


def _suspects(windows: Any) -> list[Any]:
    """All windows that are not equal, the differing ones first."""
    rows = windows.where(F.col("verdict") != AuditVerdict.EQUAL.value)
    return list(rows.orderBy("verdict", "topic", "partition", "window_start").collect())


def _bars(windows: Any, window_ms: int) -> tuple[tuple[PlotBar, ...], dict[str, int]]:
    """Records per topic over time, with windows summed up until at most AUDIT_PLOT_BARS bars are left."""
    edges = windows.groupBy("topic").agg(
        F.min("window_start").alias("low"), F.max("window_start").alias("high"), F.first("timed").alias("timed")
    )
    steps: dict[str, int] = {}
    for row in edges.collect():
        unit = window_ms if row["timed"] else limits.AUDIT_WINDOW_RECORDS
        number = (row["high"] - row["low"]) // unit + 1
        steps[row["topic"]] = unit * max(1, -(-number // limits.AUDIT_PLOT_BARS))
    if not steps:
        return (), {}
    step = F.create_map(*[F.lit(item) for pair in sorted(steps.items()) for item in pair])[F.col("topic")]
    start = (F.col("window_start") - F.pmod(F.col("window_start"), step)).alias("start")
    rows = (
        windows.groupBy("topic", start)
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


def _diff(
    spark: Any, job: AuditJob, partitions: Sequence[ComparablePartition], differing: Sequence[Any]
) -> tuple[list[RecordDifference], int, int]:
    """(listed differences, records missing at the target, records too many there) in the differing windows."""
    if not differing:
        return [], 0, 0
    target_names = {item.topic: item.target_topic for item in partitions}
    at_target = diff.windows_to_read(differing, Side.TARGET)
    spans: dict[Side, Spans] = {
        Side.SOURCE: diff.windows_to_read(differing, Side.SOURCE),
        Side.TARGET: {(target_names[topic], partition): span for (topic, partition), span in at_target.items()},
    }
    keys = ["topic", "partition", "window_start"]
    wanted = spark.createDataFrame(
        [tuple(row[key] for key in keys) for row in differing], "topic string, partition int, window_start bigint"
    )
    records = _records(spark, job, partitions, spans)
    cut = {side: records[side].join(F.broadcast(wanted), keys, "left_semi") for side in Side}
    contents = diff.uneven_contents(cut[Side.SOURCE], cut[Side.TARGET]).cache()
    try:
        excess = F.col("source_records") - F.col("target_records")
        sums = contents.agg(
            F.sum(F.greatest(excess, F.lit(0))).alias("missing"), F.sum(F.greatest(-excess, F.lit(0))).alias("surplus")
        ).collect()[0]
        rows = (
            contents.orderBy("topic", "partition", "first_offset")
            .limit(2 * limits.AUDIT_DIFFERENCES_LISTED_RECORDS)
            .collect()
        )
    finally:
        contents.unpersist()
    found = diff.classify(diff.content_of(row) for row in rows)
    return found[: limits.AUDIT_DIFFERENCES_LISTED_RECORDS], sums["missing"] or 0, sums["surplus"] or 0


def _results(
    frozen: FrozenLink,
    partitions: Sequence[ComparablePartition],
    not_compared: Sequence[NotCompared],
    totals: Mapping[tuple[str, int], Any],
) -> tuple[PartitionResult, ...]:
    """One for each frozen partition, also where nothing of it was compared."""
    compared = {(item.topic, item.partition): item for item in partitions}
    left_out: dict[tuple[str, int], list[NotCompared]] = defaultdict(list)
    for item in not_compared:
        left_out[item.topic, item.partition].append(item)
    return tuple(
        partition_result(found, totals.get(place), left_out[place])
        if (found := compared.get(place := (item.topic, item.partition))) is not None
        else nothing_compared(item, left_out[place])
        for item in frozen.partitions
    )


def nothing_compared(item: FrozenPartition, left_out: Sequence[NotCompared]) -> PartitionResult:
    """Of a partition that was left out as a whole; or that has no record at either site."""
    none = Span(item.source.start, item.source.start)
    coverage = coverage_of(0, left_out)
    verdict = AuditVerdict.EQUAL if coverage.is_full else AuditVerdict.NOT_COMPARED
    return PartitionResult(
        item.topic, item.partition, item.target_topic, none, Span(0, 0), 0, 0, 0, 0, 0, 0, 0, verdict, coverage
    )


def partition_result(item: ComparablePartition, row: Any, left_out: Sequence[NotCompared]) -> PartitionResult:
    """`row` has the sums over the partition's windows; None: it has none."""
    found: dict[str, int] = {} if row is None else row.asDict()
    counts = defaultdict(int, found)
    coverage = coverage_of(counts["source_records"] + counts["target_records"], left_out)
    verdict = AuditVerdict.EQUAL if coverage.is_full else AuditVerdict.EQUAL_AS_FAR_AS_COMPARED
    if counts["differs"]:
        verdict = AuditVerdict.DIFFERS
    elif counts["moved"]:
        verdict = AuditVerdict.MOVED
    return PartitionResult(
        item.topic,
        item.partition,
        item.target_topic,
        item.source,
        item.target,
        counts["source_records"],
        counts["target_records"],
        counts["source_bytes"],
        counts["target_bytes"],
        counts["windows"],
        counts["differs"],
        counts["moved"],
        verdict,
        coverage,
    )


def _window(row: Any) -> WindowResult:
    return WindowResult(
        row["topic"],
        row["partition"],
        row["window_start"],
        row["timed"],
        row["source_records"],
        row["target_records"],
        row["source_bytes"],
        row["target_bytes"],
        row["source_fingerprint"] or "",
        row["target_fingerprint"] or "",
        AuditVerdict(row["verdict"]),
    )


@contextmanager
def _spark_errors(frozen: FrozenLink) -> Iterator[None]:
    """Java's stack traces become one line with the cause; the log file keeps the rest."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        sites = f"{frozen.source.bootstrap_servers} and {frozen.target.bootstrap_servers}"
        raise SparkFailed(
            f"Spark could not read both sites: {_cause(error)}",
            f"Spark connects to {sites} and to the addresses that the brokers there advertise; is each reachable?",
        ) from error


def _cause(error: BaseException) -> str:
    """The innermost cause that a Java trace names, else its first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    if causes:
        return causes[-1]
    return lines[0] if lines else type(error).__name__
