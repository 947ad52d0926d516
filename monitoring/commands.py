"""`farshore canary`, `farshore monitor` and `farshore audit`. Heavy imports are local: `--help` must answer at once."""

from __future__ import annotations

from pathlib import Path

import click

from mirror.terminal import AppContext, ExitCode, emit, output_option, progress, run_async, told
from monitoring.durations import Duration
from monitoring.limits import AUDIT_WINDOW_MIN_MS, CANARY_INTERVAL_MS

LINK_HELP = "The link's name; not needed when there is only one."


@click.group("canary")
def canary_group() -> None:
    """Watch small records on their way through a link."""


@canary_group.command("run")
@click.option("--link", "link_name", help=LINK_HELP)
@click.option(
    "--duration",
    "duration_ms",
    type=Duration(CANARY_INTERVAL_MS),
    default="30s",
    show_default=True,
    help="How long to write a record each second.",
)
@output_option
@click.pass_obj
def canary_run(context: AppContext, link_name: str | None, duration_ms: int, output: str) -> None:
    """Write a record each second at the source, and report loss, duplicates, order and latency at the target.

    Exit code 4 when a record was lost, came twice or out of order, or none came at all.
    """
    from monitoring.canary.run import run_canary

    link = context.link(link_name)
    with progress() as bars:
        task = bars.add_task(f"canary of {link.name}", total=duration_ms // CANARY_INTERVAL_MS)
        report = run_async(run_canary(link, duration_ms, tick=lambda: bars.advance(task)))
    emit(report, output)
    raise SystemExit(ExitCode.DONE if report.holds else ExitCode.FINDINGS)


@click.group("monitor")
def monitor_group() -> None:
    """Prometheus metrics of all links."""


@monitor_group.command("run")
@click.option("--listen", default="127.0.0.1:9600", show_default=True, help="HOST:PORT of /metrics.")
@click.option("--canary/--no-canary", default=True, show_default=True, help="Run a canary on each link, too.")
@click.pass_obj
def monitor_run(context: AppContext, listen: str, canary: bool) -> None:
    """Serve lag, canary results, group-sync age, link state and the last audit's result on /metrics, until stopped."""
    from monitoring.metrics.service import MonitorSettings, run_monitor

    settings = MonitorSettings(context.links(), listen, audit_directory(context), canary)
    run_async(run_monitor(settings, ready=lambda url: click.echo(f"metrics on {url}", err=True)), service=True)


@click.group("audit")
def audit_group() -> None:
    """Prove that a link's copies are equal, or name the records that differ."""


@audit_group.command("run")
@click.option("--link", "link_name", help=LINK_HELP)
@click.option(
    "--window",
    "window_ms",
    type=Duration(AUDIT_WINDOW_MIN_MS),
    default="10m",
    show_default=True,
    help="Length of the windows of event time that are compared.",
)
@click.option("--master", default="local[*]", show_default=True, help="Spark master.")
@click.option(
    "--jars",
    multiple=True,
    help="A jar of Spark's Kafka connector, or several with commas; by default Spark resolves it from Maven.",
)
@click.option(
    "--output-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the Parquet tables and the report go; by default audit/ in the state folder.",
)
@click.option("--run-id", help="Names the run; an earlier run of this name is replaced. By default link and time.")
@output_option
@click.pass_obj
def audit_run(
    context: AppContext,
    link_name: str | None,
    window_ms: int,
    master: str,
    jars: tuple[str, ...],
    output_dir: Path | None,
    run_id: str | None,
    output: str,
) -> None:
    """Read both sites with Spark and compare counts and checksums by partition and window of event time.

    The offset map decides which records must be there. Exit code 0: equal. 4: they differ; the records are named.
    """
    from monitoring.audit.run import AuditRequest, exit_code_of, rows_of, run_audit

    request = AuditRequest(
        link=context.link(link_name),
        window_ms=window_ms,
        master=master,
        jars=tuple(jar.strip() for item in jars for jar in item.split(",") if jar.strip()),
        directory=(output_dir or audit_directory(context)).resolve(),
        run_id=run_id,
    )
    with progress() as bars, told():
        task = bars.add_task(f"audit of {request.link.name}", total=None)
        try:
            outcome = run_audit(request, report=lambda step: bars.update(task, description=step))
        except KeyboardInterrupt:
            raise SystemExit(ExitCode.INTERRUPTED) from None
    if output == "table":
        for title, rows, columns in rows_of(outcome):
            emit(rows, output, columns=columns, title=title)
        click.echo(f"report: {outcome.report}", err=True)
    else:
        emit(outcome.document, output)
    raise SystemExit(exit_code_of(outcome.result))


def audit_directory(context: AppContext) -> Path:
    """Where audits are kept, if nothing else is said."""
    return context.state_dir / "audit"
