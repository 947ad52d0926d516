"""`farshore failback`: back to the site that was lost, with what only it has saved first."""

from __future__ import annotations

import contextlib
import io
import json
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import click

from broker.base.documents import to_document
from broker.client.cluster import Cluster
from deploy.cli.both_sites import with_both_sites
from deploy.cli.failover import switchover
from deploy.cli.next_steps import links_back, name_back, table_back
from deploy.cli.operation import resume_command
from deploy.cli.parameters import Duration
from deploy.cli.stranded import no_answer, read_shown
from deploy.cli.tables import counted, print_table
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
    progress,
    run_async,
    yes_option,
)
from failover.failback.carrying import SetBack, await_carried, set_groups
from failover.failback.export import export_stranded
from failover.failback.plan import BackLink, FailbackPlan, FailbackRefusal, FailbackStep, plan_failback
from failover.failback.stranding import count_in, leave_at_source, look_for_stranded, resume_settled
from failover.journal_log import load_operations
from failover.standing import OPEN_STATES, is_verified, standing_of
from mirror.api import Link, StrandedTail, read_entries, resume_link
from mirror.heartbeat import judge_heartbeat
from mirror.status import condition_now

_WORDS = {
    FailbackRefusal.NOT_PROMOTED: "link {link} was not moved away from {source}, or it runs again",
    FailbackRefusal.NAMES_DIFFER: "link {link} has prefixed names: what is written at {target} is another topic",
    FailbackRefusal.NO_LINK_BACK: "no link from {target} to {source} is declared",
    FailbackRefusal.SEVERAL_LINKS_BACK: "several links from {target} to {source} are declared",
    FailbackRefusal.LINK_BACK_SILENT: "link {back} is not run by any worker",
    FailbackRefusal.TRANSACTION_OPEN: "a transaction is open in what only {source} has",
    FailbackRefusal.TAIL_UNKNOWN: "nobody can say where what only {source} had ends, and what it wrote anew begins",
}


@click.command()
@click.option("--link", "link_name", metavar="LINK", help=LINK_HELP)
@click.option(
    "--export-to",
    "folder",
    type=click.Path(path_type=Path),
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
@click.pass_context
def failback(
    click_context: click.Context,
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

    Stop consumers at the other site first. Cut short, it is begun again and goes on. Exit code otherwise: that of the
    switchover.
    """
    app: AppContext = click_context.obj
    link = app.link(link_name)
    moment = datetime.now(UTC)
    folder = folder or app.state_dir / "stranded" / f"{link.name}-{moment:%Y%m%dT%H%M%S}"
    plan = _plan(app, link, folder)
    if dry_run:
        emit(plan, output)
        raise SystemExit(ExitCode.REFUSED if plan.refusals else ExitCode.DONE)
    _refuse(app, link, plan)
    _show(plan)
    confirm_plan(None, yes, question=f"Come back to {link.source.name}?")
    result = _carry_out(click_context, app.link(plan.link_back), link, plan, timeout_ms / 1000)
    emit(result, output, columns=("link", "stranded_records", "export_to", "switchover_exit_code", "groups_set_back"))
    if result["stranded_since"]:
        text = f"came to {link.source.name} meanwhile: link {link.name} stays promoted"
        click.echo(f"{_told(result['stranded_since'])} {text}", err=True)
        click.echo(f"hint: farshore failback --link {link.name} saves that, and lets the link run", err=True)
        raise SystemExit(ExitCode.FINDINGS)
    raise SystemExit(result["switchover_exit_code"])


def _told(tails: Sequence[StrandedTail]) -> str:
    records = count_in(tails)
    return "what is not counted yet, as a transaction is open," if records is None else counted(records, "record")


def _plan(app: AppContext, link: Link, folder: Path) -> FailbackPlan:
    backs = [back for back in links_back(link, app.links()) if back.topic_names == "same"]

    async def look(source: Cluster | None, target: Cluster) -> FailbackPlan | None:
        if source is None:
            return None
        run = (await read_entries(link, target)).run
        found = await look_for_stranded(link, source, target)
        seen = tuple([await _back(back, source) for back in backs])
        return plan_failback(found, run, seen, str(folder), same_names=link.topic_names == "same")

    plan = run_async(with_both_sites(link, look))
    if plan is None:
        raise no_answer(link)
    return plan


async def _back(back: Link, source: Cluster) -> BackLink:
    entries = await read_entries(back, source)
    heartbeat = judge_heartbeat(entries.owner, source.clock.now_ms())
    log = (await load_operations(source)).get(entries.run.operation_id) if entries.run is not None else None
    unfinished = log is not None and not is_verified(log.whole())
    return BackLink(back.name, condition_now(entries, heartbeat), entries.run, unfinished)


def _refuse(app: AppContext, link: Link, plan: FailbackPlan) -> None:
    if not plan.refusals:
        return
    named = {"link": link.name, "source": plan.source, "target": plan.target, "back": plan.link_back}
    texts = [_WORDS[refusal].format(**named) for refusal in plan.refusals]
    hint = f"farshore failback --link {link.name} --dry-run shows the plan"
    if FailbackRefusal.LINK_BACK_SILENT in plan.refusals:
        hint = f"farshore mirror run --link {plan.link_back}"
    if FailbackRefusal.NO_LINK_BACK in plan.refusals:
        hint = f"add it to {app.file}:\n{table_back(link, name_back(link, app.links()))}"
    raise CommandRefused(f"{'; '.join(texts)}. Nothing was changed", hint, ExitCode.REFUSED)


def _show(plan: FailbackPlan) -> None:
    if plan.tails:
        print_table(
            to_document(plan.tails), ("topic", "partition", "first_offset", "end_offset", "records"), "", to_stderr=True
        )
        records = counted(sum(tail.records or 0 for tail in plan.tails), "record")
        text = f"{records} that {plan.source} alone has stay in its log, are nobody's to read next, and are saved to"
        click.echo(f"{text} {plan.export_to}", err=True)
    click.echo(f"steps: {', '.join(plan.steps)}", err=True)


def _carry_out(
    click_context: click.Context, back: Link, link: Link, plan: FailbackPlan, patience_s: float
) -> dict[str, Any]:
    steps = plan.steps
    result: dict[str, Any] = {
        "link": link.name,
        "stranded_records": plan.stranded_records,
        "export_to": plan.export_to,
        "switchover_exit_code": int(ExitCode.DONE),
        "groups_set_back": (),
        "stranded_since": (),
    }
    if FailbackStep.EXPORT in steps:
        run_async(with_both_sites(link, lambda source, target: _save(link, source, target, Path(plan.export_to))))
    if FailbackStep.RESUME_BACK in steps:
        run_async(_resume(back))
    if FailbackStep.CARRY in steps:
        result["groups_set_back"] = run_async(
            with_both_sites(back, lambda here, there: _carry(back, here, there, patience_s))
        )
    if FailbackStep.SWITCH_OVER in steps:
        code, document = _switch_over(click_context, back)
        result |= {"switchover_exit_code": code, "switchover": document}
    if FailbackStep.RESUME in steps and result["switchover_exit_code"] == ExitCode.DONE:
        result["stranded_since"] = run_async(with_both_sites(link, partial(_resume_settled, link)))
    return result


async def _save(link: Link, source: Cluster | None, target: Cluster, folder: Path) -> None:
    """The files are on the disk before the link's state says anything of the records."""
    reader, found = await read_shown(link, source, target)
    await export_stranded(reader, found.undecided, folder, target.clock.now_ms())
    await leave_at_source(link, target, found.undecided, f"saved to {folder.name} by a failback")


async def _carry(back: Link, source: Cluster | None, target: Cluster, patience_s: float) -> tuple[SetBack, ...]:
    """`source` and `target` are the link back's."""
    if source is None:
        raise no_answer(back)
    with progress() as bars:
        bar = bars.add_task(f"brought to {back.target.name}", total=None)
        snapshot = await await_carried(
            back, source, target, patience_s, lambda left, there: bars.update(bar, total=there, completed=there - left)
        )
    return await set_groups(back, source, target, snapshot)


def _switch_over(click_context: click.Context, back: Link) -> tuple[int, Any]:
    """The same command that a person would give, consented to by this one's plan -> its exit code, its document."""
    said = io.StringIO()
    cut_short = run_async(_cut_short(back))
    code = int(ExitCode.DONE)
    try:
        with contextlib.redirect_stdout(said):
            if cut_short is not None:
                click_context.invoke(resume_command, operation_id=cut_short, yes=True, output=Output.JSON.value)
            else:
                click_context.invoke(switchover, link_name=back.name, yes=True, output=Output.JSON.value)
    except SystemExit as ended:
        code = int(ended.code or 0)
    return code, json.loads(said.getvalue() or "null")


async def _cut_short(back: Link) -> str | None:
    """The operation of an earlier failback that has not ended."""
    async with Cluster(back.target, client_id="farshore-cli") as target:
        standings = [standing_of(log, target.clock.now_ms()) for log in (await load_operations(target)).values()]
    found = (one for one in standings if one.state in OPEN_STATES and one.links == (back.name,))
    return next((one.operation_id for one in found), None)


async def _resume_settled(link: Link, source: Cluster | None, target: Cluster) -> tuple[StrandedTail, ...]:
    if source is None:
        raise no_answer(link)
    return await resume_settled(link, source, target, _operation_id())


def _operation_id() -> str:
    return f"failback-{uuid.uuid4().hex[:12]}"


async def _resume(link: Link) -> None:
    async with Cluster(link.target, client_id="farshore-cli") as target:
        await resume_link(link, target, _operation_id())
