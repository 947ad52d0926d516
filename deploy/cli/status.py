"""`farshore status`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

import click

from deploy.cli.terminal import AppContext, Output, emit, output_option, run_async
from mirror.limits import STATUS_REFRESH_INTERVAL_MS
from mirror.link import Link
from mirror.status import LinkCondition, LinkStatus, link_statuses

LINK_COLUMNS = (
    "link",
    "source",
    "target",
    "condition",
    "partitions",
    "lag_records",
    "lag_bytes",
    "lag_seconds",
    "last_seen_at",
    "groups",
    "oldest_group_sync_at",
)
LAG_COLUMNS = (
    "topic",
    "partition",
    "mirrored_offset",
    "source_end_offset",
    "lag_records",
    "lag_bytes",
    "lag_seconds",
    "lag_span_seconds",
)
CLEAR_SCREEN = "\x1b[H\x1b[2J"


@click.command("status")
@click.option("--link", "link_name", metavar="LINK", help="Only this link.")
@click.option("--watch", is_flag=True, help="Show it again every two seconds, until interrupted.")
@output_option
@click.pass_obj
def status(context: AppContext, link_name: str | None, watch: bool, output: str) -> None:
    """Links, their lag in records, bytes and seconds, and their groups."""
    links = (context.link(link_name),) if link_name else context.links()
    if watch:
        run_async(_watch(links, output), service=True)
        return
    show(run_async(link_statuses(links)), output)


async def _watch(links: Sequence[Link], output: str) -> None:
    while True:
        statuses = await link_statuses(links)
        if output == Output.TABLE and sys.stdout.isatty():
            click.echo(CLEAR_SCREEN, nl=False)
        show(statuses, output)
        await asyncio.sleep(STATUS_REFRESH_INTERVAL_MS / 1000)


def show(statuses: Sequence[LinkStatus], output: str) -> None:
    """Print them: as tables the links first, then each link's gaps and partitions."""
    if output != Output.TABLE:
        emit(list(statuses), output)
        return
    emit(list(statuses), output, columns=LINK_COLUMNS)
    for found in statuses:
        if found.trouble:
            click.echo(f"{found.link}: {found.trouble}", err=True)
        if found.gaps:
            emit(list(found.gaps), output, title=f"gaps of {found.link}")
        if found.condition is LinkCondition.STOPPED_PARTITIONS:
            click.echo(
                f"hint: to go on behind these gaps: farshore link resume --link {found.link} --accept-gap", err=True
            )
        if found.partition_lags:
            emit(list(found.partition_lags), output, columns=LAG_COLUMNS, title=f"partitions of {found.link}")
