"""`farshore monitor run`: watches, canaries and the metrics server under one task group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import Histogram

from broker.base.clock import SystemClock
from broker.base.errors import FarshoreError
from broker.http.settings import FaceSettings
from mirror.api import HeartbeatWatch, Link
from monitoring import limits
from monitoring.canary.probe import CanaryProbe
from monitoring.canary.run import new_run, now_ms
from monitoring.canary.verdict import CanaryJudge
from monitoring.metrics.canary import latency_histogram
from monitoring.metrics.observation import Board
from monitoring.metrics.readiness import Drills, ReadinessBoard, drill_for_ever
from monitoring.metrics.server import metrics_server, registry_of
from monitoring.metrics.watch import LinkWatch


@dataclass(frozen=True, slots=True)
class MonitorSettings:
    """What to watch, where to show it and to whom, and where audits leave their results."""

    links: Sequence[Link]
    face: FaceSettings
    audit_directory: Path
    canary: bool = True
    drills: Drills | None = None
    """What a failover of a link would find; None: nobody asks."""
    heartbeats: HeartbeatWatch = field(default_factory=lambda: HeartbeatWatch(SystemClock()))


async def run_monitor(settings: MonitorSettings, ready: Callable[[str], None]) -> None:
    """Until cancelled. `ready` gets the URL of /metrics. Raises as `http_face`; a lost site does not end it."""
    board = Board()
    judges = [CanaryJudge(link.name, new_run()) for link in settings.links] if settings.canary else []
    readiness = ReadinessBoard()
    registry = registry_of(board, readiness, judges, settings.audit_directory, now_ms)
    latency = latency_histogram(registry)
    async with metrics_server(settings.face, registry) as url:
        ready(url)
        async with asyncio.TaskGroup() as group:
            if settings.drills is not None:
                group.create_task(drill_for_ever(settings.links, settings.drills, readiness))
            for link in settings.links:
                group.create_task(LinkWatch(link, board, SystemClock(), settings.heartbeats).run())
            for link, judge in zip(settings.links, judges, strict=False):
                group.create_task(_canary_for_ever(link, judge, latency))


async def _canary_for_ever(link: Link, judge: CanaryJudge, latency: Histogram) -> None:
    """Prepare until both sites and the mirror are there, then run; one that cannot ends neither others nor a watch."""
    probe = CanaryProbe(link, judge, now_ms, latency.labels(link.name).observe)
    pause_ms = limits.CANARY_RETRY_MIN_MS
    while True:
        try:
            await probe.prepare()
            await probe.run()
        except (FarshoreError, OSError):
            # farshore_link_up says that a site is away, farshore_canary_sent_records_total that no canary flies.
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, limits.CANARY_RETRY_MAX_MS)
