"""`farshore link resume --adopt`: what a target already holds becomes the link's own."""

from __future__ import annotations

import uuid
from dataclasses import replace
from functools import partial

import click
from rich.progress import Progress, TaskID

from broker.client.cluster import Cluster
from deploy.cli.both_sites import with_both_sites
from deploy.cli.lines import with_command
from deploy.cli.resuming import Resuming
from deploy.cli.terminal import CommandRefused, ExitCode, Output, confirm_plan, emit, progress, run_async
from mirror.findings import resume_command
from mirror.link import Link
from mirror.offsets.adoption import Adoption
from mirror.offsets.entries import LinkRun
from mirror.offsets.operations import adopt_partitions
from mirror.outlook import outlook_on
from mirror.resumption import ResumePlan, check_adoptable, name_of
from mirror.status import LinkCondition
from mirror.worker.adopting import compare_for_adoption
from mirror.worker.matching import Unmatched


def adopt_target(link: Link, plan: ResumePlan, seen: LinkRun | None, *, dry_run: bool, yes: bool, output: str) -> None:
    """Compare both logs of each partition that stands at a gap of the plan; with consent, write the map of them.

    `seen`: what the link might do when it was looked at. Nothing is written where one of them is no mirror.
    """
    if plan.condition is LinkCondition.PROMOTED:  # who lets it run decides about what only its source has
        text = f"link {link.name} was promoted, and adopting would let it run. Nothing was changed"
        hint = f"let it run first: farshore link resume --link {link.name}; then type the same again"
        raise CommandRefused(text, hint, ExitCode.REFUSED)
    with progress() as bars:
        adoptions = run_async(with_both_sites(link, partial(_compare, link, plan, bars)))
    shown = replace(plan, outlooks=tuple(outlook_on(adoption) for adoption in adoptions), adopts=True)
    if dry_run:
        emit(shown, output)
        return
    confirm_plan(shown, yes, question=f"Let link {link.name} take these records at {link.target.name} for its own?")
    is_run = plan.condition is not LinkCondition.PAUSED
    going = Resuming(link, seen, f"adopt-{uuid.uuid4().hex[:12]}", amid_failback=is_run)
    run_async(with_both_sites(link, partial(adopt, going, adoptions)))
    tell_that_it_may_run(link)
    if output != Output.TABLE:
        emit(shown, output)


def tell_that_it_may_run(link: Link) -> None:
    """Say what is left to do."""
    start = f"farshore mirror run --link {link.name}"
    click.echo(with_command(f"link {link.name} may run: where no mirror runs, start it", start), err=True)


async def _compare(
    link: Link, plan: ResumePlan, bars: Progress, source: Cluster | None, target: Cluster
) -> list[Adoption]:
    check_adoptable(plan)
    if source is None:
        text = f"site {link.source.name} does not answer: whose records {link.target.name} has is seen by both logs"
        raise CommandRefused(text, "try again when it answers")
    adoptions = []
    for gap in plan.accepts:
        task = bars.add_task(f"comparing {name_of(gap)}", total=None)

        report = partial(_show, bars, task)
        found = await compare_for_adoption(link, source, target, gap, report)
        if isinstance(found, Unmatched):
            text = f"{name_of(gap)} cannot be adopted: {found.reason}"
            hint = f"to mirror behind what is there: {resume_command(link.name, gap)}; or empty the target partition"
            raise CommandRefused(text, hint, ExitCode.REFUSED)
        adoptions.append(found)
    return adoptions


def _show(bars: Progress, task: TaskID, read: int, total: int) -> None:
    bars.update(task, completed=read, total=total)


async def adopt(going: Resuming, adoptions: list[Adoption], source: Cluster | None, target: Cluster) -> None:
    """Raises WorldChanged, OperationUnderWay, and what the writing does."""
    check = partial(going.check, source, target)
    await adopt_partitions(going.link, target, going.operation_id, adoptions, check)
