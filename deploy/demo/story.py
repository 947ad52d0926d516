"""The demo from its first line to its last."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from deploy.demo.first_round import first_round
from deploy.demo.results import DemoResult
from deploy.demo.second_round import second_round
from deploy.demo.stage import LINK, Stage, stage
from deploy.errors import DemoFailed
from monitoring.audit.model import AuditVerdict

NEXT = """
What to try next
  a broker for your own clients:
    . .venv/bin/activate
    farshore broker run --data-dir /tmp/east --listen 127.0.0.1:9092
  two sites of your own: "Two sites by hand" in README.md
  three brokers, and Kafka's own tools on them: docs/tutorial-cluster.md
  how it compares, measured here: make bench
"""


async def tell(report_path: Path, brokers: int = 1, workers: int = 1, is_locked: bool = False) -> DemoResult:
    """Run the demo with so many brokers at each site and so many workers, and write its report. `is_locked`: nobody
    reaches a site but by TLS and a login.

    Raises DemoFailed when a promise does not hold, ToolsError where something that it needs is not installed.
    """
    from deploy.demo.report import write_report

    # The broker that is killed makes its clients complain many times a second; that is the story, not a finding.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    console = Console(stderr=True)
    started_at = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
    result = DemoResult(started_at, brokers=brokers, workers=workers, is_locked=is_locked)
    async with stage(console, result, brokers, workers, is_locked) as scene:
        await first_round(scene)
        await second_round(scene)
        with scene.step("farshore audit: Spark reads both sites and compares counts and checksums"):
            await audit(scene)
    write_report(result, report_path)
    show_times(console, result)
    show_kills(console, result)
    show_takeovers(console, result)
    console.print(f"[bold]Report:[/] {report_path.resolve()}")
    console.print(NEXT, highlight=False)
    return result


async def audit(scene: Stage) -> None:
    """Audit what the link mirrored in both rounds."""
    started_s = time.monotonic()
    outcome = await scene.command("audit", "run", "--link", LINK)
    scene.result.audit_seconds = time.monotonic() - started_s
    scene.result.audit_verdict = AuditVerdict(outcome["verdict"])
    scene.result.audit_records = outcome["records"]
    scene.result.audit_coverage_percent = outcome["coverage"]["percent"]
    report = Path(outcome["report"])
    scene.result.audit_report = report.read_text(encoding="utf-8") if report.exists() else ""
    if outcome["differences"] or not scene.result.audit_verdict.is_equal:
        raise DemoFailed(f"the audit found differences: {outcome}")


def show_times(console: Console, result: DemoResult) -> None:
    """Each step with its time."""
    table = Table(title=f"{result.seconds:.0f} seconds", title_justify="left", box=None)
    table.add_column("step")
    table.add_column("seconds", justify="right")
    for step in result.steps:
        table.add_row(step.name, f"{step.seconds:.1f}")
    console.print(table)


def show_kills(console: Console, result: DemoResult) -> None:
    """What became of the records while brokers were killed."""
    if not result.kills:
        return
    killed = ", ".join(f"broker {kill.node_id} of {kill.site}" for kill in result.kills)
    console.print(f"Killed while they led: {killed}; longest pause of the writer {result.write_pause_seconds:.1f} s")
    for found in result.contents:
        counted = f"{found.records:,} records read, {found.lost_records} lost, {found.repeated_records} repeated"
        console.print(f"  {found.site}: {counted}")


def show_takeovers(console: Console, result: DemoResult) -> None:
    """What became of the killed worker's links, and of the records."""
    if not result.takeovers or result.fleet_content is None:
        return
    found, table = result.fleet_content, Table(title="Links of the killed worker", title_justify="left", box=None)
    for heading in ("link", "ran at", "runs at"):
        table.add_column(heading)
    table.add_column("first record after, s", justify="right")
    for each in result.takeovers:
        table.add_row(each.link, each.before, each.after, f"{each.seconds:.2f}")
    console.print(table)
    counted = f"{found.records:,} records read, {found.lost_records} lost, {found.repeated_records} repeated"
    console.print(f"  airlines at west: {counted}", highlight=False)
