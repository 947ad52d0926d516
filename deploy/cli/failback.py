"""`farshore failback`: back to the site that was lost, with what only it has saved first."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import click

from broker.base.documents import to_document
from broker.client.cluster import Cluster
from deploy.cli.both_sites import with_both_sites
from deploy.cli.failback_words import refuse, show, steps_at_end, tell_cut_short, tell_end, tell_refusals
from deploy.cli.failover_tables import tell_next
from deploy.cli.moving import AGAIN, now_ms
from deploy.cli.parameters import Duration
from deploy.cli.stranded import no_answer
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
from deploy.cli.way_back import Coming, is_taken_up, standing_still
from failover.errors import OperationUnderWay
from failover.failback.export import holds_other
from failover.failback.looking import look_back
from failover.failback.operation import Beginning, first_entry, open_failback, refuse_moves_back
from failover.failback.plan import FailbackPlan, FailbackRefusal, FailbackStep
from failover.journal.standing import intent_of
from failover.journal.values import OperationLog
from failover.observing.sites import Sites
from failover.planning.intent import Intent
from failover.planning.links import this_process
from failover.running.steps import Operation
from mirror.api import Link

COLUMNS = ("operation_id", "link", "stranded_records", "export_to", "switchover_exit_code", "groups_set_back")


@click.command()
@click.option("--link", "link_name", metavar="LINK", help=LINK_HELP)
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
@dry_run_option("the plan")
@yes_option
@output_option
@click.pass_obj
def failback(
    app: AppContext,
    link_name: str | None,
    folder: Path | None,
    timeout_ms: int,
    dry_run: bool,
    yes: bool,
    output: str,
) -> None:
    """Come back to a link's source after a failover.

    Save and count what only it has, bring what was written since, move the groups to the very records that they read
    next, and let the link run as before.

    What came to the source meanwhile keeps the link from that (exit code 4): begun again, it saves that, too.

    Stop consumers at the other site first. It is an operation, in the journal at the link's target: one at a time for
    the link and the link back. Cut short, the same command goes on with it, or `farshore operation resume`, on any
    machine. Exit code otherwise: that of the switchover.
    """
    link = app.link(link_name)
    if folder is not None and holds_other(folder):
        text = f"--export-to {folder} is not empty, and is no export"
        raise CommandRefused(f"{text}; nothing was changed", "name a folder that is not there yet", ExitCode.USAGE)
    folder = folder or _folder(app, link)
    if dry_run:
        show_only(app, link, folder, output)
    intent = Intent(
        Operation.FAILBACK, (link.name,), link.source.name, link.target.name, drain_timeout_s=timeout_ms / 1000
    )
    come_back_by(app, link, intent, folder, yes, output)


def show_only(app: AppContext, link: Link, folder: Path, output: str) -> NoReturn:
    """The plan, also where the command would be refused beside another operation: that is said behind it."""

    async def look() -> tuple[FailbackPlan, OperationLog | None, OperationUnderWay | None]:
        try:
            return *await _look(app, link, folder, ""), None
        except OperationUnderWay as held:
            plan, _ = await _look(app, link, folder, "", alone=False)
            refusals = (*plan.refusals, FailbackRefusal.OPERATION_UNDER_WAY)
            return replace(plan, refusals=refusals, under_way=held.operation_id), None, held

    plan, log, not_alone = run_async(look())
    emit(plan, output)
    if output == Output.TABLE:
        tell_refusals(app, link, plan, log)
    if not_alone is not None:
        with told():
            raise not_alone
    raise SystemExit(ExitCode.REFUSED if plan.refusals else ExitCode.DONE)


def resume_failback(app: AppContext, log: OperationLog, yes: bool, output: str) -> NoReturn:
    """Go on with one of which nobody was heard, as its journal says that it was asked for."""
    intent = intent_of(log)
    link = app.link(intent.links[0])
    come_back_by(app, link, intent, _folder(app, link), yes, output, log.operation_id)


def come_back_by(
    app: AppContext, link: Link, intent: Intent, folder: Path, yes: bool, output: str, operation_id: str = ""
) -> NoReturn:
    """From the look to the exit code. `operation_id`: of the failback that is gone on with, and of no other one; "":
    whichever has not ended, or a new one.
    """
    plan, log = run_async(_look(app, link, folder, operation_id))
    if plan.refusals and output != Output.TABLE:
        emit(plan, output)
    refuse(app, link, plan, log)
    show(plan, log)
    confirm_plan(None, yes, question=f"Come back to {link.source.name}?")
    if not yes and run_async(_look(app, link, folder, operation_id)) != (plan, log):  # a person has read it meanwhile
        raise CommandRefused("the plan holds no more; nothing was changed", AGAIN, ExitCode.REFUSED)
    own_id = log.operation_id if log is not None else f"failback-{link.name}-{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
    who = this_process()
    detail = first_entry(intent.document(), who, plan.link_back, to_document(plan))
    coming = Coming(app, link, plan, Beginning(own_id, who, detail, log), intent.drain_timeout_s)
    try:
        run_async(coming.go())
    except CommandRefused:
        if output != Output.TABLE:
            emit(coming.result(), output)
        tell_cut_short(link, own_id, coming.step)
        raise
    result = coming.result()
    if FailbackStep.RESUME in coming.came_back.steps_done or not plan.steps:
        is_run = run_async(is_taken_up(link))
        stands = run_async(standing_still(link, is_run=is_run))
        back = app.link(plan.link_back) if plan.link_back else None
        steps = steps_at_end(link, stands, back, is_run=is_run, stays_paused=plan.stays_paused)
        result |= {"link_is_run": is_run, "stands_still": stands, "next": steps}
    emit(result, output, columns=COLUMNS)
    code = tell_end(link, plan, result)
    if output == Output.TABLE:
        tell_next(result["next"])
    raise SystemExit(code)


def _folder(app: AppContext, link: Link) -> Path:
    return app.state_dir / "stranded" / f"{link.name}-{datetime.now(UTC):%Y%m%dT%H%M%S}"


async def _look(
    app: AppContext, link: Link, folder: Path, operation_id: str | None, *, alone: bool = True
) -> tuple[FailbackPlan, OperationLog | None]:
    """-> the plan, and the failback that it goes on with. `alone`: refused where another operation has not ended."""

    async def look(source: Cluster | None, target: Cluster) -> tuple[FailbackPlan, OperationLog | None]:
        if source is None:
            raise no_answer(link)
        sites = Sites(link, source, target, (), now_ms)
        log = await open_failback(sites) if alone else None
        if operation_id and (log is None or log.operation_id != operation_id):
            text = f"{operation_id} is not what keeps link {link.name} by now"
            raise CommandRefused(text, f"`farshore operation show {operation_id}`", ExitCode.REFUSED)
        own_id = log.operation_id if log is not None else ""
        plan = await look_back(link, app.links(), (source, target), str(folder), own_id)
        if alone and plan.link_back:
            await refuse_moves_back(sites, app.link(plan.link_back), own_id)
        return plan, log

    return await with_both_sites(link, look)
