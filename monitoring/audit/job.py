"""One audit from end to end, on a link that was frozen before: two scans, a comparison, and a second look."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
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
    Kind,
    PlotBar,
    RecordDifference,
    Side,
    WindowResult,
)
from monitoring.audit.ranges import plan
from monitoring.audit.reader import Spans, read_records, spans_of
from monitoring.audit.results import partition_results
from monitoring.audit.rounds import LogStarts, Place, Round, read_until_settled
from monitoring.errors import SparkFailed

# Says which step begins: shown as progress by a command, collected by a test.
Report = Callable[[str], None]
Store = Callable[[Any, Any], None]


@dataclass(frozen=True, slots=True)
class AuditJob:
    """What to compare and how finely; `clock_ms` gives milliseconds since 1970.

    `look` says where the logs of partitions begin now, at both sites.
    """

    run_id: str
    frozen: FrozenLink
    window_ms: int
    clock_ms: Callable[[], int]
    look: Callable[[Sequence[ComparablePartition]], LogStarts]
    report: Report = lambda _: None


@dataclass(frozen=True, slots=True)
class _Found:
    """What one reading found: DataFrames of all windows and of the records that differ, and the windows that do."""

    windows: Any
    suspects: list[Any]
    differences: Any


def run_job(spark: Any, job: AuditJob, store: Store = lambda _windows, _differences: None) -> AuditResult:
    """Read both sites, compare, name what differs. `store` gets DataFrames of all windows and all differences.

    Raises NothingToCompare when no partition can be compared, SparkFailed when Spark could not read a site, and what
    `job.look` raises.
    """
    plan(job.frozen)

    def read(partitions: Sequence[ComparablePartition]) -> _Found:
        with _spark_errors(job.frozen):
            return _read(spark, job, partitions)

    frozen, rounds = read_until_settled(job.frozen, read, job.look, job.report)
    partitions, not_compared = plan(frozen)
    with _spark_errors(frozen):
        windows = _settled(rounds, [done.found.windows for done in rounds])
        differences = _settled(rounds, [done.found.differences for done in rounds])
        totals = _totals(windows)
        store(windows, differences)
        bars, plot_step = _bars(windows, job.window_ms)
        found = _by_kind(differences)
        listed = _listed(differences) if found else []
    suspects = [row for done in rounds for row in done.found.suspects if _place(row) in done.partitions]
    suspects.sort(key=lambda row: (row["verdict"], row["topic"], row["partition"], row["window_start"]))
    return AuditResult(
        job.run_id,
        frozen,
        job.clock_ms(),
        job.window_ms,
        partition_results(frozen, partitions, not_compared, totals),
        tuple(not_compared),
        tuple(_window(row) for row in suspects[: limits.AUDIT_WINDOWS_LISTED]),
        tuple(listed),
        found,
        bars,
        plot_step,
        {"spark": spark.version, "python": platform.python_version()},
    )


def _read(spark: Any, job: AuditJob, partitions: Sequence[ComparablePartition]) -> _Found:
    job.report("reading both sites")
    # Not a cache: what an executor loses must fail, and not be read a second time from logs that changed.
    windows = _windows(spark, job, partitions).localCheckpoint()
    suspects = _suspects(windows)
    job.report(f"looking into {len(suspects)} differing windows" if suspects else "no window differs")
    return _Found(windows, suspects, _differences(spark, job, partitions, suspects))


def _settled(rounds: Sequence[Round[_Found]], frames: Sequence[Any]) -> Any:
    """The rows of all rounds' frames, each of the partitions that its round holds for."""
    kept = []
    for done, frame in zip(rounds, frames, strict=True):
        places = [f"{topic}/{partition}" for topic, partition in done.partitions]
        kept.append(frame.where(F.concat_ws("/", "topic", "partition").isin(places)))
    return diff.union(kept)


def _by_kind(differences: Any) -> dict[Kind, int]:
    return {Kind(row["kind"]): row["count"] for row in differences.groupBy("kind").count().collect()}


def _listed(differences: Any) -> list[RecordDifference]:
    """The first ones; records that only stand elsewhere come last."""
    moved = F.col("kind") == Kind.MOVED.value
    order = [moved, "topic", "partition", F.coalesce("source_offset", "target_offset"), "kind"]
    rows = differences.orderBy(*order).limit(limits.AUDIT_DIFFERENCES_LISTED_RECORDS).collect()
    return [diff.difference_of(row) for row in rows]


def _place(row: Any) -> Place:
    return row["topic"], row["partition"]


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


def _differences(spark: Any, job: AuditJob, partitions: Sequence[ComparablePartition], suspects: Sequence[Any]) -> Any:
    """The records that differ, in the windows that are not equal: both sites are read there a second time."""
    if not suspects:
        return spark.createDataFrame([], diff.DIFFERENCES_SCHEMA)
    target_names = {item.topic: item.target_topic for item in partitions}
    at_target = diff.windows_to_read(suspects, Side.TARGET)
    spans: dict[Side, Spans] = {
        Side.SOURCE: diff.windows_to_read(suspects, Side.SOURCE),
        Side.TARGET: {(target_names[topic], partition): span for (topic, partition), span in at_target.items()},
    }
    keys = ["topic", "partition", "window_start"]
    wanted = spark.createDataFrame(
        [tuple(row[key] for key in keys) for row in suspects], "topic string, partition int, window_start bigint"
    )
    records = _records(spark, job, partitions, spans)
    cut = {side: records[side].join(F.broadcast(wanted), keys, "left_semi") for side in Side}
    return diff.name_differences(cut[Side.SOURCE], cut[Side.TARGET])


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
            f"Spark failed while it read both sites: {_cause(error)}",
            f"the log has more; Spark itself connects to {sites} and to the addresses that the brokers there advertise",
        ) from error


def _cause(error: BaseException) -> str:
    """The innermost cause that a Java trace names, else its first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    if causes:
        return causes[-1]
    return lines[0] if lines else type(error).__name__
