"""The table of three brokers beside three of Apache Kafka's: medians, what is lowest and highest, ratios, goals."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from rich import box
from rich.table import Table

from broker.base.percentile import percentile
from tests.bench.broker_bench import BATCH_BYTES, KINDS
from tests.bench.cluster_bench import (
    IDLE_S,
    LOAD_PER_S,
    PRODUCE_PARTITIONS,
    WIDE_PARTITIONS,
    ClusterResults,
    ClusterRuns,
    ClusterSetup,
)
from tests.bench.clusters import KAFKA_VERSION
from tests.bench.data import RECORD_BYTES
from tests.bench.measure import GB, Measured
from tests.bench.three_nodes import MIN_INSYNC, SESSION_MS

CONTROLLER_GOAL_S = 2

Read = Callable[[ClusterRuns], Sequence[float]]


def cluster_table(setup: ClusterSetup, results: ClusterResults) -> Table:
    """Ours, Kafka's, and ours over Kafka's: less is better but for MB/s."""
    title = (
        f"Three brokers beside three of Apache Kafka {KAFKA_VERSION}, both on ZooKeeper with sessions of "
        f"{SESSION_MS / 1000:g} s;\n{setup.payload_bytes / GB:g} GB of {RECORD_BYTES}-byte records in batches of up to "
        f"{BATCH_BYTES} bytes, {PRODUCE_PARTITIONS} partitions of 3 replicas, min.insync.replicas {MIN_INSYNC}"
    )
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("median (lowest to highest)")
    for heading in ("farshore", "Kafka", "ratio", "3 copies,\nno broker"):
        table.add_column(heading, justify="right")
    table.add_column("goal")
    for row in _rows(results):
        table.add_row(*row)
    return table


def _rows(results: ClusterResults) -> list[list[str]]:
    rows = [
        _row(results, "produce acks=all, MB/s", lambda runs: _mb_per_s(runs.produce), _mb_per_s(results.copies)),
        _row(results, "  all brokers, CPU-s/GB", lambda runs: _cpu(runs.produce), _cpu(results.copies)),
        _row(results, "leader's CPU-s/GB, to a follower", lambda runs: _cpu(runs.to_follower)),
        _row(results, "leader's CPU-s/GB, to a consumer", lambda runs: _cpu(runs.to_consumer)),
        _row(results, "  follower over consumer", _follower_over_consumer, goal="<= 1"),
        _row(results, "leader kill -9 to a produce, s, p50", lambda runs: _percentile(runs, 0.50)),
        _row(results, "leader kill -9 to a produce, s, p95", lambda runs: _percentile(runs, 0.95)),
        _row(results, "rolling restart, s", lambda runs: [each.took_s for each in runs.rolled]),
        _row(results, f"  longest wait of {LOAD_PER_S} records/s, s", lambda runs: _stalls(runs)),
        _row(results, "  errors told to the producer", lambda runs: _errors(runs), goal="0"),
        _row(
            results,
            f"controller failover, {WIDE_PARTITIONS} partitions, s after its session",
            lambda runs: runs.controller_s,
            goal=f"< {CONTROLLER_GOAL_S}",
        ),
        _row(results, f"idle, {WIDE_PARTITIONS} partitions, {IDLE_S:.0f} s, % of a core", _idle_percent),
    ]
    return [row for row in rows if any(row[1:3])]


def _row(results: ClusterResults, name: str, read: Read, limit: Sequence[float] = (), goal: str = "") -> list[str]:
    ours, kafka = (read(results.by_kind[kind]) for kind in KINDS)
    ratio = ""
    if ours and kafka and statistics.median(kafka):
        ratio = f"{statistics.median(ours) / statistics.median(kafka):.2f}x"
    return [name, _shown(ours), _shown(kafka), ratio, _shown(limit), goal]


def _shown(values: Sequence[float]) -> str:
    if not values:
        return ""
    median = _number(statistics.median(values))
    return median if len(values) == 1 else f"{median} ({_number(min(values))} to {_number(max(values))})"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _mb_per_s(runs: Sequence[Measured]) -> list[float]:
    return [run.mb_per_s for run in runs]


def _cpu(runs: Sequence[Measured]) -> list[float]:
    return [run.cpu_s_per_gb for run in runs]


def _follower_over_consumer(runs: ClusterRuns) -> list[float]:
    pairs = zip(runs.to_follower, runs.to_consumer, strict=True)
    return [follower.cpu_s / consumer.cpu_s for follower, consumer in pairs]


def _percentile(runs: ClusterRuns, share: float) -> list[float]:
    found = percentile(runs.leader_s, share)
    return [] if found is None else [found]


def _stalls(runs: ClusterRuns) -> list[float]:
    return [each.longest_stall_s for each in runs.rolled]


def _errors(runs: ClusterRuns) -> list[float]:
    return [float(len(each.errors)) for each in runs.rolled]


def _idle_percent(runs: ClusterRuns) -> list[float]:
    return [cores * 100 for cores in runs.idle_cores]
