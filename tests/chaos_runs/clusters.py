"""The clusters of a run: farshore's broker and Apache Kafka, with short intervals, and open to rough hands."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from broker.wire.batch import peek
from broker.wire.vocabulary import TopicPartition
from tests.interop.servers import FarshoreBroker, KafkaServer

PAIRS: dict[str, tuple[str, str]] = {
    "ours-ours": ("ours", "ours"),
    "ours-3.9.1": ("ours", "3.9.1"),
    "3.9.1-ours": ("3.9.1", "ours"),
    "3.9.1-4.3.0": ("3.9.1", "4.3.0"),
    "4.3.0-3.9.1": ("4.3.0", "3.9.1"),
    "4.3.0-ours": ("4.3.0", "ours"),
    "ours-4.3.0": ("ours", "4.3.0"),
}
"""Source and target kinds, by the name of the pair."""
RING = ("ours-3.9.1", "3.9.1-4.3.0", "4.3.0-ours")
"""Each kind once at each side."""
FLEET_PAIRS = ("ours-ours", "3.9.1-4.3.0", "4.3.0-3.9.1")
LAGGING = "threes-ours"
"""Three of farshore's brokers are lost, or left, while one of them lags."""
LOSS_PAIRS = (*PAIRS, LAGGING)
THREES = "threes"
"""Three of farshore's brokers at each side."""
CONTENT_PAIRS = ("ours-ours", "ours-3.9.1", "3.9.1-ours", "3.9.1-4.3.0", THREES)
QUICK_KAFKA = {
    "auto.create.topics.enable": "false",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "200",
    "log.segment.delete.delay.ms": "500",
    "log.index.size.max.bytes": "65536",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


class QuickBroker(FarshoreBroker):
    """farshore's broker with a short interval between retention checks, and no topics made by asking for them."""

    def command(self) -> Sequence[str]:
        config = self.folder / "broker.toml"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(
            f'[sites.here]\nbootstrap_servers = "{self.bootstrap}"\n[sites.here.broker]\ndata_dir = "{self.data_dir}"\n'
            "auto_create_topics_enable = false\nlog_retention_check_interval_ms = 1000\n"
        )
        return [sys.executable, "-m", "deploy.cli", "--config", str(config), "broker", "run", "--site", "here"]


ClusterServer = QuickBroker | KafkaServer


def make_cluster(kind: str, folder: Path) -> ClusterServer:
    """A server of the kind, not started."""
    return QuickBroker(folder) if kind == "ours" else KafkaServer(kind, folder, QUICK_KAFKA)


def data_of(server: ClusterServer) -> Path:
    return server.folder / "data"


def freeze(server: ClusterServer) -> None:
    """SIGSTOP: its connections stay open, and nothing answers."""
    assert server.process is not None
    os.kill(server.process.pid, signal.SIGSTOP)


def thaw(server: ClusterServer) -> None:
    assert server.process is not None
    os.kill(server.process.pid, signal.SIGCONT)


def copy_data(server: ClusterServer, to: Path) -> None:
    """What a disk held; the server does not run, or sleeps."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(data_of(server), to)


def restore_data(server: ClusterServer, copy: Path) -> None:
    """Put an old disk back; the server does not run."""
    shutil.rmtree(data_of(server))
    shutil.copytree(copy, data_of(server))


def restore_partition(server: ClusterServer, where: TopicPartition, copy: Path) -> None:
    """Put one partition's folder back as it was when `copy` was taken; the server does not run."""
    shutil.rmtree(data_of(server) / str(where))
    shutil.copytree(copy / str(where), data_of(server) / str(where))


def cut_end(server: ClusterServer, where: TopicPartition, back: int, keep: float) -> int:
    """Cut the partition's log in its last segment but `back` (or its first) -> records that are gone.

    `keep` of that segment's batches stay. What a disk loses that had not been synced, before the power went: no clean
    shutdown is on record, and what speaks of the lost records is gone, too. The server does not run.
    """
    folder = data_of(server) / str(where)
    segments = sorted(folder.glob("*.log"))[-1 - back :]
    lost = _cut_segment(segments[0], keep)
    for segment in segments[1:]:
        lost += _cut_segment(segment, 0.0)
        segment.unlink()
    for segment in segments:
        for suffix in (".index", ".timeindex", ".txnindex"):
            segment.with_suffix(suffix).unlink(missing_ok=True)
    for snapshot in folder.glob("*.snapshot"):
        snapshot.unlink()
    for mark in (data_of(server) / ".kafka_cleanshutdown", folder / "clean-shutdown"):
        mark.unlink(missing_ok=True)
    return lost


def _cut_segment(segment: Path, keep: float) -> int:
    """Cut a segment's file at a batch -> records that are gone."""
    content = segment.read_bytes()
    borders, records, at = [0], [], 0
    while at < len(content):
        header = peek(content, at)
        records.append(0 if header.is_control else header.record_count)
        at += header.size_bytes
        borders.append(at)
    kept = int(len(records) * keep)
    with segment.open("r+b") as file:
        file.truncate(borders[kept])
    return sum(records[kept:])
