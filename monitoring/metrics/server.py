"""The registry, and /metrics over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib import metadata
from pathlib import Path

from prometheus_client import CollectorRegistry

from broker.http.face import http_face
from broker.http.registry import page_of
from broker.http.settings import FaceSettings
from monitoring.canary.verdict import CanaryJudge
from monitoring.metrics.acls import AclCollector
from monitoring.metrics.audit import AuditCollector
from monitoring.metrics.build import BuildCollector
from monitoring.metrics.canary import CanaryCollector
from monitoring.metrics.findings import FindingsCollector
from monitoring.metrics.groups import GroupCollector
from monitoring.metrics.lag import LagCollector
from monitoring.metrics.link import LinkCollector
from monitoring.metrics.observation import Board
from monitoring.metrics.readiness import ReadinessBoard, ReadinessCollector


def registry_of(
    board: Board,
    readiness: ReadinessBoard,
    judges: Sequence[CanaryJudge],
    audit_directory: Path,
    clock_ms: Callable[[], int],
) -> CollectorRegistry:
    """All collectors in a registry of their own: the process's default one has others' metrics in it."""
    registry = CollectorRegistry()
    for collector in (
        BuildCollector(version()),
        LinkCollector(board),
        FindingsCollector(board),
        AclCollector(board),
        LagCollector(board),
        GroupCollector(board, clock_ms),
        ReadinessCollector(readiness, clock_ms),
        CanaryCollector(judges),
        AuditCollector(audit_directory),
    ):
        registry.register(collector)
    return registry


def version() -> str:
    """The installed distribution's version."""
    try:
        return metadata.version("farshore")
    except metadata.PackageNotFoundError:
        return "unknown"


@asynccontextmanager
async def metrics_server(settings: FaceSettings, registry: CollectorRegistry) -> AsyncIterator[str]:
    """Serve the registry while the context is open; gives the URL. Raises what `http_face` raises."""
    async with http_face(settings, page_of(registry)) as url:
        yield url
