"""`farshore drill`: what a failover would find if the source died now."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import click

from broker.base.clock import SystemClock
from broker.base.documents import to_document
from deploy.cli.failover_tables import tell_loss
from deploy.cli.terminal import AppContext, ExitCode, Output, audit_directory, emit, output_option, run_async
from failover.drill import AuditNote, LinkDrill
from failover.drilling import drill_link
from mirror.heartbeat import HeartbeatWatch
from mirror.link import Link
from monitoring.audit.model import AuditVerdict
from monitoring.audit.store import read_summaries
from monitoring.errors import AuditResultDamaged

LINK_COLUMNS = (
    "link",
    "is_ready",
    "source_answers",
    "heartbeat_age_seconds",
    "ends_age_seconds",
    "lag_records",
    "lag_seconds",
    "audit_verdict",
    "audit_at",
)
GROUP_COLUMNS = ("group", "sync_age_seconds", "kept_partitions", "unknown_partitions", "waiting")
FINDING_COLUMNS = ("kind", "subject", "detail")


@click.command("drill")
@click.option("--link", "link_name", metavar="LINK", help="Only this link.")
@click.option("--from", "source_name", metavar="SITE", help="Only links from this site: the one that would be lost.")
@click.option("--to", "target_name", metavar="SITE", help="Only links to this site.")
@output_option
@click.pass_obj
def drill(
    context: AppContext, link_name: str | None, source_name: str | None, target_name: str | None, output: str
) -> None:
    """What a failover would find if the source died now: groups, partitions, worker, loss, audit. Changes nothing.

    Exit code 0: ready. 4: there are findings.
    """
    for site in (source_name, target_name):
        if site is not None:
            context.site(site)
    links = [
        link
        for link in ((context.link(link_name),) if link_name else context.links())
        if source_name in (None, link.source.name) and target_name in (None, link.target.name)
    ]
    if not links:
        raise click.UsageError("there is no such link in the file: farshore link list")
    drills = run_async(drill_links(links, audit_notes(context)))
    _show(drills, output)
    raise SystemExit(ExitCode.DONE if all(found.is_ready for found in drills) else ExitCode.FINDINGS)


async def drill_links(links: Sequence[Link], audits: dict[str, AuditNote]) -> list[LinkDrill]:
    """All of them at once, in their order."""
    clock = SystemClock()
    heartbeats = HeartbeatWatch(clock)
    async with asyncio.TaskGroup() as group:
        drills = [
            group.create_task(drill_link(link, heartbeats, audits.get(link.name, AuditNote()), clock.now_ms))
            for link in links
        ]
    return [found.result() for found in drills]


def audit_notes(context: AppContext) -> dict[str, AuditNote]:
    """The last audit of each link that had one here; where one cannot be read, none of them is relied on."""
    try:
        summaries = read_summaries(audit_directory(context))
    except AuditResultDamaged:
        return {link.name: AuditNote("unreadable", None, is_equal=False) for link in context.links()}
    return {
        summary.link: AuditNote(summary.verdict.value, summary.finished_at_ms, summary.verdict is AuditVerdict.EQUAL)
        for summary in summaries
    }


def _show(drills: Sequence[LinkDrill], output: str) -> None:
    if output != Output.TABLE:
        emit(list(drills), output)
        return
    emit(list(drills), output, columns=LINK_COLUMNS)
    for found in drills:
        if found.groups:
            rows = [
                {**to_document(group), "waiting": ", ".join(f"{n} {why}" for why, n in sorted(group.waiting.items()))}
                for group in found.groups
            ]
            emit(rows, output, columns=GROUP_COLUMNS, title=f"groups of {found.link}, if {found.source} died now")
        if found.findings:
            emit(list(found.findings), output, columns=FINDING_COLUMNS, title=f"findings of {found.link}")
        if found.loss is not None:
            click.echo(f"{found.link}, if {found.source} died now:")
            tell_loss(found.loss, found.source, to_stderr=False)
        for step in dict.fromkeys(finding.next_step for finding in found.findings if finding.next_step):
            click.echo(f"next: {step}")
