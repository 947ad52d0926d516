"""`farshore drill`: what a failover would find if the source died now."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import click

from broker.base.clock import SystemClock
from broker.base.documents import to_document
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.site import Site
from deploy.cli.both_sites import refuse_one_site
from deploy.cli.failover_tables import tell_left, tell_loss
from deploy.cli.late_lines import pending_line
from deploy.cli.lines import filled, next_line
from deploy.cli.loss_lines import is_nothing_likely
from deploy.cli.stay_lines import tell_stays
from deploy.cli.stranded import in_words, unshown_lines
from deploy.cli.terminal import AppContext, ExitCode, Output, audit_directory, emit, output_option, run_async
from deploy.cli.waits import told_calls
from failover.drilling.drill import AuditNote, LinkDrill
from failover.drilling.looks import drill_link
from failover.limits import DRILL_STRANDED_S
from failover.losses.statements import LossTotal, sum_losses, total_loss, with_unasked
from failover.observing.contact import CLIENT_ID
from failover.observing.readers import Journals
from failover.planning.links import source_names
from failover.planning.site_plan import SourceNames, beside, with_links_stays
from failover.planning.staying import Stay
from mirror.api import STATUS_LIMITS
from mirror.heartbeat import HeartbeatWatch
from mirror.link import Link
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
    "audit_age_seconds",
    "audit_coverage_percent",
)
GROUP_COLUMNS = ("group", "sync_age_seconds", "kept_partitions", "unknown_partitions", "waiting")
FINDING_COLUMNS = ("kind", "subject", "detail")


@click.command("drill")
@click.option("--link", "link_name", metavar="LINK", help="Only this link.")
@click.option(
    "--from",
    "source_name",
    metavar="SITE",
    help="Only links from this site: the one that would be lost; with --to also what would stay there.",
)
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
    refuse_one_site(source_name, target_name)
    links = [
        link
        for link in ((context.link(link_name),) if link_name else context.links())
        if source_name in (None, link.source.name) and target_name in (None, link.target.name)
    ]
    if not links:
        raise click.UsageError("there is no such link in the file: farshore link list")
    is_of_site = source_name is not None and target_name is not None and link_name is None
    drills, names = run_async(_look(context, links, source_name if is_of_site else None))
    stays = None
    if source_name is not None and target_name is not None and names is not None:
        stays = list(beside((source_name, target_name), links, context.links(), names))
        stays += list(with_links_stays([one for found in drills for one in found.stays], links, stays))
    _show(drills, stays, output)
    raise SystemExit(ExitCode.DONE if all(found.is_ready for found in drills) else ExitCode.FINDINGS)


async def _look(
    context: AppContext, links: Sequence[Link], source_name: str | None
) -> tuple[list[LinkDrill], SourceNames | None]:
    """The drills, and what the source has that is named, if one is."""
    sites = dict.fromkeys(name for link in links for name in (link.source.name, link.target.name))
    async with told_calls(*sites):
        drills = await drill_links(links, audit_notes(context), context.links())
        return drills, await _names_at(context.site(source_name)) if source_name is not None else None


async def drill_links(links: Sequence[Link], audits: dict[str, AuditNote], declared: Sequence[Link]) -> list[LinkDrill]:
    """All of them at once, in their order. `declared`: all links of the file."""
    clock = SystemClock()
    heartbeats, journals = HeartbeatWatch(clock), Journals()
    async with asyncio.TaskGroup() as group:
        drills = [
            group.create_task(
                drill_link(link, heartbeats, audits.get(link.name, AuditNote()), clock.now_ms, declared, journals)
            )
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
        summary.link: AuditNote(
            summary.verdict.value, summary.frozen_at_ms, summary.verdict.is_equal, summary.coverage_percent
        )
        for summary in summaries
    }


async def _names_at(source: Site) -> SourceNames:
    """None of a site that does not answer, which the drill finds."""
    try:
        async with Cluster(source, client_id=CLIENT_ID, limits=STATUS_LIMITS) as cluster:
            return await source_names(cluster)
    except ClientError:
        return SourceNames()


def _show(drills: Sequence[LinkDrill], stays: Sequence[Stay] | None, output: str) -> None:
    """`stays`: what of the source would stay there if all these were moved; None: it was not asked for."""
    if output != Output.TABLE:
        site = {} if stays is None else {"loss": _total(drills), "stays": stays}
        emit({"items": drills, **site}, output)
        return
    emit(list(drills), output, columns=LINK_COLUMNS)
    quiet = [found for found in drills if found.loss is not None and is_nothing_likely(found.loss)]
    quiet = [one for one in quiet if not (one.lacks_at_target or one.left_at_source)] if len(drills) > 1 else []
    for found in drills:
        if found.groups:
            rows = [
                {**to_document(group), "waiting": ", ".join(f"{n} {why}" for why, n in sorted(group.waiting.items()))}
                for group in found.groups
            ]
            when = f", if {found.source} died now" if found.moved is None else ""
            emit(rows, output, columns=GROUP_COLUMNS, title=f"groups of {found.link}{when}")
        if found.pending_groups:
            click.echo(filled(pending_line(found.source, found.pending_groups, "they are carried when these do")))
        if found.findings:
            emit(list(found.findings), output, columns=FINDING_COLUMNS, title=f"findings of {found.link}")
        if found.loss is not None and found not in quiet:
            click.echo(f"{found.link}, if {found.source} died now:")
            tell_left(found, to_stderr=False)
            tell_loss(found.loss, found.source, is_left=bool(found.left_at_source), to_stderr=False)
        for line in moved_lines(found):
            click.echo(filled(line))
        if found.moved is not None:
            tell_left(found, to_stderr=False)
        if stays is None:
            tell_stays(to_document(found.stays), found.source, to_stderr=False)
    if quiet:
        names = ", ".join(found.link for found in quiet)
        text = "if the source died now, likely 0 offsets, and none was seen to be missing (-o json has each statement)"
        click.echo(filled(f"{names}: {text}"))
    if stays is not None and drills:
        if len(drills) > 1 and (total := _total(drills)) is not None:
            click.echo(f"all links, if {drills[0].source} died now:")
            is_left = any(found.left_at_source for found in drills)
            tell_loss(total, drills[0].source, is_left=is_left, to_stderr=False)
            if unseen := [found.link for found in drills if found.loss is None and found.moved is None]:
                click.echo(filled(f"not looked at, and not among it: {', '.join(unseen)}"))
            if moved := [found.link for found in drills if found.moved is not None]:
                click.echo(filled(f"moved before, and not among it: {', '.join(moved)}"))
        tell_stays(to_document(stays), drills[0].source, to_stderr=False)
    for found in drills:
        for step in dict.fromkeys(finding.next_step for finding in found.findings if finding.next_step):
            click.echo(next_line(step))


def moved_lines(found: LinkDrill) -> Iterable[str]:
    """Of a link that was moved, what its source's death would take along it; none of another."""
    if (moved := found.moved) is None:
        return
    stranded = moved.stranded
    if stranded is None:
        alone = f"what {found.source} alone has is not known ({moved.why_not_known})"
    else:
        alone = in_words(stranded)
    yield (
        f"{found.link} was moved, and brings nothing more: what it would lose with {found.source} is what that alone "
        f"has: {alone}. `farshore stranded list --link {found.link}` has it"
    )
    if stranded is not None:
        if stranded.cut:
            yield f"not all was read in the {DRILL_STRANDED_S:g} s of a drill: that command reads for longer"
        yield from unshown_lines(stranded)


def _total(drills: Sequence[LinkDrill]) -> LossTotal | None:
    """At the least, where some could not be looked at; None where all were moved, and none can lose anything more."""
    mirroring = [found for found in drills if found.moved is None]
    losses = [found.loss for found in mirroring if found.loss is not None]
    if not mirroring:
        return None
    return with_unasked(sum_losses(losses) if losses else total_loss([]), len(mirroring) - len(losses))
