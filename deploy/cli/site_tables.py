"""The move of all links between two sites, as people read it: one table of links, one of what stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from broker.base.documents import to_document
from deploy.cli.elsewhere_lines import silent_lines
from deploy.cli.failover_tables import (
    show_result,
    summary,
    tell_lacks,
    tell_left,
    tell_loss,
    tell_next,
    tell_paused,
    tell_pending,
    tell_source,
    tell_unanswered,
)
from deploy.cli.group_lines import MOVES_SHOWN, kept_lines, place_lines, total_lines
from deploy.cli.late_lines import not_compared_line, was_paused_lines
from deploy.cli.lines import filled
from deploy.cli.loss_lines import behind_line, headline
from deploy.cli.next_steps import NextStep
from deploy.cli.refusals import Ending, ended_by
from deploy.cli.site_gates import reasons_of_site, site_refused_by
from deploy.cli.stay_lines import tell_stays
from deploy.cli.tables import counted, print_table
from deploy.cli.terminal import CommandRefused, Output, confirm_plan, emit
from failover.freezing.choice import joined
from failover.journal.standing import OperationState
from failover.losses.statements import LossTotal, sum_losses, with_unasked
from failover.planning.gates import GateRefusal, RefusalReason
from failover.planning.intent import Intent
from failover.planning.moves import GroupMove, group_totals
from failover.planning.plan import OperationPlan
from failover.planning.site_plan import SitePlan
from failover.planning.staying import Stay, StayKind, StayReason
from failover.running.result import OperationResult
from failover.running.steps import Operation, OperationStep

LINK_COLUMNS = ("link", "outcome", "groups", "moves", "offsets", "records", "certainty")


def print_plan(plan: SitePlan, output: str) -> None:
    """The plan as data, for a dry run."""
    if output != Output.TABLE:
        emit(plan, output)
        return
    show_plan(plan, to_stderr=False)
    _tell_refusals(plan)


def _tell_refusals(plan: SitePlan) -> None:
    """As `failover_tables.tell_refusals`."""
    for message, hint in reasons_of_site(plan):
        click.echo(f"{filled(f'refused: {message}')}\n{filled(f'hint: {hint}')}", err=True)


def show_plan(plan: SitePlan, *, to_stderr: bool = True) -> None:
    """The plan: on stderr before a question, on stdout where it is what was asked for."""
    going = plan.going or plan.links
    steps = [step.value for step in OperationStep if any(step in one.steps for one in going)]
    head = f"{plan.operation.value}: {plan.source} -> {plan.target}; {len(plan.moving)} of "
    named = "steps: " if plan.moving else "refused; it would be: "
    click.echo(filled(f"{head}{counted(len(plan.links), 'link')} go; {named}{', '.join(steps)}"), err=to_stderr)
    refusals = () if plan.moving else plan.refusals
    freezing = joined([one.freezing for one in going])
    tell_source(replace(going[0], freezing=freezing, refusals=refusals), to_stderr=to_stderr)
    for one in going:
        tell_paused(one, to_stderr=to_stderr)
        tell_pending(one, to_stderr=to_stderr)
        tell_unanswered(one, to_stderr=to_stderr)
        tell_lacks(one.lacks, plan.target, to_stderr=to_stderr)
        tell_left(one.snapshot, to_stderr=to_stderr)
    is_left = any(one.snapshot.left_at_source for one in going)
    is_any_asked = all(one.reason is not RefusalReason.NOTHING_SELECTED for one in plan.refusals)
    if is_any_asked and plan.operation is Operation.FAILOVER:
        tell_loss(plan.loss, plan.source, is_left=is_left, to_stderr=to_stderr)
    elif is_any_asked:
        is_promoted = all(one.snapshot.is_promoted for one in going)
        lacks = sum(len(one.lacks) for one in going)
        sites = plan.source, plan.target
        line = behind_line(plan.loss, *sites, is_promoted=is_promoted, lacks=lacks, is_left=is_left)
        click.echo(filled(line), err=to_stderr)
    rows = [_plan_row(plan, one) for one in plan.links]
    columns = [name for name in _link_columns(rows) if plan.operation is Operation.FAILOVER or name != "certainty"]
    print_table(rows, columns, "", to_stderr=to_stderr)
    _tell_groups([move for one in plan.going for move in one.moves], to_stderr=to_stderr)
    for line in (line for one in plan.going for line in kept_lines(one)):
        click.echo(filled(line), err=to_stderr)
    tell_stays(to_document(plan.stays), plan.source, to_stderr=to_stderr)


def _link_columns(rows: Iterable[Mapping[str, Any]]) -> Sequence[str]:
    told = list(rows)
    doubted = [name for name in ("unclear_offsets", "open_offsets") if any(row.get(name) for row in told)]
    at = LINK_COLUMNS.index("offsets") + 1
    return (*LINK_COLUMNS[:at], *doubted, *LINK_COLUMNS[at:])


def _plan_row(plan: SitePlan, one: OperationPlan) -> dict[str, Any]:
    link = one.snapshot.link
    left_out = {stay.subject for stay in plan.stays if stay.reason is StayReason.NOT_SELECTED}
    outcome = "refused" if link in plan.refused or plan.refusals else "stays"
    outcome = "goes" if link in plan.moving else "not asked for" if link in left_out else outcome
    return _row(link, outcome, one.moves, one.loss)


def _row(link: str, outcome: str, moves: Sequence[GroupMove], loss: LossTotal) -> dict[str, Any]:
    return {
        "link": link,
        "outcome": outcome,
        "groups": len({move.group for move in moves}),
        "moves": len(moves),
        "offsets": loss.offsets,
        "unclear_offsets": loss.unclear_offsets,
        "open_offsets": loss.open_offsets,
        "records": loss.records,
        "certainty": loss.certainty.value,
    }


def _tell_groups(moves: Sequence[GroupMove], *, to_stderr: bool) -> None:
    """Each that reads again or skips, and how many do not; over all links."""
    totals = group_totals(moves)
    plain = [total for total in totals if (total.read_again_records, total.skipped_records) == (0, 0)]
    is_short = to_stderr and len(totals) > MOVES_SHOWN
    for line in total_lines([total for total in totals if total not in plain], is_short=is_short):
        click.echo(filled(line), err=to_stderr)
    if plain:
        text = f"{counted(len(plain), 'group')} with nothing read again, and nothing skipped"
        click.echo(text, err=to_stderr)
    for line in place_lines(moves, "the target", is_short=is_short):
        click.echo(filled(line), err=to_stderr)


def tell_refused(plan: SitePlan, output: str, error: Ending, *refusals: GateRefusal) -> None:
    """The plan with its refusals on stdout, where a document was asked for."""
    if output != Output.TABLE:
        emit(ended_by(replace(plan, refusals=(*plan.refusals, *refusals)), error), output)


def refuse(plan: SitePlan, output: str) -> None:
    """Raise GateRefused where nothing can be moved, with every gate that said no."""
    if plan.refusals:
        refused = site_refused_by(plan)
        tell_refused(plan, output, refused)
        raise refused


def tell_stopped(plan: SitePlan) -> None:
    """What said no to links that stay for it, while others go."""
    for message, hint in () if plan.refusals else reasons_of_site(plan):
        click.echo(filled(f"refused: {message}") + "\n" + filled(f"hint: {hint}"), err=True)


def ask(plan: SitePlan, yes: bool, output: str) -> None:
    """Consent, by --yes or at the terminal."""
    what = "Lose what was not mirrored and move" if plan.operation is Operation.FAILOVER else "Move"
    links = f"{len(plan.moving)} of {counted(len(plan.links), 'link')}" if plan.refused else "all that goes"
    try:
        confirm_plan(None, yes, question=f"{what} to {plan.target}, {links}?")
    except CommandRefused as error:
        tell_refused(plan, output, error, GateRefusal(RefusalReason.NO_CONSENT, plan.source))
        raise


def print_results(
    intent: Intent,
    results: Sequence[OperationResult],
    stays: Sequence[Mapping[str, Any]],
    steps: Sequence[NextStep],
    output: str,
) -> None:
    """One document, or one table of links with what was found below it."""
    given_up = {
        one.link: f"{one.failure.step}: {one.failure.error}"
        for one in results
        if one.failure is not None and one.failure.is_given_up
    }
    found = [Stay(StayKind.LINK, link, StayReason.REFUSED, why) for link, why in given_up.items()]
    stays = [*stays, *to_document(found)]
    moved = [result for result in results if result.link not in given_up]
    unasked = sum((one["kind"], one["reason"]) == (StayKind.LINK, StayReason.NOT_KNOWN) for one in stays)
    loss = with_unasked(sum_losses([result.loss for result in moved]), unasked)
    if output == Output.TABLE:
        _show_results(intent, results, moved, loss, stays)
        tell_next(steps)
        return
    first = results[0]
    document = {
        "operation_id": first.operation_id,
        "operation": first.operation,
        "source": first.source,
        "target": first.target,
        "verified": all(result.verified for result in moved),
        "refused_links": [*intent.refused_links, *given_up],
        "seconds": first.seconds,
        "loss": loss,
        "summary": headline(loss, first.source, is_left=any(result.left_at_source for result in moved)),
        "links": [{**to_document(result), "summary": summary(result)} for result in results],
        "stays": stays,
        "next": steps,
    }
    emit(document, output)


def _show_results(
    intent: Intent,
    results: Sequence[OperationResult],
    moved: Sequence[OperationResult],
    loss: LossTotal,
    stays: Sequence[Mapping[str, Any]],
) -> None:
    first = results[0]
    rows = [_row(result.link, _outcome(result), result.moves, result.loss) for result in results]
    rows += [{"link": link, "outcome": "refused"} for link in intent.refused_links]
    print_table(to_document(rows), _link_columns(rows))
    for result in results:
        if result.differences or result.has_findings or result.read_on:
            click.echo(f"{result.link}:")
            show_result(result)
            continue
        for line in (*was_paused_lines(result), *silent_lines(result)):
            click.echo(filled(line), err=True)
        tell_left(result)
        tell_lacks(result.lacks, result.target, to_stderr=True)
        if result.failure is not None and not result.failure.is_given_up:
            click.echo(filled(f"{result.link} was cut short in its step {result.failure.step}: {result.failure.error}"))
        elif result.not_compared_partitions:
            click.echo(filled(f"{result.link}: {not_compared_line(result)}"), err=True)
    _tell_groups([move for result in moved for move in result.moves], to_stderr=False)
    tell_stays(stays, first.source, to_stderr=False)
    if first.not_closed and not any(result.differences or result.has_findings or result.read_on for result in results):
        click.echo(filled(first.not_closed), err=True)
    tell_loss(loss, first.source, is_left=any(result.left_at_source for result in moved))
    outcomes = Counter(str(row["outcome"]) for row in rows)
    told = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
    line = f"{first.operation.value} {first.source} -> {first.target}: {told} in {first.seconds:.1f} s"
    click.echo(filled(f"{line}; `farshore operation show {first.operation_id}`"), err=True)


def _outcome(result: OperationResult) -> str:
    if result.failure is not None:
        return "refused" if result.failure.is_given_up else OperationState.CUT_SHORT.value.replace("_", " ")
    if not result.verified:
        return "NOT VERIFIED"
    found = [("stranded", result.stranded), ("read on", result.late_commits), ("not watched", result.is_unwatched)]
    is_open = result.is_source_open and not result.open_topics  # else these are why
    found += [("source open", is_open), ("source may be open", result.closing_addresses)]
    found += [("topics open", result.open_topics), ("read at the source", result.source_readers)]
    found += [("loss without consent", result.is_loss_unconsented), ("unplanned skips", result.unplanned_skips)]
    found += [("unplanned read again", result.unplanned_read_again)]
    return ", ".join(["verified", *(name for name, there in found if there)])
