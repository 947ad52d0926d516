"""`farshore switchover` and `farshore failover`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from deploy.cli import failover_tables as display
from deploy.cli.next_steps import conditions_of, links_back, next_steps
from deploy.cli.parameters import Duration, GroupName, Moment
from deploy.cli.terminal import (
    AppContext,
    ExitCode,
    dry_run_option,
    output_option,
    run_async,
    yes_option,
)
from failover.errors import GateRefused, GroupsRead, HookFailed, NotDrained, NotMovable
from failover.intent import Intent
from failover.journal_log import load_operations
from failover.link_run import LinkMove, stated_losses
from failover.operation import OperationResult
from failover.plan import GateRefusal, RefusalReason
from failover.plan_file import PlanFile, check_holds, write_plan
from failover.planning import enter_sites, plan_link, this_process
from failover.sites import Sites
from failover.standing import refuse_second
from failover.steps import Operation
from failover.taking_up import begin
from mirror.api import Link


def common_options(command: Any) -> Any:
    """What both verbs take."""
    for option in (
        click.option("--link", "link_name", metavar="LINK", help="The link to move along (default: the only one)."),
        click.option(
            *("--group", "groups"),
            multiple=True,
            type=GroupName(),
            help="Only this consumer group; may be given again.",
        ),
        click.option(
            "--leave-group",
            "left_groups",
            multiple=True,
            type=GroupName(),
            metavar="GROUP",
            help="Go on where offsets of this group are unknown, and leave those; may be given again.",
        ),
        click.option(
            "--set-back",
            "set_back_groups",
            multiple=True,
            type=GroupName(),
            metavar="GROUP",
            help="Set this group back where it is ahead at the target; may be given again.",
        ),
        click.option(
            "--whole-site",
            is_flag=True,
            help="The source refuses writes to all its topics then, not only to those that the link carries.",
        ),
        click.option("--reason", default="", help="Why; it is kept in the operation's journal."),
        click.option(
            "--out",
            "out_file",
            type=click.Path(path_type=Path, dir_okay=False, writable=True),
            metavar="FILE",
            help="Write the plan there and change nothing: `farshore apply FILE` carries it out.",
        ),
        dry_run_option("the plan"),
        yes_option,
        output_option,
        click.pass_obj,
    ):
        command = option(command)
    return command


@click.command()
@common_options
@click.option(
    "--timeout",
    "timeout_ms",
    type=Duration(1_000),
    default="60s",
    show_default=True,
    help="How long to wait for the mirror to drain.",
)
@click.option(
    "--freeze/--no-freeze",
    "freezes",
    default=True,
    show_default=True,
    help="Keep clients of the source from writing, where farshore's own brokers run it.",
)
def switchover(
    app: AppContext,
    link_name: str | None,
    groups: tuple[str, ...],
    left_groups: tuple[str, ...],
    set_back_groups: tuple[str, ...],
    whole_site: bool,
    reason: str,
    out_file: Path | None,
    dry_run: bool,
    yes: bool,
    output: str,
    timeout_ms: int,
    freezes: bool,
) -> None:
    """Move to the target site as planned: freeze, drain, translate, move the groups, verify.

    The source must be alive. Stop its consumers first, and its producers where its brokers cannot refuse them. Nothing
    is lost. Exit code: 0 only when everything was verified, 4 when records came to the source after the fence.
    """
    link = app.link(link_name)
    intent = Intent(
        Operation.SWITCHOVER,
        (link.name,),
        link.source.name,
        link.target.name,
        groups=tuple(dict.fromkeys(groups)),
        left_groups=left_groups,
        set_back_groups=set_back_groups,
        freezes=freezes,
        whole_site=whole_site,
        drain_timeout_s=timeout_ms / 1000,
        reason=reason,
    )
    raise SystemExit(run_async(decide(app, intent, dry_run=dry_run, yes=yes, output=output, out_file=out_file)))


@click.command()
@common_options
@click.option(
    "--to-datetime",
    "timestamp_ms",
    type=Moment(),
    metavar="TIME",
    help="Groups go on at this time, ISO 8601 with its zone, instead of by offset map.",
)
@click.option("--allow-data-loss", is_flag=True, help="Consent to losing what was not mirrored.")
@click.option("--even-if-source-answers", is_flag=True, help="Fail over although the source still answers.")
@click.option(
    "--even-if-source-partly-there", is_flag=True, help="Fail over although a part of the source still answers."
)
def failover(
    app: AppContext,
    link_name: str | None,
    groups: tuple[str, ...],
    left_groups: tuple[str, ...],
    set_back_groups: tuple[str, ...],
    whole_site: bool,
    reason: str,
    out_file: Path | None,
    dry_run: bool,
    yes: bool,
    output: str,
    timestamp_ms: int | None,
    allow_data_loss: bool,
    even_if_source_answers: bool,
    even_if_source_partly_there: bool,
) -> None:
    """Move to the target site because the source is lost, and state per partition what is lost with it.

    Groups go on where the mirror had carried them, or at --to-datetime. Exit code: 0 only when everything was verified.
    """
    link = app.link(link_name)
    intent = Intent(
        Operation.FAILOVER,
        (link.name,),
        link.source.name,
        link.target.name,
        groups=tuple(dict.fromkeys(groups)),
        left_groups=left_groups,
        set_back_groups=set_back_groups,
        timestamp_ms=timestamp_ms,
        allow_data_loss=allow_data_loss,
        even_if_source_answers=even_if_source_answers,
        even_if_source_partly_there=even_if_source_partly_there,
        whole_site=whole_site,
        reason=reason,
    )
    raise SystemExit(run_async(decide(app, intent, dry_run=dry_run, yes=yes, output=output, out_file=out_file)))


async def decide(
    app: AppContext,
    intent: Intent,
    *,
    dry_run: bool,
    yes: bool,
    output: str,
    out_file: Path | None = None,
    applied: PlanFile | None = None,
) -> int:
    """Show the plan, get consent, carry it out, show the result; or, with `out_file`, write it there.

    `applied`: the plan that was written before, and must still hold.
    """
    async with AsyncExitStack() as stack:
        sites = [await enter_sites(stack, app.link(name), intent.groups, now_ms) for name in intent.links]
        only_plans = dry_run or out_file is not None
        if not only_plans:
            refuse_second(await load_operations(sites[0].target), (intent.source, intent.target), now_ms())
        moves = [await plan_link(intent, one, app.hooks()) for one in sites]
        if applied is not None:
            check_holds(applied, moves)
        if only_plans:
            code = await _show_only(moves, output)
            if out_file is not None and code == ExitCode.DONE:
                write_plan(out_file, intent, moves)
                click.echo(f"next: farshore apply {shlex.quote(str(out_file))}", err=True)
            return code
        for move in moves:
            display.show_plan(move.plan)
            display.refuse(move.plan, output)
        display.ask(moves[0].plan, yes, output)
        operation_id = f"{intent.operation.value}-{intent.links[0]}-{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
        extra = {} if applied is None else {"plan_digest": applied.digest}
        try:
            results = await begin(moves, intent, operation_id, this_process(), extra)
        except GateRefused as refused:
            display.tell_refused(moves[0].plan, output, *_refusals(refused, sites[0].link))
            raise
        return await tell_results(app, sites, results, output)


async def _show_only(moves: Sequence[LinkMove], output: str) -> int:
    for move in moves:
        losses = await stated_losses(move.sites, move.plan.snapshot)
        display.print_plan(replace(move.plan, losses=losses), output)
    return ExitCode.REFUSED if any(move.plan.refusals for move in moves) else ExitCode.DONE


def _refusals(refused: GateRefused, link: Link) -> list[GateRefusal]:
    """What said no when the plan was being carried out."""
    match refused:
        case NotDrained():
            return [GateRefusal(RefusalReason.NOT_DRAINED, link.name)]
        case GroupsRead():
            return [GateRefusal(RefusalReason.GROUP_ACTIVE_AT_SOURCE, group) for group in refused.groups]
        case HookFailed():
            return [GateRefusal(RefusalReason.HOOK_FAILED, link.source.name)]
        case NotMovable():
            return [GateRefusal(RefusalReason.GROUP_NOT_MOVABLE, group) for group in refused.groups]
    return []


async def tell_results(app: AppContext, sites: Sequence[Sites], results: Sequence[OperationResult], output: str) -> int:
    """The results with what to do next -> the worst exit code."""
    codes = []
    for one, result in zip(sites, results, strict=True):
        back = links_back(one.link, app.links())
        conditions = await conditions_of(back) if result.operation is Operation.SWITCHOVER else {}
        steps = next_steps(result, one.link, back, conditions)
        display.print_result(result, steps, output)
        codes.append(
            ExitCode.ERROR if not result.verified else ExitCode.FINDINGS if result.has_findings else ExitCode.DONE
        )
    return ExitCode.ERROR if ExitCode.ERROR in codes else max(codes)


def now_ms() -> int:
    return round(datetime.now(UTC).timestamp() * 1000)
