"""`farshore failback`: back to the site that was lost, with what only it has saved first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import click

from deploy.cli.coming_back import coming_back, look_at_one, refuse_other_files, shown_folder, told_end
from deploy.cli.failback_plan import show
from deploy.cli.failback_site import come_back_all
from deploy.cli.failback_words import refuse, rest_of_site, tell_cut_short, tell_refusals
from deploy.cli.failover_tables import tell_next
from deploy.cli.moving import AGAIN, refuse_lasting_freeze
from deploy.cli.parameters import Duration
from deploy.cli.refusals import ended_by
from deploy.cli.terminal import (
    LINK_HELP,
    AppContext,
    CommandRefused,
    ExitCode,
    Output,
    confirm_plan,
    dry_run_option,
    emit,
    output_option,
    run_async,
    told,
    yes_option,
)
from failover.errors import OperationUnderWay
from failover.failback.consented import is_as_shown
from failover.failback.plan import FailbackPlan, FailbackRefusal
from failover.journal.standing import intent_of
from failover.journal.values import OperationLog
from failover.planning.intent import Intent
from failover.running.steps import Operation
from mirror.api import Link

COLUMNS = ("operation_id", "link", "stranded_records", "export_to", "switchover_exit_code", "groups_set_back")


@click.command()
@click.option("--link", "link_name", metavar="LINK", help=LINK_HELP)
@click.option("--from", "source_name", metavar="SITE", help="All links from this site, which was lost, with --to.")
@click.option("--to", "target_name", metavar="SITE", help="All links to this site, with --from, as of the failover.")
@click.option(
    "--export-to",
    "folder",
    type=click.Path(path_type=Path, resolve_path=True),
    metavar="DIR",
    help="Where records that only the lost site has are saved (default: a folder in state_dir).",
)
@click.option(
    "--timeout",
    "timeout_ms",
    type=Duration(1_000),
    default="60s",
    show_default=True,
    help="How long the link back may bring nothing while something is missing.",
)
@click.option("--reason", default="", help="Why; it is kept in the operation's journal.")
@dry_run_option("the plan")
@yes_option
@output_option
@click.pass_obj
def failback(
    app: AppContext,
    link_name: str | None,
    source_name: str | None,
    target_name: str | None,
    folder: Path | None,
    timeout_ms: int,
    reason: str,
    dry_run: bool,
    yes: bool,
    output: str,
) -> None:
    """Come back to a link's source after a failover, or with --from and --to to that of all links between two sites.

    Save and count what only it has, bring what was written since, move the groups to the very records that they read
    next, and let the link run as before.

    What came to the source meanwhile keeps the link from that (exit code 4): begun again, it saves that, too.

    Stop consumers at the other site first, and producers where its brokers cannot refuse them. It is an operation, in
    the journal at the link's target: one at a time for the link and the link back. Cut short, the same command goes on
    with it, or `farshore operation resume`, on any machine. Exit code otherwise: that of the switchover.

    With --from and --to, which are those of the failover, it is an operation for each link, one after the other. A link
    that is refused stays as it is, and the exit code is the worst of them.
    """
    refuse_lasting_freeze(app, Operation.FAILBACK)
    if source_name is not None or target_name is not None:
        sites = _sites(link_name, source_name, target_name)
        come_back_all(app, sites, folder, timeout_ms / 1000, reason, dry_run=dry_run, yes=yes, output=output)
    link = app.link(link_name)
    refuse_other_files(folder)
    if dry_run:
        show_only(app, link, folder, output)
    sites, patience_s = (link.source.name, link.target.name), timeout_ms / 1000
    intent = Intent(Operation.FAILBACK, (link.name,), *sites, drain_timeout_s=patience_s, reason=reason)
    come_back_by(app, link, intent, folder, yes, output)


def _sites(link_name: str | None, source: str | None, target: str | None) -> tuple[str, str]:
    if source is None or target is None:
        raise click.UsageError("--from and --to are given together: all links from the one site to the other")
    if link_name is not None:
        raise click.UsageError("--link is one link, --from and --to are all between two sites: give one or the other")
    return source, target


def show_only(app: AppContext, link: Link, folder: Path | None, output: str) -> NoReturn:
    """The plan, also where the command would be refused beside another operation: that is said behind it."""

    async def look() -> tuple[FailbackPlan, OperationLog | None, OperationUnderWay | None]:
        try:
            return *await look_at_one(app, link, folder, ""), None
        except OperationUnderWay as held:
            plan, _ = await look_at_one(app, link, folder, "", alone=False)
            refusals = (*plan.refusals, FailbackRefusal.OPERATION_UNDER_WAY)
            return replace(plan, refusals=refusals, under_way=held.operation_id), None, held

    plan, log, not_alone = run_async(look())
    if output == Output.TABLE:
        show(plan, log, to_stderr=False)
        tell_refusals(app, link, plan, log)
    else:
        emit(plan, output)
    if not_alone is not None:
        with told():
            raise not_alone
    raise SystemExit(ExitCode.REFUSED if plan.refusals else ExitCode.DONE)


def resume_failback(app: AppContext, log: OperationLog, yes: bool, output: str) -> NoReturn:
    """Go on with one of which nobody was heard, as its journal says that it was asked for."""
    intent = intent_of(log)
    link = app.link(intent.links[0])
    come_back_by(app, link, intent, None, yes, output, log.operation_id)


def come_back_by(
    app: AppContext, link: Link, intent: Intent, folder: Path | None, yes: bool, output: str, operation_id: str = ""
) -> NoReturn:
    """From the look to the exit code. `operation_id`: of the failback that is gone on with, and of no other one; "":
    whichever has not ended, or a new one.
    """
    plan, log = run_async(look_at_one(app, link, folder, operation_id))
    if plan.refusals and output != Output.TABLE:
        emit(plan, output)
    refuse(app, link, plan, log)
    show(plan, log)
    confirm_plan(None, yes, question=f"Come back to {link.source.name}?")
    if not yes:  # a person has read it meanwhile
        shown = plan, log
        plan, log = run_async(look_at_one(app, link, shown_folder(plan, folder), operation_id))
        if log != shown[1] or not is_as_shown(shown[0], plan):
            raise CommandRefused("the plan holds no more; nothing was changed", AGAIN, ExitCode.REFUSED)
    coming = coming_back(app, link, plan, log, intent)
    try:
        run_async(coming.go())
    except CommandRefused as error:
        if output != Output.TABLE:
            emit(ended_by(coming.result(), error), output)
        tell_cut_short(link, coming.operation_id, coming.step)
        raise
    code, result = told_end(app, link, plan, coming)
    result["next"] = (*result["next"], *rest_of_site(link.source.name, link.target.name, coming.away))
    emit(result, output, columns=COLUMNS)
    if output == Output.TABLE:
        tell_next(result["next"])
    raise SystemExit(code)
