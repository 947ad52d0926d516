"""`python -m tests.bench [PART]`, `--help` names the parts: figures, with ratios."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
from rich.console import Console

from tests.bench import audit_bench, cluster_bench, fleet_bench, moving_bench, tables
from tests.bench.audit_bench import bench_audit
from tests.bench.audit_tables import audit_table
from tests.bench.broker_bench import bench_broker
from tests.bench.cluster_bench import ClusterSetup, bench_cluster
from tests.bench.cluster_tables import cluster_table
from tests.bench.clusters import KAFKA_VERSION, ClusterKind, kafka_available
from tests.bench.data import record_values
from tests.bench.fleet_bench import FleetSetup, bench_fleet, chosen_parts
from tests.bench.fleet_tables import fleet_table, planner_table, takeover_table, throughput_table
from tests.bench.fleet_throughput import bench_throughput
from tests.bench.latency_bench import bench_latency
from tests.bench.map_bytes import bench_map_bytes
from tests.bench.measure import GB
from tests.bench.mirror_bench import MirrorSetup, bench_mirror
from tests.bench.moving_peer import bench_tools
from tests.bench.moving_tables import moving_table, tools_table
from tests.bench.planner_bench import bench_planner
from tests.bench.state_bench import bench_state
from tests.bench.tls_bench import bench_tls
from tests.bench.tls_tables import least_line, tls_broker_table, tls_mirror_table
from tests.bench.validation_bench import bench_validation
from tests.interop.servers import ServerFailed

PARTS = (
    "mirror",
    "latency",
    "broker",
    "tls",
    "validation",
    "state",
    "cluster",
    "fleet",
    "failover",
    "audit",
    "startup",
)
PLANNER, THROUGHPUT = "planner", "throughput"
TOOLS = "tools"
"""Beside the moves: what Kafka's own take."""
ONLY = (
    *cluster_bench.PARTS,
    *(each for each in fleet_bench.PARTS if each not in cluster_bench.PARTS),
    PLANNER,
    THROUGHPUT,
    *moving_bench.KINDS,
    TOOLS,
    *audit_bench.PARTS,
)
STARTUP_RUNS = 5
VERSIONS_OF = ("farshore", "uvloop", "crc32c", "cramjam", "confluent-kafka")


@click.command()
@click.argument("part", type=click.Choice([*PARTS, "all"]), default="all")
@click.option("--gigabytes", default=1.0, show_default=True, help="Payload of each run.")
@click.option("--rounds", default=3, show_default=True, help="Runs of each measurement; the median is shown.")
@click.option("--batch-bytes", default=1_000_000, show_default=True, help="Largest source batch before compression.")
@click.option("--seconds", default=30, show_default=True, help="Length of the latency run.")
@click.option(
    "--only", type=click.Choice(ONLY), multiple=True, help="Of `cluster`, `fleet`, `failover`, `audit`: this, or these."
)
@click.option(
    "--kills", default=10, show_default=True, help="Of `cluster`: leaders killed in each; of `fleet`: workers."
)
@click.option("--topics", default=1000, show_default=True, help="Of `fleet`: on the link to which others are added.")
@click.option("--units", default=10_000, show_default=True, help="Of `fleet`: that its workers agree on.")
@click.option("--logs", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Mirror these log files.")
@click.option("--source", type=click.Choice(["farshore", "kafka"]), default="farshore", show_default=True)
@click.option("--target", type=click.Choice(["farshore", "kafka"]), default="farshore", show_default=True)
def main(
    part: str,
    gigabytes: float,
    rounds: int,
    batch_bytes: int,
    seconds: int,
    only: tuple[str, ...],
    kills: int,
    topics: int,
    units: int,
    logs: Path | None,
    source: ClusterKind,
    target: ClusterKind,
) -> None:
    """Measure the mirror and the broker against their peers, side by side on this machine."""
    # SIGTERM as Ctrl-C: the children end and the data is deleted on the way out.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(_machine())
    directory = Path(tempfile.mkdtemp(prefix="farshore-bench-"))

    def say(text: str) -> None:
        print(f"  {text}", file=sys.stderr, flush=True)

    wanted = PARTS if part == "all" else (part,)
    payload_bytes = int(gigabytes * GB)
    try:
        if "mirror" in wanted:
            setup = MirrorSetup(directory / "mirror", source, target, payload_bytes, batch_bytes, rounds)
            console.print(tables.mirror_table(setup, bench_mirror(setup, record_values(logs), say)))
        if "latency" in wanted:
            console.print(tables.latency_table(bench_latency(directory / "latency", source, seconds, say)))
        if "broker" in wanted:
            _broker(console, directory / "broker", payload_bytes, rounds, logs, say)
        if "tls" in wanted:
            _tls(console, directory / "tls", payload_bytes, rounds, logs, say)
        if "validation" in wanted:
            console.print(tables.validation_table(bench_validation(record_values(logs))))
        if "state" in wanted:
            _state(console, directory / "state", rounds, say)
        if "cluster" in wanted:
            parts = frozenset(each for each in cluster_bench.PARTS if not only or each in only)
            cluster = ClusterSetup(directory / "cluster", payload_bytes, rounds, kills, parts)
            console.print(cluster_table(cluster, bench_cluster(cluster, record_values(logs), say)))
        if "fleet" in wanted:
            fleet = FleetSetup(directory / "fleet", kills, topics, units, chosen_parts(only))
            throughput = MirrorSetup(directory / "throughput", source, target, payload_bytes, batch_bytes, rounds)
            _fleet(console, fleet, throughput, only, say)
        if "failover" in wanted:
            _failover(console, directory, rounds, only, say)
        if "audit" in wanted:
            runs = bench_audit(directory / "audit", source, payload_bytes, rounds, record_values(logs), say, only)
            console.print(audit_table(runs, rounds))
        if "startup" in wanted:
            console.print(tables.startup_line(_startup_s()))
    except ServerFailed as failed:
        raise click.ClickException(str(failed)) from failed
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _state(console: Console, directory: Path, rounds: int, say: tables.Say) -> None:
    console.print(tables.map_bytes_table(bench_map_bytes()))
    state = bench_state(directory, rounds, say)
    console.print(tables.state_table(state.opened))
    console.print(tables.stood_table(state.opened[-1].what, state.stood))


def _failover(console: Console, directory: Path, rounds: int, only: tuple[str, ...], say: tables.Say) -> None:
    kinds = tuple(kind for kind in moving_bench.KINDS if not only or kind in only)
    if kinds:
        console.print(moving_table(moving_bench.bench_moving(directory / "moving", rounds, kinds, say)))
    if (not only or TOOLS in only) and kafka_available():
        console.print(tools_table(bench_tools(directory / "tools", say)))


def _fleet(
    console: Console, fleet: FleetSetup, throughput: MirrorSetup, only: tuple[str, ...], say: tables.Say
) -> None:
    if not only or PLANNER in only:
        console.print(planner_table(bench_planner(throughput.rounds)))
    results = bench_fleet(fleet, say)
    if results.taken:
        console.print(takeover_table(results))
    if fleet.parts - {"takeover", "default"}:
        console.print(fleet_table(fleet, results))
    if not only or THROUGHPUT in only:
        console.print(throughput_table(bench_throughput(throughput, record_values(None), say)))


def _broker(
    console: Console, directory: Path, payload_bytes: int, rounds: int, logs: Path | None, say: tables.Say
) -> None:
    """The comparison with Apache Kafka; exits 1 where its jars are missing, for a part left out is no result."""
    if not kafka_available():
        raise click.ClickException(f"Apache Kafka {KAFKA_VERSION} is not in .cache/; run: make tools")
    results = bench_broker(directory, payload_bytes, rounds, record_values(logs), say)
    console.print(tables.broker_table(results))


def _tls(
    console: Console, directory: Path, payload_bytes: int, rounds: int, logs: Path | None, say: tables.Say
) -> None:
    results = bench_tls(directory, payload_bytes, rounds, record_values(logs), say)
    console.print(tls_broker_table(results))
    console.print(tls_mirror_table(results))
    console.print(least_line(results.least))


def _startup_s() -> float:
    """Median seconds of `farshore --help`."""
    times = []
    for _ in range(STARTUP_RUNS):
        started = time.monotonic()
        subprocess.run([sys.executable, "-m", "deploy.cli", "--help"], check=True, stdout=subprocess.DEVNULL)
        times.append(time.monotonic() - started)
    return statistics.median(times)


def _machine() -> str:
    """Cores, Python, and the versions of what is measured."""
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in VERSIONS_OF if _installed(name))
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}; {versions}"


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


if __name__ == "__main__":
    main()
