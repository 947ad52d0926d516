"""`farshore audit run` from a link to files on disk."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from broker.client.cluster import Cluster
from mirror.api import Link
from monitoring.audit.freeze import freeze_link
from monitoring.audit.job import AuditJob, plan, run_job
from monitoring.audit.model import AuditResult, FrozenLink
from monitoring.audit.report import as_document, as_html
from monitoring.audit.session import SparkSettings, require_spark, spark_session
from monitoring.audit.store import write_report, write_result, write_summary, write_windows
from monitoring.errors import AuditError

CLIENT_ID = "farshore-audit"
RUN_ID = re.compile(r"[A-Za-z0-9._-]{1,200}")


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """What the command was asked. `run_id` None: made from the link and the time."""

    link: Link
    window_ms: int
    master: str
    jars: tuple[str, ...]
    directory: Path
    run_id: str | None = None


@dataclass(frozen=True, slots=True)
class AuditOutcome:
    """What the command prints, and where the report is."""

    result: AuditResult
    document: dict[str, Any]
    report: Path


def run_audit(
    request: AuditRequest,
    report: Callable[[str], None],
    run: Callable[[Coroutine[Any, Any, FrozenLink]], FrozenLink] = asyncio.run,
) -> AuditOutcome:
    """Freeze, compare, store. Raises AuditError, and what the mirror's client raises for a site that is down."""
    started_s = time.monotonic()
    require_spark()
    run_id = run_id_of(request)
    report("asking both sites where they stand")
    frozen = run(_freeze(request.link))
    partitions, _ = plan(frozen)
    request.directory.mkdir(parents=True, exist_ok=True)
    if not partitions:
        # Before Spark is started: `run_job` says the same after a wait.
        run_job(None, AuditJob(run_id, frozen, request.window_ms, _now_ms))
    report("starting Spark")
    settings = SparkSettings(request.master, request.jars, request.directory / "spark.log")
    with spark_session(settings) as spark:
        job = AuditJob(run_id, frozen, request.window_ms, _now_ms, report)
        result = run_job(spark, job, store=lambda windows: write_windows(windows, request.directory, run_id))
        report("writing the result")
        write_result(spark, result, request.directory)
    page = write_report(as_html(result, _command(request)), request.directory, run_id)
    write_summary(result, request.directory)
    document = as_document(result) | {
        "records": result.source_records,
        "report": str(page),
        "seconds": round(time.monotonic() - started_s, 3),
    }
    return AuditOutcome(result, document, page)


async def _freeze(link: Link) -> FrozenLink:
    async with Cluster(link.source, client_id=CLIENT_ID) as source, Cluster(link.target, client_id=CLIENT_ID) as target:
        return await freeze_link(link, source, target, _now_ms)


def run_id_of(request: AuditRequest) -> str:
    """The run's id: a folder's name. Raises AuditError for one that cannot be."""
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    run_id = request.run_id if request.run_id is not None else f"{request.link.name}-{moment}"
    if not RUN_ID.fullmatch(run_id) or run_id.startswith("."):
        raise AuditError(f"{run_id!r} cannot name a run", "use letters, digits, '.', '_' and '-', at most 200")
    return run_id


def _command(request: AuditRequest) -> str:
    window = f"{request.window_ms}ms" if request.window_ms % 1000 else f"{request.window_ms // 1000}s"
    return f"farshore audit run --link {request.link.name} --window {window} --master '{request.master}'"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
