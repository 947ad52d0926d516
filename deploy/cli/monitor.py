"""`farshore monitor`: metrics for Prometheus."""

from __future__ import annotations

from functools import partial

import click

from broker.base.address import Address
from broker.base.clock import SystemClock
from deploy.cli.drill import audit_notes
from deploy.cli.parameters import HostPort
from deploy.cli.terminal import AppContext, audit_directory, run_async
from deploy.defaults import MONITOR_LISTEN
from failover.drilling.drill import AuditNote
from failover.drilling.findings import counts_by_kind
from failover.drilling.looks import drill_link
from failover.observing.readers import Journals
from mirror.heartbeat import HeartbeatWatch
from mirror.link import Link
from monitoring.metrics.readiness import Drills, Readiness
from monitoring.metrics.service import MonitorSettings, run_monitor


@click.group("monitor")
def monitor_group() -> None:
    """Prometheus metrics of all links."""


@monitor_group.command("run")
@click.option("--listen", type=HostPort(), default=MONITOR_LISTEN, show_default=True, help="HOST:PORT of /metrics.")
@click.option("--canary/--no-canary", default=True, show_default=True, help="Run a canary on each link, too.")
@click.pass_obj
def monitor_run(context: AppContext, listen: Address, canary: bool) -> None:
    """Serve lag, canary and audit results, group-sync age, link state and drills on /metrics, until stopped."""
    heartbeats = HeartbeatWatch(SystemClock())
    drills = _drills(context, heartbeats)
    face = context.monitor_face(listen)
    settings = MonitorSettings(context.links(), face, audit_directory(context), canary, drills, heartbeats)
    run_async(run_monitor(settings, ready=lambda url: click.echo(f"metrics on {url}", err=True)), service=True)


def _drills(context: AppContext, heartbeats: HeartbeatWatch) -> Drills:
    """As `farshore drill`. It looks seldom: whether a heartbeat moves `heartbeats` know from who looks all the time.
    The links of one round share what they read of journals. They do not have it until the next: it is all evidence of
    all operations that the sites have, and a second of reading each minute. Nor is read what the source of a link that
    was moved has alone: that is the whole of what a link back has brought there since, each minute anew.
    """
    return lambda: partial(_drill, context, heartbeats, Journals())


async def _drill(context: AppContext, heartbeats: HeartbeatWatch, journals: Journals, link: Link) -> Readiness:
    note = audit_notes(context).get(link.name, AuditNote())
    clock = SystemClock()
    found = await drill_link(link, heartbeats, note, clock.now_ms, context.links(), journals, reads_stranded=False)
    return Readiness(
        link.name,
        found.at_ms,
        counts_by_kind(found.findings),
        None if found.loss is None else found.loss.offsets,
        None if found.loss is None else found.loss.likely_offsets,
        None if found.loss is None else found.loss.seen_seconds,
        None if found.ends_age_ms is None else found.ends_age_ms / 1000,
        None if found.loss is None else found.loss.unclear_offsets,
        is_moved=found.moved is not None,
    )
