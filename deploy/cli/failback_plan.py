"""A failback's plan, in lines: what is saved, which groups come back and from where they go on, and the steps."""

from __future__ import annotations

from collections.abc import Sequence

import click

from broker.base.documents import to_document
from deploy.cli.group_lines import tell_totals
from deploy.cli.left_range_lines import left_range_lines
from deploy.cli.lines import filled
from deploy.cli.tables import counted, print_table
from failover.failback.plan import FailbackPlan
from failover.journal.values import OperationLog

NAMES_SHOWN = 10
TAIL_COLUMNS = ("topic", "partition", "first_offset", "end_offset", "records")


def show(plan: FailbackPlan, log: OperationLog | None, *, to_stderr: bool = True) -> None:
    """`log`: of the failback that is gone on with. On stdout where it is what was asked for."""
    along = f", along {plan.link_back}" if plan.link_back else ""
    click.echo(filled(f"failback of {plan.link}: {plan.target} -> {plan.source}{along}"), err=to_stderr)
    if log is not None:
        click.echo(filled(f"goes on with {log.operation_id}, which was cut short"), err=to_stderr)
    if plan.tails:
        print_table(to_document(plan.tails), TAIL_COLUMNS, "", to_stderr=to_stderr)
        records = counted(sum(tail.records or 0 for tail in plan.tails), "record")
        text = f"{records} that {plan.source} alone has stay in its log, before what {plan.target} wrote"
        click.echo(filled(f"{text}, and are saved to {plan.export_to}"), err=to_stderr)
    if plan.left_records:
        left = counted(plan.left_records, "record")
        text = f"{left} that {plan.source} alone has stay in its log, too, as was decided before"
        click.echo(filled(text), err=to_stderr)
    if plan.left_replayed != 0:
        click.echo(filled(_twice_line(plan)), err=to_stderr)
    tell_left_at_target(plan, to_stderr=to_stderr)
    if not plan.groups_known:
        text = f"which groups went along {plan.link}, or came back, no journal tells: all are taken to have gone"
        click.echo(filled(text), err=to_stderr)
    if plan.groups_back:
        click.echo(filled(f"come back to {plan.source}: {names_of(plan.groups_back)}"), err=to_stderr)
    _tell_groups(plan, to_stderr=to_stderr)
    if plan.groups_stay:
        text = f"were not moved to {plan.target}, and stay as they are: {names_of(plan.groups_stay)}"
        click.echo(filled(text), err=to_stderr)
    if plan.reads_tail:
        groups = tuple(dict.fromkeys(one.group for one in plan.reads_tail))
        text = f"stand before what {plan.source} alone has, and come to it: {names_of(groups)}"
        click.echo(filled(f"{text} (-o json has how many records of each partition)"), err=to_stderr)
    if plan.foreseen.skips:
        groups = tuple(dict.fromkeys(one.group for one in plan.foreseen.skips))
        text = f"skip what {plan.source} has lost and {plan.target} has, as its retention took it: {names_of(groups)}"
        click.echo(filled(f"{text} (-o json has how many records of each partition)"), err=to_stderr)
    if plan.groups_gone:
        text = f"have no offset at {plan.target} any more; what they have at {plan.source} stays as it is"
        click.echo(filled(f"{text}: {names_of(plan.groups_gone)}"), err=to_stderr)
    if plan.stays_paused:
        click.echo(filled(f"paused along {plan.link}, and stay so: {names_of(plan.stays_paused)}"), err=to_stderr)
    steps = f"steps: {', '.join(plan.steps) or 'none is left'}"
    if plan.refusals:
        steps = f"refused; it would be: {', '.join(plan.steps)}" if plan.steps else "refused"
    click.echo(filled(steps), err=to_stderr)


def _twice_line(plan: FailbackPlan) -> str:
    """Of what is left at the source, and comes from the target, too."""
    if plan.left_replayed is None:
        text = f"whether some of these were replayed at {plan.target} is not known: such come back, and {plan.source}"
        return f"{text} has them twice"
    return (
        f"{plan.left_replayed} of these were replayed at {plan.target}, and come back with what it has: {plan.source} "
        "has them twice, and groups that stand before both read them twice"
    )


def _tell_groups(plan: FailbackPlan, *, to_stderr: bool) -> None:
    """What each reads again at the old source, and skips; why, and what is in neither count."""
    if not plan.group_totals:
        return
    tell_totals(plan.group_totals, to_stderr=to_stderr)
    told = []
    if back := tuple(dict.fromkeys(one.group for one in plan.foreseen.set_back)):
        text = f"stand further at {plan.source} than at {plan.target}, and are set back to where they go on"
        told.append(f"{text}: {names_of(back)} (-o json has from which offset to which)")
    if plan.foreseen.to_be_brought:
        text = f"what these read again and skip is not known before {plan.link_back} has brought what they read at"
        told.append(f"{text} {plan.target}: {names_of(plan.foreseen.to_be_brought)}")
    if plan.tails or plan.left_records != 0:
        text = f"what {plan.source} alone has does not count as skipped: groups that go on behind it do not come to it"
        told.append(text)
    for line in told:
        click.echo(filled(line), err=to_stderr)


def tell_left_at_target(plan: FailbackPlan, *, to_stderr: bool = True) -> None:
    """What does not come, as was decided before."""
    for line in left_range_lines(plan.left_at_target, plan.link_back, plan.target, plan.source):
        click.echo(filled(line), err=to_stderr)


def names_of(groups: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(groups) - NAMES_SHOWN} more" if len(groups) > NAMES_SHOWN else ""
    return ", ".join(groups[:NAMES_SHOWN]) + more
