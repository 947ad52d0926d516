"""The tables of what a fleet does and costs: goals, and MirrorMaker 2 beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich import box
from rich.table import Table

from broker.base.percentile import percentile
from tests.bench.fleet_bench import LOAD_TOPICS, PARTITIONS, FleetResults, FleetSetup
from tests.bench.fleet_load import RATE_PER_PARTITION_S
from tests.bench.fleet_peers import LEASE_S, PROCESSES
from tests.bench.fleet_throughput import Throughputs
from tests.bench.mirror_bench import cpu, speed
from tests.bench.planner_bench import UNITS, WORKERS, Planned


def takeover_table(results: FleetResults) -> Table:
    """Each mirror: seconds from kill -9, and what became of the records."""
    title = (
        f"kill -9 of one of {PROCESSES} processes: s to the first record of the partition that waited longest; "
        f"{LOAD_TOPICS * PARTITIONS} partitions, {RATE_PER_PARTITION_S:g} records/s in each"
    )
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("mirror")
    for heading in ("kills", "p50", "p95", "most", "goal p95", "records", "lost", "twice"):
        table.add_column(heading, justify="right")
    for kind, taken in results.taken.items():
        found = taken.content
        counts = (found.records, found.lost, found.twice) if found is not None else ()
        goal = f"<= 3 (lease {LEASE_S})" if kind == "farshore" else ""
        seconds = (*_percentiles(taken.takeovers_s), max(taken.takeovers_s, default=0.0))
        table.add_row(kind, str(len(taken.takeovers_s)), *(f"{s:.2f}" for s in seconds), goal, *map(_count, counts))
    return table


def fleet_table(setup: FleetSetup, results: FleetResults) -> Table:
    """What was measured of farshore alone."""
    table = Table(title="A fleet", box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("")
    for heading in ("measured", "goal"):
        table.add_column(heading, justify="right")
    for row in _rows(setup, results):
        table.add_row(*row)
    return table


def _rows(setup: FleetSetup, results: FleetResults) -> Iterator[tuple[str, str, str]]:
    if results.added_s:
        middle, late = _percentiles(results.added_s)
        what = (
            f"topic added to a link of {setup.topics:,}, to its first record, s, p50 and p95 of {len(results.added_s)}"
        )
        yield what, f"{middle:.2f}, {late:.2f}", "p95 <= 10"
    if results.rolled is not None:
        rolled = results.rolled
        yield "rolling restart of all, s", f"{rolled.took_s:.1f}", ""
        yield "longest idle of any partition meanwhile, s", f"{rolled.longest_idle_s:.2f}", "<= 3"
        found = rolled.content
        yield f"of {found.records:,} records lost, twice", f"{found.lost}, {found.twice}", "0, 0"
    if results.handovers_s:
        middle, late = _percentiles(results.handovers_s)
        what = f"graceful move, a partition's idle, ms, p50 and p95 of {len(results.handovers_s)}"
        yield what, f"{1000 * middle:.0f}, {1000 * late:.0f}", "p95 <= 200"
    if results.cuts:
        middle, late = _percentiles([cut.idle_s for cut in results.cuts])
        what = f"link cut anew, its longest idle partition, s, p50 and p95 of {len(results.cuts)}"
        yield what, f"{middle:.2f}, {late:.2f}", ""
        took_s, _ = _percentiles([cut.took_s for cut in results.cuts])
        yield "the command alone, s, p50", f"{took_s:.2f}", ""
    if results.coordinated is not None:
        coordinated = results.coordinated
        leader, *others = coordinated.member_cores
        yield f"{setup.units:,} units: three workers started, all shared out, s", f"{coordinated.shared_out_s:.1f}", ""
        yield "and shared evenly, s", f"{coordinated.balanced_s:.1f}", ""
        yield "their leader, % of a core", f"{100 * leader:.1f}", ""
        yield "another worker, % of a core", f"{100 * max(others):.1f}", ""
        yield "etcd, % of a core", f"{100 * coordinated.etcd_cores:.1f}", ""
        yield "writes to etcd per second", f"{coordinated.writes_per_s:.2f}", ""


def planner_table(rows: Iterable[Planned]) -> Table:
    title = f"The planner: {UNITS:,} units, {WORKERS:,} workers (goal of each: <= 1 s)"
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("")
    for heading in ("s", "units that changed"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(row.what, f"{row.seconds:.2f}", _count(row.changed))
    return table


def throughput_table(results: Throughputs) -> Table:
    table = Table(title="One worker that mirrors (zstd)", box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("")
    for heading in ("MB/s", "CPU-s/GB"):
        table.add_column(heading, justify="right")
    for name, runs in (("alone", results.alone), ("in a fleet", results.in_fleet)):
        table.add_row(name, f"{speed(runs):,.0f}", f"{cpu(runs):.2f}")
    table.add_row("in a fleet / alone", f"{results.speed_ratio:.2f}x", f"{results.cpu_ratio:.2f}x")
    return table


def _percentiles(values: Sequence[float]) -> tuple[float, float]:
    return percentile(values, 0.5) or 0.0, percentile(values, 0.95) or 0.0


def _count(number: int) -> str:
    return f"{number:,}"
