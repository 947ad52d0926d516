"""Before a person lets an operation go on that was cut short: what it would do by now, beside what was consented to."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace

import click

from broker.base.errors import FarshoreError
from broker.client.fanout import side_by_side
from deploy.cli.failover_tables import show_plan
from deploy.cli.lines import filled
from deploy.cli.loss_lines import growth_line
from deploy.cli.moving import now_ms
from deploy.cli.taking_up import enter_again, hooks_of
from deploy.cli.terminal import AppContext, confirm_plan
from failover.journal.consented import consented_loss, refusing_skips
from failover.journal.noted_lacks import as_noted
from failover.journal.standing import (
    OperationStanding,
    given_up_links,
    intent_of,
    is_behind_fence,
    told_standing,
    within,
)
from failover.journal.values import OperationLog
from failover.losses.stated_losses import counted
from failover.losses.statements import LossGrowth, LossTotal, growth
from failover.observing.sites import Sites
from failover.planning.links import plan_or_refuse
from failover.planning.plan import OperationPlan
from failover.running.link_run import LinkMove
from failover.running.moves_again import NotTaken, is_promoted_by
from failover.running.steps import Operation
from mirror.api import read_entries

QUESTION = "Go on with it?"


async def consent_again(context: AppContext, log: OperationLog, standing: OperationStanding, yes: bool) -> None:
    """Show what of it is not done yet, as it is now, and how it stands, and ask; again where more is lost by the time
    of the answer than anything makes likely. With `yes` nobody is asked, and the sites are not called for it.

    Raises CommandRefused where the answer is no, and what looking raises.
    """
    told = told_standing(standing, now_ms())
    if yes:
        confirm_plan(told, yes, question=QUESTION)
        return
    plans = await _plans_now(context, log)
    consented = {name: loss for name in plans if (loss := consented_loss(log, name)) is not None}
    _tell_growth(consented, plans)
    for plan in plans.values():
        show_plan(plan)
    confirm_plan(told, yes, question=QUESTION)
    while any(plan.operation is Operation.FAILOVER for plan in plans.values()):  # a person has read it meanwhile
        shown, plans = plans, await _plans_now(context, log)
        if not _tell_growth({name: plan.loss for name, plan in shown.items()}, plans):
            return
        for plan in plans.values():
            show_plan(plan)
        confirm_plan(None, yes, question=QUESTION)


async def _plans_now(context: AppContext, log: OperationLog) -> Mapping[str, OperationPlan]:
    """By link, of those that it may yet fence; one that cannot be looked at is told, and what becomes of it then.
    Changes nothing. Raises what looking raises where none can.
    """
    given_up = given_up_links(log)
    async with AsyncExitStack() as stack:
        sites = [replace(one, within=within(log)) for one in await enter_again(stack, context, log)]
        going = [one for one in sites if one.link.name not in given_up]
        found = await side_by_side(_plan_or_error(context, log, one) for one in going)
    failed = [one for one in found if isinstance(one, NotTaken)]
    if failed and len(failed) == len(found):
        raise failed[0].error
    for one in failed:
        then = _then(one, is_begun=None in found)
        click.echo(filled(f"note: of {one.link.name}: how it stands cannot be told: {one.error}; {then}"), err=True)
    return {move.sites.link.name: move.plan for move in found if isinstance(move, LinkMove)}


def _then(failed: NotTaken, *, is_begun: bool) -> str:
    """What a resume does where it cannot be told then either, as that does it."""
    if not is_begun:
        return "no link is gone on with while that is so"
    if failed.may_be_moved:
        return "it may be moved, and while that is so the others go on alone, and the operation stays open for it"
    return "while that is so it is given up, and stays as it is then"


async def _plan_or_error(context: AppContext, log: OperationLog, sites: Sites) -> LinkMove | NotTaken | None:
    may_be_moved = is_behind_fence(log)
    try:
        if is_promoted_by(log, (await read_entries(sites.link, sites.target, only=())).run):
            return None  # of that all is decided
        may_be_moved = False
        return await _plan_now(context, log, sites)
    except FarshoreError as error:
        return NotTaken(sites.link, error, may_be_moved)


async def _plan_now(context: AppContext, log: OperationLog, sites: Sites) -> LinkMove:
    """Of a link that it has not promoted."""
    waits = not is_behind_fence(log)
    move = await plan_or_refuse(intent_of(log), as_noted(log, sites), hooks_of(context, log), waits=waits)
    return await counted(replace(move, plan=refusing_skips(log, move.plan)), always=False)


def _tell_growth(before: Mapping[str, LossTotal], now: Mapping[str, OperationPlan]) -> bool:
    """Whether of any link more is lost than what was shown of it makes likely; what is, is told."""
    is_beyond = False
    for name, plan in now.items():
        shown = before.get(name)
        if shown is None or plan.operation is not Operation.FAILOVER:
            continue
        grown = growth(shown, plan.loss)
        if grown is LossGrowth.BEYOND:
            click.echo(filled(growth_line(shown, plan.loss, plan.snapshot.source, grown)), err=True)
            is_beyond = True
    return is_beyond
