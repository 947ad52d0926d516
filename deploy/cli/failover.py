"""`farshore switchover` and `farshore failover`."""

from __future__ import annotations

import os
import socket
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from broker.client.cluster import Cluster
from broker.client.fanout import both
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
from failover.contact import CLIENT_ID, reach
from failover.errors import GroupsRead, HookFailed, NotDrained, NotMovable
from failover.freezing import Freezing, read_roles
from failover.journal import Journal, sole_operation
from failover.operation import Sites, carry_out, mark_interrupted, stated_losses
from failover.plan import GateRefusal, Operation, OperationPlan, RefusalReason, plan_failover, plan_switchover
from failover.to_datetime import moves_to
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

    async def main() -> int:
        async with AsyncExitStack() as stack:
            if not dry_run:
                stack.enter_context(sole_operation(_journals(app), link.name, _who()))
            sites = await _enter(stack, link, tuple(dict.fromkeys(groups)))
            roles = await read_roles(link, sites.source, sites.target, whole_site=whole_site)
            plan = plan_switchover(
                mark_interrupted(await sites.look(), _journals(app)),
                left_groups=left_groups,
                set_back_groups=set_back_groups,
                freezing=replace(roles, freezes=freezes, hooks=app.hooks()),
            )
            return await _decide(app, plan, sites, dry_run=dry_run, yes=yes, output=output, timeout_s=timeout_ms / 1000)

    raise SystemExit(run_async(main()))


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

    async def main() -> int:
        async with AsyncExitStack() as stack:
            if not dry_run:
                stack.enter_context(sole_operation(_journals(app), link.name, _who()))
            sites = await _enter(stack, link, tuple(dict.fromkeys(groups)))
            snapshot = mark_interrupted(await sites.look_past_source(), _journals(app))
            sites = sites.as_found(snapshot)
            plan = plan_failover(
                snapshot,
                allow_data_loss=allow_data_loss,
                even_if_source_answers=even_if_source_answers,
                even_if_source_partly_there=even_if_source_partly_there,
                moves=None if timestamp_ms is None else await moves_to(snapshot, sites.target, timestamp_ms),
                left_groups=left_groups,
                set_back_groups=set_back_groups,
                freezing=await _freezing_source(sites, whole_site),
            )
            return await _decide(app, plan, sites, dry_run=dry_run, yes=yes, output=output, timeout_s=0.0)

    raise SystemExit(run_async(main()))


async def _freezing_source(sites: Sites, whole_site: bool) -> Freezing:
    """A source that is left becomes the standby site, as far as it is there."""
    roles = await read_roles(sites.link, sites.source, sites.target, whole_site=whole_site, even_without_source=True)
    return replace(roles, freezes=True)


async def _enter(stack: AsyncExitStack, link: Link, groups: tuple[str, ...]) -> Sites:
    """Both clusters, called at the same time; the source is None when none of its brokers lets it be asked."""
    target = Cluster(link.target, client_id=CLIENT_ID)
    _, (source, answers) = await both(stack.enter_async_context(target), reach(stack, link.source, _now_ms))
    return Sites(link, source, target, groups, _now_ms, answers)


def _journals(app: AppContext) -> Path:
    return app.state_dir / "operations"


def _who() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}, since {datetime.now(UTC).isoformat(timespec='seconds')}"


def _now_ms() -> int:
    return round(datetime.now(UTC).timestamp() * 1000)


async def _decide(
    app: AppContext, plan: OperationPlan, sites: Sites, *, dry_run: bool, yes: bool, output: str, timeout_s: float
) -> int:
    """Show the plan, get consent, carry it out, show the result."""
    if dry_run:
        losses = await stated_losses(sites, plan.snapshot)
        display.print_plan(replace(plan, losses=losses), output)
        return ExitCode.REFUSED if plan.refusals else ExitCode.DONE
    display.show_plan(plan)
    display.refuse(plan, output)
    display.ask(plan, yes, output)
    operation_id = f"{plan.operation.value}-{sites.link.name}-{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
    journal = Journal(_journals(app), operation_id, lambda: datetime.now(UTC).isoformat())
    try:
        result = await carry_out(plan, sites, journal, timeout_s)
    except NotDrained:
        display.tell_refused(plan, output, GateRefusal(RefusalReason.NOT_DRAINED, sites.link.name))
        raise
    except GroupsRead as refused:
        named = [GateRefusal(RefusalReason.GROUP_ACTIVE_AT_SOURCE, group) for group in refused.groups]
        display.tell_refused(plan, output, *named)
        raise
    except HookFailed:
        display.tell_refused(plan, output, GateRefusal(RefusalReason.HOOK_FAILED, sites.link.source.name))
        raise
    except NotMovable as refused:
        named = [GateRefusal(RefusalReason.GROUP_NOT_MOVABLE, group) for group in refused.groups]
        display.tell_refused(plan, output, *named)
        raise
    finally:
        journal.close()
    back = links_back(sites.link, app.links())
    conditions = await conditions_of(back) if result.operation is Operation.SWITCHOVER else {}
    takes_writes = plan.freezing.target is not None and result.source_role is None  # both are ours, or neither
    topics = plan.freezing.topics
    steps = next_steps(result, sites.link, back, conditions, takes_writes=takes_writes, topics=topics)
    display.print_result(result, steps, output)
    if not result.verified:
        return ExitCode.ERROR
    return ExitCode.FINDINGS if result.stranded else ExitCode.DONE
