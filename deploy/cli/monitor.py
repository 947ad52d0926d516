"""`farshore monitor`: metrics for Prometheus."""

from __future__ import annotations

import click

from broker.base.address import Address
from deploy.cli.parameters import HostPort
from deploy.cli.terminal import AppContext, audit_directory, run_async
from monitoring.metrics.service import MonitorSettings, run_monitor


@click.group("monitor")
def monitor_group() -> None:
    """Prometheus metrics of all links."""


@monitor_group.command("run")
@click.option("--listen", type=HostPort(), default="127.0.0.1:9600", show_default=True, help="HOST:PORT of /metrics.")
@click.option("--canary/--no-canary", default=True, show_default=True, help="Run a canary on each link, too.")
@click.pass_obj
def monitor_run(context: AppContext, listen: Address, canary: bool) -> None:
    """Serve lag, canary results, group-sync age, link state and the last audit's result on /metrics, until stopped."""
    settings = MonitorSettings(context.links(), listen, audit_directory(context), canary)
    run_async(run_monitor(settings, ready=lambda url: click.echo(f"metrics on {url}", err=True)), service=True)
