"""`farshore link cut`: a link that has run is cut into other units."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

import click

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from deploy.cli.terminal import CommandRefused, ExitCode, Output, confirm_plan, emit, run_async
from mirror.cut_plan import CutBlocker, CutPlan, pin_names, plan_cut
from mirror.link import UNITS_MAX, Link, Pin
from mirror.offsets.cutting import cut_in_words
from mirror.offsets.recutting import CUT_PREFIX, cut_link
from mirror.offsets.state import read_entries


@dataclass(frozen=True, slots=True)
class CutDone:
    """How the link is cut now; `epoch` grows with each time. `file_agrees`: so does the link's table."""

    link: str
    units: int
    pins: tuple[str, ...]
    epoch: int
    file_agrees: bool


def cut_anew(link: Link, units: int, pins: Sequence[Pin], *, dry_run: bool, yes: bool, output: str) -> None:
    """Show what changes, and with consent cut the link."""
    wanted = _wanted(link, units, pins)
    plan = run_async(_plan(wanted))
    if plan is CutBlocker.CUT_SO_ALREADY:
        click.echo(f"link {link.name} is cut so already: {cut_in_words(wanted)}", err=True)
        return
    if isinstance(plan, CutBlocker):
        raise _refusal(wanted, plan)
    if dry_run:
        emit(plan, output)
        return
    confirm_plan(plan, yes, question=f"Let link {link.name} stand still, and cut it anew?")
    try:
        done = run_async(_cut(link, wanted))
    except ClientError as error:
        text = f"{error}. Link {link.name} may be left paused, by the old deal or the new one: nothing is lost"
        raise CommandRefused(text, f"type the same again, or: farshore link resume --link {link.name}") from error
    if output != Output.TABLE:
        emit(done, output)
    click.echo(f"link {link.name} is cut anew: {cut_in_words(wanted)}", err=True)
    if not done.file_agrees:
        text = f"write that for the link in {link.name}'s table of farshore.toml: workers with another file are refused"
        click.echo(text, err=True)
    if plan.stays_paused:
        click.echo(f"it is paused, as it was; to let it run: farshore link resume --link {link.name}", err=True)


def _wanted(link: Link, units: int, pins: Sequence[Pin]) -> Link:
    """Raises click.UsageError."""
    wanted = replace(link, units=units, pins=tuple(sorted(set(pins))))
    if wanted.unit_count > UNITS_MAX:
        raise click.UsageError(f"--units and --pin are {wanted.unit_count} units: {UNITS_MAX} at most")
    for topic, partition in wanted.pins:
        if not link.selects_topic(topic) or topic == link.canary_topic:
            raise click.UsageError(f"--pin {topic}:{partition}: link {link.name} mirrors no such topic")
    return wanted


async def _plan(wanted: Link) -> CutPlan | CutBlocker:
    async with Cluster(wanted.target, client_id="farshore-cli") as target:
        return plan_cut(await read_entries(wanted, target), wanted.units, wanted.pins)


async def _cut(declared: Link, wanted: Link) -> CutDone:
    async with Cluster(wanted.target, client_id="farshore-cli") as target:
        operation_id = f"{CUT_PREFIX}{uuid.uuid4().hex[:12]}"
        deal = await cut_link(wanted, target, operation_id, wanted.units, wanted.pins)
    return CutDone(wanted.name, deal.units, pin_names(wanted), deal.epoch, file_agrees=declared == wanted)


def _refusal(link: Link, blocker: CutBlocker) -> CommandRefused:
    if blocker is CutBlocker.NEVER_RAN:
        hint = f"write {cut_in_words(link)} in its table of farshore.toml before it does"
        return CommandRefused(f"link {link.name} never ran: there is nothing to cut anew", hint)
    text = f"link {link.name} does not run: {link.target.name} was promoted"
    return CommandRefused(text, f"let it run again: farshore link resume --link {link.name}", ExitCode.REFUSED)
