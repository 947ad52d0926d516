"""`farshore link`: links as declared, and what they would do at their targets."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

import click

from broker.base.documents import to_document
from broker.client.cluster import Cluster
from broker.client.offsets import list_offsets, log_end_offsets
from broker.wire.vocabulary import TopicPartition
from deploy.cli.adopting import adopt_target, tell_that_it_may_run
from deploy.cli.both_sites import note_lost_source, with_both_sites
from deploy.cli.cutting import cut_anew
from deploy.cli.deciding import are_clients_at_target, steps_behind_resume
from deploy.cli.failover_tables import tell_next
from deploy.cli.parameters import GapOption, PartitionName, StartOption, StartTime
from deploy.cli.resuming import Resuming, amid_no_operation, note_partings, refuse_amid_move, tell_nothing_to_do
from deploy.cli.rights import rights_command
from deploy.cli.status import tell_next_steps
from deploy.cli.stranded_ways import StrandedWay, TailsGoing, stranded_in_the_way, tell_tails
from deploy.cli.terminal import (
    AppContext,
    CommandRefused,
    ExitCode,
    Output,
    confirm_plan,
    dry_run_option,
    emit,
    output_option,
    run_async,
    yes_option,
)
from deploy.cli.undecided import looks_behind_resume
from failover.planning.to_datetime import first_record_at
from mirror.description import declare_link, describe_link
from mirror.errors import GapNotOpen
from mirror.link import UNITS_MAX, Link
from mirror.offsets.entries import Gap
from mirror.offsets.operations import pause_link, restart_link
from mirror.offsets.state import read_entries
from mirror.offsets.state_entries import StateEntries
from mirror.outlook import look_ahead
from mirror.resumption import GapName, ResumeBlocker, ResumePlan, RetryPlan, name_of, plan_resume, plan_retry
from mirror.status import LinkCondition, condition_of

T = TypeVar("T")

link_option = click.option("--link", "link_name", metavar="LINK", help="The link (default: the only one).")


@click.group("link")
def link_group() -> None:
    """Links: list, describe, pause, resume, restart, try again, cut anew; the rights that they need."""


link_group.add_command(rights_command)


@link_group.command("list")
@output_option
@click.pass_obj
def list_command(context: AppContext, output: str) -> None:
    """List the links of farshore.toml."""
    emit([declare_link(link) for link in context.links()], output)


@link_group.command("describe")
@link_option
@output_option
@click.pass_obj
def describe_command(context: AppContext, link_name: str | None, output: str) -> None:
    """Show what a link mirrors, what it would create or change at the target, and what speaks against it."""
    link = context.link(link_name)
    description = run_async(with_both_sites(link, partial(describe_link, link)))
    emit(description, output)
    if output == Output.TABLE:
        tell_next_steps(description.stopped)
    if not description.source_answers:
        note_lost_source(link)


@link_group.command("resume")
@link_option
@click.option(
    "--gap",
    "named",
    type=GapOption(),
    multiple=True,
    metavar="TOPIC:PARTITION[@OFFSET]",
    help="Consent to the gap at which this partition stands, so that it goes on; may be given several times.",
)
@click.option(
    "--start-at",
    type=StartOption(),
    metavar="OFFSET|TIME",
    help="Of gaps of kind target_not_empty: the first source offset to mirror (default: where the source begins), or "
    "an ISO 8601 time with its zone: the first record of that time or later.",
)
@click.option(
    "--adopt",
    is_flag=True,
    help="Of gaps of kind target_not_empty: read both logs, and where the target's records are the source's, in their "
    "order, take them for the link's own and go on behind them.",
)
@click.option(
    "--stranded",
    "way",
    type=click.Choice([way.value for way in StrandedWay]),
    help="Of a promoted link: what becomes of all records that only its source has; to be said where its target has "
    "newer ones. leave: they stay there alone, and none is mirrored; append: they are mirrored behind what is there.",
)
@dry_run_option("what would be written")
@yes_option
@output_option
@click.pass_obj
def resume_command(
    context: AppContext,
    link_name: str | None,
    named: tuple[GapName, ...],
    start_at: int | StartTime | None,
    adopt: bool,
    way: str | None,
    dry_run: bool,
    yes: bool,
    output: str,
) -> None:
    """Let a link run again after a failover or a pause, or behind a gap. A running mirror notices by itself.

    What accepting a gap means is shown first, as both sites are now: what is skipped, what is mirrored again.
    """
    link = context.link(link_name)
    if adopt and (start_at is not None or not named):
        raise click.UsageError("--adopt needs --gap, and says by itself where the link goes on: leave out --start-at")
    entries, plan = run_async(with_both_sites(link, partial(_plan, link, named, start_at)))
    if adopt and isinstance(plan, ResumePlan):
        adopt_target(link, plan, entries.run, dry_run=dry_run, yes=yes, output=output)
        return
    if plan is ResumeBlocker.MAY_RUN_ALREADY:
        tell_nothing_to_do(link, f"link {link.name} may run already: there is nothing to resume", dry_run=dry_run)
        if output != Output.TABLE:
            emit({"link": link.name, "blocker": plan}, output)
        return
    if isinstance(plan, ResumeBlocker):
        raise _refusal(link, entries, plan)
    _show_and_resume(context, link, (entries, plan), StrandedWay(way) if way else None, Manner(dry_run, yes, output))


class Manner(NamedTuple):
    """How a command is carried out."""

    dry_run: bool
    yes: bool
    output: str


def _show_and_resume(
    context: AppContext,
    link: Link,
    looked: tuple[StateEntries, ResumePlan],
    chosen: StrandedWay | None,
    manner: Manner,
) -> None:
    """What it means is shown, and consented to; then the link is let run, and it is said how one goes on."""
    (entries, plan), (dry_run, yes, output) = looked, manner
    is_stopped = plan.condition in (LinkCondition.PROMOTED, LinkCondition.PAUSED)
    if is_stopped and not dry_run:
        run_async(with_both_sites(link, partial(amid_no_operation, link)))
    elif not dry_run:
        refuse_amid_move(link)
    stays = stranded_in_the_way(link, plan, chosen)
    if is_stopped:
        note_partings(link)
    shown = {**to_document(plan), "leaves_at_source": stays.leaves, "brings": stays.brings}
    shown["replayed_copies"] = stays.copies
    if dry_run:
        emit(plan if output == Output.TABLE else shown, output)
        tell_tails(link, stays, output)
        return
    tell_tails(link, stays, output, to_stderr=True)
    confirm_plan(plan, yes, question=f"Let link {link.name} write to {link.target.name} again?")
    if not yes and _is_other(stays, stranded_in_the_way(link, plan, chosen)):  # a person has read it meanwhile
        text = f"what only {link.source.name} has is not what it was. Nothing was changed"
        raise CommandRefused(text, "type the same again, and look at it as it is now", ExitCode.REFUSED)
    at_target = run_async(with_both_sites(link, partial(are_clients_at_target, link, context.links())))
    going = Resuming(link, entries.run, _operation("resume"), amid_failback=not is_stopped)
    run_async(with_both_sites(link, partial(going.resume, plan.accepts, stays.leaves)))
    looks = looks_behind_resume(link, context.links(), are_asked=bool(at_target))
    back, conditions, undecided = run_async(looks)
    steps = (*undecided, *steps_behind_resume(link, back.links, conditions, at_target, context.links()))
    now = run_async(_condition(link))
    if output != Output.TABLE:
        emit({**shown, "condition": now, "operation_id": going.operation_id, "next": steps}, output)
    else:
        click.echo(f"link {link.name}: it was {plan.condition}, and is {now}", err=True)
    tell_that_it_may_run(link)
    if output == Output.TABLE:
        tell_next(steps)


def _is_other(told: TailsGoing, now: TailsGoing) -> bool:
    """Whether other records stay than was told, or more come behind newer ones; where they could not be counted it was
    told that all do, which is more than any number. Pure.
    """
    if told.leaves != now.leaves or (told.brings is not None and now.brings is None):
        return True
    ends = {tail.where: tail.end_offset for tail in told.brings or () if tail.target_wrote}
    come = [tail for tail in now.brings or () if tail.target_wrote]
    return told.brings is not None and any(tail.end_offset > ends.get(tail.where, 0) for tail in come)


def _refusal(link: Link, entries: StateEntries, blocker: ResumeBlocker) -> CommandRefused:
    if blocker is ResumeBlocker.NEVER_RAN:
        return CommandRefused(f"link {link.name} never ran", f"start it: farshore mirror run --link {link.name}")
    gaps = list(entries.open_gaps().values())
    text = f"link {link.name} stands still at {len(gaps)} gaps"
    hint = f"look at one: farshore link resume --link {link.name} --gap {name_of(gaps[0])} --dry-run"
    return CommandRefused(text, hint, ExitCode.REFUSED)


@link_group.command("pause")
@link_option
@click.pass_obj
def pause_command(context: AppContext, link_name: str | None) -> None:
    """Mirror nothing more of a link until it is resumed: it keeps its positions, and its lag grows.

    A running mirror notices within some seconds, wherever it runs, and stays; one that starts waits, too.
    """
    link = context.link(link_name)
    condition = run_async(_condition(link))
    if condition is LinkCondition.PAUSED:
        click.echo(f"link {link.name} is paused already", err=True)
        return
    refuse_where_nothing_runs(link, condition)
    run_async(_at_target(link, lambda target: pause_link(link, target, _operation("pause"))))
    click.echo(f"link {link.name} is paused; to let it run again: farshore link resume --link {link.name}", err=True)


@link_group.command("restart")
@link_option
@click.pass_obj
def restart_command(context: AppContext, link_name: str | None) -> None:
    """Let a running mirror begin a new session of a link, as a start would; no other link notices."""
    link = context.link(link_name)
    condition = run_async(_condition(link))
    refuse_where_nothing_runs(link, condition)
    if condition is LinkCondition.PAUSED:
        raise _not_paused(link)
    run_async(_at_target(link, lambda target: restart_link(link, target, _operation("restart"))))
    click.echo(f"link {link.name}: a running mirror begins a new session", err=True)


@link_group.command("cut")
@link_option
@click.option(
    "--units", type=click.IntRange(1, UNITS_MAX), required=True, help="How many sets its partitions are dealt into."
)
@click.option(
    "--pin",
    "pins",
    type=PartitionName(),
    multiple=True,
    metavar="TOPIC:PARTITION",
    help="A partition that gets a unit of its own, beside those; may be given several times.",
)
@dry_run_option("what would change")
@yes_option
@output_option
@click.pass_obj
def cut_command(
    context: AppContext, link_name: str | None, units: int, pins: tuple[str, ...], dry_run: bool, yes: bool, output: str
) -> None:
    """Cut a link that has run into other units. It stands still for some seconds; nothing is lost or repeated.

    Cut short it leaves the link paused: type the same again, or resume it. Write the same into farshore.toml.
    """
    named = [(topic, int(partition)) for topic, _, partition in (pin.rpartition(":") for pin in pins)]
    cut_anew(context.link(link_name), units, named, dry_run=dry_run, yes=yes, output=output)


def refuse_where_nothing_runs(link: Link, condition: LinkCondition) -> None:
    """Raise CommandRefused where there is no link that could be paused."""
    if condition is LinkCondition.NEVER_RAN:
        raise CommandRefused(f"link {link.name} never ran", f"start it: farshore mirror run --link {link.name}")
    if condition is LinkCondition.PROMOTED:
        raise _not_promoted(link)


def _not_promoted(link: Link) -> CommandRefused:
    text = f"link {link.name} does not run: {link.target.name} was promoted"
    return CommandRefused(text, f"let it run again: farshore link resume --link {link.name}", ExitCode.REFUSED)


def _not_paused(link: Link) -> CommandRefused:
    text = f"link {link.name} does not run: it is paused"
    return CommandRefused(text, f"let it run again: farshore link resume --link {link.name}", ExitCode.REFUSED)


@link_group.command("retry")
@link_option
@dry_run_option("what would be tried again")
@yes_option
@click.pass_obj
def retry_command(context: AppContext, link_name: str | None, dry_run: bool, yes: bool) -> None:
    """Try now what a link holds, whenever it would be tried next: after a right was given, or a disk was mended.

    The link fences anew for it, which takes a running mirror about as long as a start.
    """
    link = context.link(link_name)
    entries, plan = run_async(with_both_sites(link, partial(_plan_retry, link)))
    if plan is ResumeBlocker.NOTHING_HELD:
        tell_nothing_to_do(link, f"link {link.name} holds nothing: there is nothing to try again", dry_run=dry_run)
        return
    if plan is ResumeBlocker.PROMOTED:
        raise _not_promoted(link)
    if plan is ResumeBlocker.PAUSED:
        raise _not_paused(link)
    if isinstance(plan, ResumeBlocker):
        raise _refusal(link, entries, plan)
    if dry_run:
        emit(plan, "table")
        return
    confirm_plan(plan, yes, question=f"Let link {link.name} begin anew, with all of these?")
    begun_anew = Resuming(link, entries.run, _operation("retry"), amid_failback=True)
    run_async(with_both_sites(link, partial(begun_anew.resume, (), ())))
    click.echo(
        f"link {link.name}: a running mirror tries them now; farshore status --link {link.name} shows what is left",
        err=True,
    )


async def _plan_retry(
    link: Link, _source: Cluster | None, target: Cluster
) -> tuple[StateEntries, RetryPlan | ResumeBlocker]:
    entries = await read_entries(link, target)
    return entries, plan_retry(link, entries)


async def _plan(
    link: Link, named: Sequence[GapName], start_at: int | StartTime | None, source: Cluster | None, target: Cluster
) -> tuple[StateEntries, ResumePlan | ResumeBlocker]:
    entries = await read_entries(link, target)
    try:
        plan = plan_resume(link, entries, named)
    except GapNotOpen as error:
        hint = f"farshore status --link {link.name} has those that there are"
        raise CommandRefused(str(error), hint, ExitCode.USAGE) from error
    if isinstance(plan, ResumePlan) and start_at is not None:
        plan = plan_resume(link, entries, named, await _starts(link, plan.accepts, start_at, source))
    if isinstance(plan, ResumePlan) and plan.accepts:
        outlooks = await look_ahead(link, (source, target), entries, plan.accepts)
        plan = replace(plan, outlooks=outlooks)
    return entries, plan


async def _starts(
    link: Link, gaps: Sequence[Gap], start_at: int | StartTime, source: Cluster | None
) -> Mapping[tuple[str, int], int]:
    """Per partition the source offset to begin at; where nothing was written since that time, the log's end."""
    partitions = [TopicPartition(gap.topic, gap.partition) for gap in gaps]
    if not isinstance(start_at, StartTime) and len(partitions) > 1:
        text = f"offset {start_at} is one of one partition, and {len(partitions)} gaps are named"
        raise CommandRefused(text, "name one --gap for each --start-at OFFSET, or a time for all of them")
    if source is None:
        text = f"site {link.source.name} does not answer: it knows where its records are"
        raise CommandRefused(text, "try again when it answers")
    ends = await log_end_offsets(source, partitions)
    if not isinstance(start_at, StartTime):
        for where, end in ends.items():
            if start_at > end:
                text = f"offset {start_at} lies beyond the end of {where} at {link.source.name}, which is {end}"
                raise CommandRefused(text, f"name an offset up to {end}, or a time")
        return dict.fromkeys(partitions, start_at)
    found = await list_offsets(source, dict.fromkeys(partitions, start_at.timestamp_ms))
    return {
        where: await first_record_at(source, where, at.offset, ends[where], start_at.timestamp_ms)
        for where, at in found.items()
    }


async def _condition(link: Link) -> LinkCondition:
    async def look(target: Cluster) -> LinkCondition:
        return condition_of(await read_entries(link, target))

    return await _at_target(link, look)


async def _at_target(link: Link, do: Callable[[Cluster], Awaitable[T]]) -> T:
    async with Cluster(link.target, client_id="farshore-cli") as target:
        return await do(target)


def _operation(what: str) -> str:
    return f"{what}-{uuid.uuid4().hex[:12]}"
