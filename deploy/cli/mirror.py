"""`farshore mirror`: the service that mirrors."""

from __future__ import annotations

import click

from broker.wire.buffers import keep_freed_memory
from deploy.cli.terminal import AppContext, run_async
from mirror.worker.limits import WorkerLimits
from mirror.worker.service import run_links


@click.group("mirror")
def mirror_group() -> None:
    """The mirror: run."""


@mirror_group.command("run")
@click.option("--link", "link_names", metavar="LINK", multiple=True, help="Only this link; may be given again.")
@click.pass_obj
def run_command(context: AppContext, link_names: tuple[str, ...]) -> None:
    """Mirror until stopped (SIGTERM, Ctrl-C): all links of farshore.toml, or those named."""
    links = tuple(context.link(name) for name in dict.fromkeys(link_names)) or context.links()
    if not links:
        raise click.UsageError("there is no link in farshore.toml: add a [[links]] table")
    keep_freed_memory(WorkerLimits().in_flight_max_bytes)
    run_async(run_links(links), service=True)
