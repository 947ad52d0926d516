"""`farshore canary`: probe records through a link."""

from __future__ import annotations

import click

from deploy.cli.parameters import Duration
from deploy.cli.terminal import LINK_HELP, AppContext, ExitCode, emit, output_option, progress, run_async
from monitoring.canary.run import run_canary
from monitoring.limits import CANARY_INTERVAL_MS


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

    A record is lost when the mirror has passed it; one that only took longer than 30 s is late. Exit code 4 when a
    record was lost, has not come yet, came twice or out of order, or none came at all.
    """
    link = context.link(link_name)
    with progress() as bars:
        task = bars.add_task(f"canary of {link.name}", total=duration_ms // CANARY_INTERVAL_MS)
        report = run_async(run_canary(link, duration_ms, tick=lambda: bars.advance(task)))
    emit(report, output)
    raise SystemExit(ExitCode.DONE if report.holds else ExitCode.FINDINGS)
