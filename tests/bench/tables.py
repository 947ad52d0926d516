"""The tables that the bench prints: medians, ratios, and the goals beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from rich import box
from rich.table import Table

from tests.bench.broker_bench import BATCH_BYTES, BrokerRuns
from tests.bench.clusters import KAFKA_VERSION, ClusterKind
from tests.bench.data import PARTITIONS, RECORD_BYTES
from tests.bench.joining_bench import Stood
from tests.bench.latency_bench import RATE_RECORDS_PER_S, Latencies, LatencyRuns
from tests.bench.map_bytes import MapBytes
from tests.bench.measure import GB, Measured
from tests.bench.mirror_bench import CodecRuns, MirrorSetup, cpu, speed
from tests.bench.state_bench import Opened
from tests.bench.validation_bench import Looks

Say = Callable[[str], None]
LOOP_RATIO_GOALS = {"none": 6.0, "zstd": 50.0}
HELP_GOAL_S = 0.3
OPENED_GOAL_S = 1.0
PERCENTILES = (50.0, 90.0, 99.0, 99.9)


def mirror_table(setup: MirrorSetup, results: Mapping[str, CodecRuns]) -> Table:
    """CPU-seconds per GB of payload and MB/s of each codec."""
    title = (
        f"Mirror, {setup.source_kind} to {setup.target_kind}: {setup.payload_bytes / GB:g} GB of {RECORD_BYTES}-byte "
        f"records, {PARTITIONS} partitions, batches of up to {setup.batch_bytes} bytes before compression, "
        f"median of {setup.rounds}"
    )
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("codec")
    table.add_column("batch\non wire", justify="right")
    for heading in ("ours", "loop", "relay"):
        table.add_column(f"{heading}\nCPU-s/GB", justify="right")
    for heading in ("ours", "loop", "relay"):
        table.add_column(f"{heading}\nMB/s", justify="right")
    for heading in ("loop /\nours", "goal", "ours /\nrelay", "peak RSS\nMB"):
        table.add_column(heading, justify="right")
    for codec, runs in results.items():
        each = (runs.farshore, runs.loop, runs.relay)
        goal = LOOP_RATIO_GOALS.get(codec)
        table.add_row(
            codec,
            f"{runs.data.batch_bytes:,}",
            *(spread(of) for of in each),
            *(f"{speed(of):,.0f}" for of in each),
            f"{runs.loop_over_farshore:.1f}x",
            f">= {goal:.0f}x" if goal else "",
            f"{runs.farshore_over_relay:.2f}x",
            f"{max(runs.rss_mb):.0f}",
        )
    return table


def spread(runs: list[Measured]) -> str:
    """The median, with the lowest and highest run under it."""
    each = sorted(run.cpu_s_per_gb for run in runs)
    return f"{cpu(runs):.2f}\n{each[0]:.2f}-{each[-1]:.2f}"


def latency_table(runs: LatencyRuns) -> Table:
    """Milliseconds from a record's due time to a consumer that saw it."""
    table = Table(
        title=f"Latency at {RATE_RECORDS_PER_S} records/s, ms ({len(runs.mirrored.sorted_ms):,} records)",
        box=box.SIMPLE_HEAD,
        title_justify="left",
    )
    table.add_column("consumer")
    for percent in PERCENTILES:
        table.add_column(f"p{percent:g}", justify="right")
    rows: tuple[tuple[str, Latencies], ...] = (("at the source", runs.direct), ("at the target", runs.mirrored))
    for name, latencies in rows:
        table.add_row(name, *(f"{latencies.percentile(percent):.2f}" for percent in PERCENTILES))
    return table


def validation_table(rows: Iterable[Looks]) -> Table:
    """CPU-seconds per GB of records for each depth at which a produced batch is looked at."""
    table = Table(title="What looking at a batch costs, CPU-s/GB of records", box=box.SIMPLE_HEAD, title_justify="left")
    for heading in ("codec", "record\nbytes", "CRC", "framing\n(default)", "full"):
        table.add_column(heading, justify="left" if heading == "codec" else "right")
    for row in rows:
        table.add_row(row.codec, str(row.record_bytes), *(f"{s:.2f}" for s in (row.crc, row.framing, row.full)))
    return table


def map_bytes_table(rows: Iterable[MapBytes]) -> Table:
    """Bytes of the map in a link's state per million records."""
    table = Table(title="A link's map, per million records", box=box.SIMPLE_HEAD, title_justify="left")
    for heading in ("source", "fetched"):
        table.add_column(heading)
    for heading in ("intervals\nor syncs", "bytes\nwritten", "bytes left\nby the cleaner", "in\nentries"):
        table.add_column(heading, justify="right")
    for row in rows:
        numbers = (row.intervals, row.written_bytes, row.kept_bytes, row.entries)
        table.add_row(row.source, row.fetched, *(f"{number:,}" for number in numbers))
    return table


def state_table(rows: Iterable[Opened]) -> Table:
    """Seconds to read a large state, to translate an offset by it, and to take the link over."""
    title = f"A link with a large state: s, medians (goal of each: <= {OPENED_GOAL_S:g} s)"
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("")
    for heading in (
        "reading\nthe state",
        "translating\nan offset",
        "the whole\ncommand",
        "opening\nthe link",
        "CPU s\nof that",
    ):
        table.add_column(heading, justify="right")
    for row in rows:
        seconds = (row.reading_s, row.translating_s, row.command_s, row.opening_s, row.opening_cpu_s)
        table.add_row(row.what, *(f"{s:.2f}" for s in seconds))
    return table


def stood_table(partitions: str, rows: Iterable[Stood]) -> Table:
    """How long all partitions of a session stood still, at most, while some joined or left."""
    table = Table(title=f"A session of {partitions}, while others join", box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("")
    for heading in ("longest turn,\nms of CPU", "until done,\ns"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(row.what, f"{1000 * row.longest_s:.0f}", f"{row.took_s:.1f}")
    return table


def broker_table(results: Mapping[ClusterKind, BrokerRuns]) -> Table:
    """Both brokers, and ours over Kafka's: below 1 is cheaper, for MB/s above 1 is faster."""
    table = Table(
        title=f"Broker against Apache Kafka {KAFKA_VERSION}: batches of up to {BATCH_BYTES} bytes, Java perf clients",
        box=box.SIMPLE_HEAD,
        title_justify="left",
    )
    table.add_column("")
    for heading in ("farshore", "Kafka"):
        table.add_column(f"{heading}\nMB/s", justify="right")
        table.add_column(f"{heading}\nCPU-s/GB", justify="right")
    for heading in ("MB/s\nratio", "CPU\nratio", "goal"):
        table.add_column(heading, justify="right")
    for name in ("produce", "fetch"):
        ours: list[Measured] = getattr(results["farshore"], name)
        kafka: list[Measured] = getattr(results["kafka"], name)
        table.add_row(
            name,
            f"{speed(ours):.0f}",
            spread(ours),
            f"{speed(kafka):.0f}",
            spread(kafka),
            f"{speed(ours) / speed(kafka):.2f}x",
            f"{cpu(ours) / cpu(kafka):.2f}x",
            "CPU <= 1x",
        )
    return table


def startup_line(median_s: float) -> str:
    """`farshore --help` and its goal."""
    return f"farshore --help: {median_s:.3f} s (goal < {HELP_GOAL_S} s)"
