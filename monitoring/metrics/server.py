"""The registry, and /metrics over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from prometheus_client import CollectorRegistry, start_http_server

from broker.base.address import Address
from monitoring.canary.verdict import CanaryJudge
from monitoring.errors import ListenFailed
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


@contextmanager
def metrics_server(listen: Address, registry: CollectorRegistry) -> Iterator[str]:
    """Serve the registry while the block runs; gives the URL. Raises ListenFailed."""
    try:
        server, thread = start_http_server(listen.port, addr=listen.host, registry=registry)
    except OSError as error:
        raise ListenFailed(
            f"cannot listen on {listen}: {error.strerror or error}",
            "another process has the port, or the address is not this machine's: choose one with --listen HOST:PORT",
        ) from error
    try:
        yield f"http://{listen._replace(port=server.server_port)}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
