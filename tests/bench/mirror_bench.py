"""What mirroring costs: `farshore mirror run` against the confluent-kafka loop and the bare relay, run in turns.

Source and target are processes of their own. Every run mirrors the same topic into an empty target cluster. Both
mirrors are measured from outside, without their start.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.bench.clusters import ClusterKind, RunningCluster, running_cluster, service
from tests.bench.data import PARTITIONS, RECORD_BYTES, SEGMENT_SUFFIX, Stored, fill_topic, stored
from tests.bench.loop_peer import BEGINS, COPIED
from tests.bench.measure import GB, Measured, cpu_seconds, peak_rss_mb
from tests.bench.relay import measure_relay

CODECS = ("none", "lz4", "zstd")
POLL_S = 0.01
RUN_TIMEOUT_S = 600.0
RELAY_BYTES_MIN = 500_000_000


@dataclass(frozen=True, slots=True)
class MirrorSetup:
    """What is measured: `payload_bytes` in batches of up to `batch_bytes` before compression, `rounds` times."""

    directory: Path
    source_kind: ClusterKind
    target_kind: ClusterKind
    payload_bytes: int
    batch_bytes: int
    rounds: int

    @property
    def records(self) -> int:
        return self.payload_bytes // RECORD_BYTES


@dataclass(slots=True)
class CodecRuns:
    """The runs of one codec; `rss_mb` is the highest resident memory of each farshore run."""

    data: Stored
    farshore: list[Measured] = field(default_factory=list)
    loop: list[Measured] = field(default_factory=list)
    relay: list[Measured] = field(default_factory=list)
    rss_mb: list[float] = field(default_factory=list)

    @property
    def loop_over_farshore(self) -> float:
        return cpu(self.loop) / cpu(self.farshore)

    @property
    def farshore_over_relay(self) -> float:
        return cpu(self.farshore) / cpu(self.relay)


def cpu(runs: list[Measured]) -> float:
    """Median CPU seconds per GB of payload."""
    return median(run.cpu_s_per_gb for run in runs)


def speed(runs: list[Measured]) -> float:
    """Median MB of payload per second."""
    return median(run.mb_per_s for run in runs)


def bench_mirror(setup: MirrorSetup, values: list[bytes], say: Callable[[str], None]) -> dict[str, CodecRuns]:
    """Every codec's runs, interleaved over `rounds`."""
    with running_cluster(setup.source_kind, setup.directory / "source") as source:
        results: dict[str, CodecRuns] = {}
        for codec in CODECS:
            topic = f"flights-{codec}"
            say(f"writing {setup.payload_bytes / GB:.1f} GB of {codec} at the source")
            create_topic(source.bootstrap, topic)
            fill_topic(source.bootstrap, topic, values, setup.records, codec, setup.batch_bytes)
            results[codec] = CodecRuns(stored(topic, source.log_dir, setup.records))
        for number in range(setup.rounds):
            for codec, runs in results.items():
                say(f"mirroring {codec}, round {number + 1} of {setup.rounds}")
                _run_each(setup, source, codec, runs, number)
    return results


def _run_each(setup: MirrorSetup, source: RunningCluster, codec: str, runs: CodecRuns, number: int) -> None:
    folder = setup.directory / f"{codec}-{number}"
    wire_bytes = max(RELAY_BYTES_MIN, runs.data.wire_bytes)
    relayed = measure_relay(runs.data.batch_bytes, wire_bytes)
    payload_bytes = round(relayed.payload_bytes * runs.data.payload_bytes / runs.data.wire_bytes)
    runs.relay.append(Measured(payload_bytes, relayed.cpu_s, relayed.wall_s))
    with empty_target(setup, folder / "farshore") as target:
        measured, rss_mb = _farshore(folder, source, target, runs.data)
        runs.farshore.append(measured)
        runs.rss_mb.append(rss_mb)
    with empty_target(setup, folder / "loop") as target:
        create_topic(target.bootstrap, runs.data.topic)
        runs.loop.append(_loop(folder, source, target, runs.data, codec))


@contextmanager
def empty_target(setup: MirrorSetup, folder: Path) -> Iterator[RunningCluster]:
    """A new cluster, whose data is deleted with the context: the next run needs the disk."""
    with running_cluster(setup.target_kind, folder) as target:
        yield target
    delete_below(folder)


def delete_below(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


def create_topic(bootstrap: str, topic: str) -> None:
    """Create it with PARTITIONS partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
        created.result(30)


def _farshore(folder: Path, source: RunningCluster, target: RunningCluster, data: Stored) -> tuple[Measured, float]:
    """A `farshore mirror run` until every byte of the source's batches is in the target's segments."""
    config = folder / "farshore.toml"
    config.write_text(mirror_config(source.bootstrap, target.bootstrap, data.topic))
    command = [sys.executable, "-m", "deploy.cli", "--config", str(config), "mirror", "run"]
    with service(command, folder / "mirror.log") as process:
        return measure_farshore(process, target.log_dir, data), peak_rss_mb(process.pid)


def mirror_config(source: str, target: str, topic: str) -> str:
    """A farshore.toml with one link that mirrors one topic."""
    return f"""
[sites.east]
bootstrap_servers = "{source}"
[sites.west]
bootstrap_servers = "{target}"
[[links]]
name = "east-west"
source = "east"
target = "west"
topics = ["{topic}"]
topic_names = "same"
groups = [".*"]
"""


def measure_farshore(process: subprocess.Popen[bytes], log_dir: Path, data: Stored) -> Measured:
    """From the first batches that landed to the last: its start, and a few MB before the first poll, are left out."""
    until(process, lambda: landed_bytes(log_dir, data.topic) > data.batch_bytes)
    first, cpu_s, wall_s = landed_bytes(log_dir, data.topic), cpu_seconds(process.pid), time.monotonic()
    until(process, lambda: landed_bytes(log_dir, data.topic) >= data.wire_bytes)
    last = landed_bytes(log_dir, data.topic)
    payload_bytes = round(data.payload_bytes * (last - first) / last)
    return Measured(payload_bytes, cpu_seconds(process.pid) - cpu_s, time.monotonic() - wall_s)


def _loop(folder: Path, source: RunningCluster, target: RunningCluster, data: Stored, codec: str) -> Measured:
    """The consume-produce loop, from where it says that it begins: it reads far ahead of what has landed."""
    command = [sys.executable, "-m", "tests.bench.loop_peer", source.bootstrap, target.bootstrap, data.topic]
    log = folder / "loop.log"
    with service([*command, str(data.records), codec], log) as process:
        until(process, lambda: BEGINS in log.read_text())
        cpu_s, wall_s = cpu_seconds(process.pid), time.monotonic()
        until(process, lambda: COPIED in log.read_text())
        return Measured(data.payload_bytes, cpu_seconds(process.pid) - cpu_s, time.monotonic() - wall_s)


def until(process: subprocess.Popen[bytes], condition: Callable[[], bool]) -> None:
    """Poll until the condition holds. RuntimeError when the process ended early or takes over RUN_TIMEOUT_S."""
    deadline = time.monotonic() + RUN_TIMEOUT_S
    while not condition():
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with {process.returncode}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"{process.args!r} did not finish in {RUN_TIMEOUT_S:.0f} s")
        time.sleep(POLL_S)


def landed_bytes(log_dir: Path, topic: str) -> int:
    """Bytes in the topic's segments."""
    total = 0
    for folder in log_dir.glob(f"{topic}-*"):
        for entry in os.scandir(folder):
            if entry.name.endswith(SEGMENT_SUFFIX):
                total += entry.stat().st_size
    return total
