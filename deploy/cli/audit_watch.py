"""`farshore audit watch`: a link is audited all the time, and Prometheus told how old its proof is."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

import click

from broker.base.address import Address
from broker.base.clock import SystemClock
from broker.base.documents import iso_time
from deploy.cli.audit_options import SparkOptions, batches_option, request_of, spark_options
from deploy.cli.parameters import Duration, HostPort
from deploy.cli.terminal import LINK_HELP, AppContext, ExitCode, run_async
from monitoring import limits
from monitoring.audit.watch import WatchSettings, watch
from monitoring.metrics.audit_watch import WatchBoard, watch_registry
from monitoring.metrics.server import metrics_server


@click.command("watch")
@click.option("--link", "link_name", help=LINK_HELP)
@click.option(
    "--every",
    "every_ms",
    type=Duration(limits.AUDIT_WATCH_EVERY_MIN_MS),
    default="30s",
    show_default=True,
    help="From the beginning of one audit to that of the next, which never comes before the end of the one.",
)
@click.option("--listen", type=HostPort(), default="127.0.0.1:9601", show_default=True, help="HOST:PORT of /metrics.")
@batches_option
@spark_options
@click.pass_obj
def audit_watch(
    context: AppContext,
    link_name: str | None,
    every_ms: int,
    listen: Address,
    may_stay_closed: bool | None,
    **spark: Unpack[SparkOptions],
) -> None:
    """Audit a link again and again with one Spark until stopped, and serve the age of the proof on /metrics.

    Each audit reads what is new since the last one, also since the last one of another process. A difference is told
    once, when it is found. A site that does not answer ends nothing: the proof grows older. Stopped by a signal the
    exit code is 4 where an audit since the start found a difference, and 0 otherwise; the last line says how old the
    proof is.
    """
    clock, board = SystemClock(), WatchBoard()
    request = replace(request_of(context, link_name, **spark), may_stay_closed=may_stay_closed)
    face = context.monitor_face(listen)

    def say(line: str) -> None:
        click.echo(f"{iso_time(clock.now_ms())} {request.link.name}: {line}", err=True)

    async def served() -> None:
        registry = watch_registry(board, request.directory, clock.now_ms)
        async with metrics_server(face, registry) as url:
            click.echo(f"metrics on {url}", err=True)
            await watch(WatchSettings(request, every_ms, clock, board.post, say))

    try:
        run_async(served(), service=True)
    except SystemExit as stopped:
        found = board.found
        if found is None:
            raise
        at_ms = found.proved_at_ms
        proved = (
            f"the newest without a difference is of {iso_time(at_ms)}" if at_ms is not None else "none proved it yet"
        )
        say(f"stopped after {found.audits:,} audits, and {found.failed:,} that failed; {proved}")
        raise SystemExit(ExitCode.FINDINGS if found.differed else stopped.code) from None
