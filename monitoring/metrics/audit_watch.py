"""farshore_audit_watch_*: how old the proof of a link is that is audited all the time, and how much it lacks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from monitoring.audit.watch import Watched
from monitoring.metrics.audit import AuditCollector
from monitoring.metrics.build import BuildCollector
from monitoring.metrics.server import version


class WatchBoard:
    """What is known of the link, None before anything is. Written by the watch, read by a thread."""

    def __init__(self) -> None:
        self.found: Watched | None = None

    def post(self, found: Watched) -> None:
        self.found = found


def watch_registry(board: WatchBoard, directory: Path, clock_ms: Callable[[], int]) -> CollectorRegistry:
    """With the last audits' results, of which the watch's are one."""
    registry = CollectorRegistry()
    for collector in (BuildCollector(version()), AuditCollector(directory), WatchCollector(board, clock_ms)):
        registry.register(collector)
    return registry


class WatchCollector(Collector):
    """Ages are counted when they are asked for: they grow while no audit ends."""

    def __init__(self, board: WatchBoard, clock_ms: Callable[[], int]) -> None:
        self._board = board
        self._clock_ms = clock_ms

    def collect(self) -> Iterator[Metric]:
        found = self._board.found
        age = _gauge("proof_age_seconds", "Since the freeze of the newest audit without a difference; +Inf: none yet.")
        in_a_row = _gauge("failed_in_a_row", "Audits that failed since the last one that ended; 0: that was the last.")
        seconds = _gauge("last_audit_seconds", "How long the last audit that ended took.")
        unproved = _gauge(
            "unproved_offsets",
            "Committed source offsets behind the last proved one, at the last audit's freeze, by topic.",
            "topic",
        )
        runs = CounterMetricFamily(
            "farshore_audit_watch_audits", "Audits since the start, by how they ended.", labels=["link", "result"]
        )
        if found is not None:
            elapsed_ms = math.inf if found.proved_at_ms is None else max(0, self._clock_ms() - found.proved_at_ms)
            age.add_metric([found.link], elapsed_ms / 1000)
            in_a_row.add_metric([found.link], found.failed_in_a_row)
            if found.seconds is not None:
                seconds.add_metric([found.link], found.seconds)
            for topic, offsets in found.unproved.items():
                unproved.add_metric([found.link, topic], offsets)
            runs.add_metric([found.link, "ended"], found.audits)
            runs.add_metric([found.link, "failed"], found.failed)
        yield from (age, in_a_row, seconds, unproved, runs)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"farshore_audit_watch_{name}", text, labels=["link", *labels])
