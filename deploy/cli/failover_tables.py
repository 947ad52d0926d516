"""Plans, refusals and results as people read them; the only place where they become sentences."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import click

from broker.base.documents import iso_time, to_document
from deploy.cli.difference_words import DIFFERENCES
from deploy.cli.elsewhere_lines import silent_lines, untold_lines
from deploy.cli.failback_words import lacks_line
from deploy.cli.freezing_lines import freezing_lines
from deploy.cli.gate_words import reason_of, refusal_of
from deploy.cli.group_lines import MOVES_SHOWN, kept_lines, moves_line, place_lines, tell_totals, unlike_others
from deploy.cli.late_lines import (
    found_lines,
    late_commits_line,
    not_compared_line,
    paused_lines,
    pending_line,
    read_on_line,
    source_lines,
    stranded_line,
    unwatched_line,
)
from deploy.cli.left_lines import but_not, left_lines, not_named_line, unanswered_lines
from deploy.cli.left_range_lines import left_range_lines
from deploy.cli.lines import filled, with_command
from deploy.cli.loss_lines import BESIDE_LEFT, behind_line, headline
from deploy.cli.narrow_rows import narrow_rows
from deploy.cli.next_steps import NextStep
from deploy.cli.refusals import Ending, ended_by
from deploy.cli.stay_lines import tell_stays
from deploy.cli.tables import counted, print_table
from deploy.cli.terminal import CommandRefused, Output, confirm_plan, emit, is_one_place
from failover.drilling.drill import LinkDrill
from failover.losses.statements import Certainty, LossTotal, PartitionLoss
from failover.observing.contact import SiteFinding
from failover.observing.snapshot import Snapshot
from failover.planning.gates import GateRefusal, RefusalReason
from failover.planning.moves import AS_BROUGHT, GroupMove
from failover.planning.plan import OperationPlan
from failover.running.groups_stand import GroupsStand
from failover.running.result import OperationResult
from failover.running.steps import Operation
from mirror.api import SourceParting

LOSS_COLUMNS = (
    "topic",
    "partition",
    "certainty",
    "offsets",
    "records",
    "first_offset",
    "end_offset",
    "first_timestamp",
    "seen_at",
)
BEHIND_COLUMNS = ("topic", "partition", "offsets", "records", "first_offset", "end_offset")
"""Of a switchover's plan."""
MOVE_COLUMNS = (
    "group",
    "topic",
    "partition",
    "kind",
    "source_offset",
    "target_offset",
    "read_again_records",
    "skipped_records",
)
STRANDED_COLUMNS = ("topic", "partition", "first_offset", "end_offset", "records")
LATE_COMMIT_COLUMNS = ("group", "topic", "partition", "moved_offset", "found_offset")
DIFFERENCE_COLUMNS = ("kind", "subject", "partition", "expected", "found")


def tell_loss(total: LossTotal, source: str, *, is_left: bool = False, to_stderr: bool = True) -> None:
    """The loss in lines that fit a terminal. `is_left`: as of `headline`."""
    click.echo(filled(headline(total, source, is_left=is_left)), err=to_stderr)


def tell_left(seen: Snapshot | OperationResult | LinkDrill, *, to_stderr: bool = True) -> None:
    """What the target does not get, as was decided before."""
    for line in left_range_lines(seen.left_at_source, seen.link, seen.source, seen.target):
        click.echo(filled(line), err=to_stderr)


def tell_missing(plan: OperationPlan, *, to_stderr: bool) -> None:
    """What a failover would lose; a switchover loses nothing, and waits."""
    snapshot = plan.snapshot
    tell_left(snapshot, to_stderr=to_stderr)
    is_left = bool(snapshot.left_at_source)
    if plan.operation is Operation.FAILOVER:
        tell_loss(plan.loss, snapshot.source, is_left=is_left, to_stderr=to_stderr)
        return
    sites = snapshot.source, snapshot.target
    line = behind_line(plan.loss, *sites, is_promoted=snapshot.is_promoted, lacks=len(plan.lacks), is_left=is_left)
    click.echo(filled(line), err=to_stderr)


def print_plan(plan: OperationPlan, output: str) -> None:
    """The plan as data, for a dry run."""
    if output == Output.TABLE:
        show_plan(plan, to_stderr=False)
        tell_refusals(plan.refusals, plan.snapshot.source, plan.snapshot.target)
        return
    emit(plan, output)


def tell_refusals(refusals: Iterable[GateRefusal], source: str, target: str) -> None:
    """Each with what to do about it, but for an operation that has not ended: who reads its journal says more of it."""
    for refusal in refusals:
        if refusal.reason is not RefusalReason.OPERATION_UNDER_WAY:
            message, hint = reason_of(refusal, source, target)
            click.echo(f"{filled(f'refused: {message}')}\n{filled(f'hint: {hint}')}", err=True)


def show_plan(plan: OperationPlan, *, to_stderr: bool = True) -> None:
    """The plan: on stderr before a question, on stdout where it is what was asked for."""
    snapshot = plan.snapshot
    steps = f"{'refused; it would be: ' if plan.refusals else 'steps: '}{', '.join(step.value for step in plan.steps)}"
    head = f"{plan.operation.value} of {snapshot.link}: {snapshot.source} -> {snapshot.target}; {steps}"
    click.echo(filled(head), err=to_stderr)
    if snapshot.interrupted:
        text = f"goes on with {snapshot.operation_id}, which by its journal did not come to a verified end"
        click.echo(filled(text), err=to_stderr)
    tell_source(plan, to_stderr=to_stderr)
    tell_paused(plan, to_stderr=to_stderr)
    tell_pending(plan, to_stderr=to_stderr)
    tell_unanswered(plan, to_stderr=to_stderr)
    tell_lacks(plan.lacks, snapshot.target, to_stderr=to_stderr)
    tell_missing(plan, to_stderr=to_stderr)
    is_short = to_stderr and len(plan.group_totals) > MOVES_SHOWN
    for line in (*place_lines(plan.moves, snapshot.target, is_short=is_short), *kept_lines(plan)):
        click.echo(filled(line), err=to_stderr)
    if lossy := _with_loss(plan.losses):
        title = "" if plan.operation is Operation.FAILOVER else "To come, as it is now"
        columns = _loss_columns(lossy, plan.operation)
        print_table(*narrow_rows(_as_rows(lossy), columns), title, to_stderr=to_stderr)
    tell_totals(plan.group_totals, to_stderr=to_stderr)
    if plan.left_groups:
        text = f"left behind where it is not known where they go on: {', '.join(plan.left_groups)}"
        click.echo(filled(text), err=to_stderr)
    if plan.not_named:
        click.echo(filled(not_named_line(plan.not_named, snapshot.source)), err=to_stderr)
    tell_stays(to_document(plan.stays), snapshot.source, to_stderr=to_stderr)
    if to_stderr and len(plan.moves) > MOVES_SHOWN:
        click.echo(moves_line(plan.moves), err=True)
    elif plan.moves:
        print_table(*narrow_rows(plan.moves, _move_columns(plan.moves)), "", to_stderr=to_stderr)


def tell_source(plan: OperationPlan, *, to_stderr: bool) -> None:
    """How it was found, and what keeps its clients from writing."""
    snapshot = plan.snapshot
    if snapshot.source_finding is not SiteFinding.ALIVE:
        click.echo(f"{snapshot.source} is {snapshot.source_finding.value.replace('_', ' ')}", err=to_stderr)
        for answer in snapshot.evidence:
            said = answer.error.removeprefix(f"{answer.address} ") or "answered"
            when = f"called at {iso_time(answer.asked_at_ms)}, after {answer.seconds:.1f} s"
            click.echo(filled(f"  {answer.address}: {said} ({when})", "    "), err=to_stderr)
    if snapshot.seen_by:
        said = (
            f"  meanwhile it answered the worker of {', '.join(snapshot.seen_by)}, which says so at {snapshot.target}"
        )
        click.echo(filled(said, "    "), err=to_stderr)
    for line in (*source_lines(snapshot), *untold_lines(plan), *freezing_lines(plan)):
        click.echo(filled(line), err=to_stderr)


def tell_paused(plan: OperationPlan, *, to_stderr: bool) -> None:
    for line in paused_lines(plan):
        click.echo(filled(line), err=to_stderr)


def tell_pending(plan: OperationPlan, *, to_stderr: bool) -> None:
    """A failover waits for nothing, and a switchover until they end."""
    snapshot = plan.snapshot
    waits = "the drain waits until they do"
    then = waits if plan.operation is Operation.SWITCHOVER else "what they commit then is not carried over"
    if groups := snapshot.pending_groups:
        click.echo(filled(pending_line(snapshot.source, groups, then)), err=to_stderr)


def tell_unanswered(plan: OperationPlan, *, to_stderr: bool) -> None:
    for line in unanswered_lines(plan):
        click.echo(filled(line), err=to_stderr)


def tell_lacks(lacks: Sequence[SourceParting], target: str, *, to_stderr: bool) -> None:
    """What is lost beside the records that the link was still to bring, or may be."""
    if lacks:
        click.echo(filled(lacks_line(lacks, target)), err=to_stderr)


def summary(result: OperationResult) -> str:
    """The end in one line."""
    lines = [stranded_line(result)] if result.stranded else []
    lines += [late_commits_line(result)] if result.late_commits else []
    lines += [unwatched_line(result)] if result.is_unwatched else []
    head = headline(result.loss, result.source, is_left=bool(result.left_at_source))
    left = left_range_lines(result.left_at_source, result.link, result.source, result.target)
    if found := list(found_lines(result)):
        lines += [head, *found]
    return "; ".join([*(lines or [head]), *left])


def _with_loss(losses: Iterable[PartitionLoss]) -> list[PartitionLoss]:
    """Those of which something was seen that is missing, or nothing is known: the document has them all. What may have
    been written behind the last look is in the sentence, since it is true of each.
    """
    return [loss for loss in losses if loss.certainty is Certainty.UNKNOWN or (_seen(loss) and not loss.is_none)]


def _as_rows(losses: Iterable[PartitionLoss]) -> list[PartitionLoss]:
    """Where it is only not known what the target lacks of its own, the column of that says so."""
    return [
        replace(loss, certainty=Certainty.AT_LEAST) if loss.is_uncompared and loss.is_end_seen else loss
        for loss in losses
    ]


def _seen(loss: PartitionLoss) -> bool:
    return bool(loss.offsets or loss.unclear_offsets or loss.open_offsets)


def _loss_columns(losses: Iterable[PartitionLoss], operation: Operation = Operation.FAILOVER) -> Sequence[str]:
    """What a link back may have brought, what is in doubt until a transaction ends, and what the target had before have
    columns where there is any.
    """
    stated, columns = list(losses), LOSS_COLUMNS if operation is Operation.FAILOVER else BEHIND_COLUMNS
    doubted = [name for name in ("unclear_offsets", "open_offsets") if any(getattr(loss, name) for loss in stated)]
    at, last = columns.index("offsets") + 1, columns.index("records") + 1
    lacked = ["lacked_records"] if any(loss.lacked_records != 0 for loss in stated) else []
    return (*columns[:at], *doubted, *columns[at:last], *lacked, *columns[last:])


def _move_columns(moves: Iterable[GroupMove]) -> Sequence[str]:
    """When it was synced has a column where that is all that is known of one."""
    return (*MOVE_COLUMNS, "synced_at") if any(move.kind in AS_BROUGHT for move in moves) else MOVE_COLUMNS


def tell_refused(plan: OperationPlan, output: str, error: Ending, *refusals: GateRefusal) -> None:
    """The plan with its refusals on stdout, where a document was asked for."""
    if output != Output.TABLE:
        emit(ended_by(replace(plan, refusals=(*plan.refusals, *refusals)), error), output)


def refuse(plan: OperationPlan, output: str) -> None:
    """Raise GateRefused where a gate said no."""
    if refused := refusal_of(plan):
        tell_refused(plan, output, refused)
        raise refused


def ask(plan: OperationPlan, yes: bool, output: str) -> None:
    """Consent, by --yes or at the terminal."""
    what = "lose what was not mirrored and move" if plan.operation is Operation.FAILOVER else "move"
    try:
        confirm_plan(None, yes, question=f"{what.capitalize()} to {plan.snapshot.target}?")
    except CommandRefused as error:
        tell_refused(plan, output, error, GateRefusal(RefusalReason.NO_CONSENT, plan.snapshot.link))
        raise


def result_document(result: OperationResult, steps: Sequence[NextStep]) -> dict[str, Any]:
    """Of one link."""
    return {**to_document(result), "summary": summary(result), "next": to_document(steps)}


def tell_groups_stand(stand: GroupsStand) -> None:
    """The moment for which people wait: what comes behind it takes seconds, and holds up no application."""
    rest = f"watching {stand.source} for what comes late ..." if stand.is_watched else "stating what it came to ..."
    but = but_not(stand.source, stand.left_groups, stand.staying_links, stand.operation_id)
    said = f"verified: the groups that were moved stand at {stand.target}; applications may start there{but}; {rest}"
    with suppress(OSError):  # nobody reads it any more, and the operation goes on
        click.echo(filled(said), err=True)


def print_result(
    result: OperationResult, steps: Sequence[NextStep], output: str, shown: OperationPlan | None = None
) -> None:
    """The result on stdout, with the loss in words and what to do next. `shown`: the plan that was told on stderr."""
    if output != Output.TABLE:
        emit(result_document(result, steps), output)
        return
    shown = shown if is_one_place() else None
    show_result(result, shown)
    if shown is None or result.stays != shown.stays:
        tell_stays(to_document(result.stays), result.source, to_stderr=True)
    tell_next(steps)


def tell_next(steps: Iterable[NextStep]) -> None:
    for step in steps:
        click.echo(with_command(f"next: {step.what}", step.command))
        if step.toml:
            click.echo("\n" + textwrap.indent(step.toml, "  ") + "\n")


def _show_rows(rows: Sequence[Any], columns: Sequence[str], title: str) -> None:
    """No more than anybody reads."""
    shown, columns = narrow_rows(rows[:MOVES_SHOWN], columns)
    emit(shown, Output.TABLE, columns=columns, title=title)
    if len(rows) > MOVES_SHOWN:
        click.echo(f"and {len(rows) - MOVES_SHOWN:,} more: -o json shows each")


def _show_losses(result: OperationResult, shown: OperationPlan | None) -> None:
    """Of a plan that was `shown` only what became of it else."""
    lossy = _with_loss(result.losses)
    planned = {} if shown is None else {(loss.topic, loss.partition): _told(loss) for loss in _with_loss(shown.losses)}
    unlike = [loss for loss in lossy if planned.get((loss.topic, loss.partition)) != _told(loss)]
    gone = planned.keys() - {(loss.topic, loss.partition) for loss in lossy}
    if not lossy:
        seen = "" if all(loss.is_none for loss in result.losses) else " that was seen"
        beside = f" {BESIDE_LEFT}" if result.left_at_source else ""
        click.echo(f"Only at the source: none{seen}{beside}")
    if unlike:
        title = "Only at the source, unlike the plan" if planned else "Only at the source"
        _show_rows(_as_rows(unlike), _loss_columns(unlike), title)
    if len(unlike) < len(lossy):
        click.echo(f"Only at the source, as in the plan: {counted(len(lossy) - len(unlike), 'partition')}")
    if lossy and gone:
        click.echo(f"Not any more, other than in the plan: {counted(len(gone), 'partition')}")


def _told(loss: PartitionLoss) -> PartitionLoss:
    """Without what each look has of its own."""
    return replace(loss, seen_at_ms=None, first_timestamp_ms=None, last_timestamp_ms=None)


def _show_moves(result: OperationResult, shown: OperationPlan | None) -> None:
    """As `_show_losses`; of very many moves a plan tells no more than how many there are."""
    if shown is not None and 0 < len(shown.moves) <= MOVES_SHOWN:
        planned = {_row(move) for move in shown.moves}
        unlike = [move for move in result.moves if _row(move) not in planned]
        if unlike:
            _show_rows(unlike, _move_columns(unlike), "Groups, unlike the plan")
        if len(unlike) < len(result.moves):
            click.echo(f"Groups, as in the plan: {counted(len(result.moves) - len(unlike), 'move')}")
        return
    if moves := unlike_others(result.moves):
        _show_rows(moves, _move_columns(moves), "Groups")
    if len(moves) < len(result.moves):
        click.echo(filled(moves_line(result.moves, "-o json")))


def _row(move: GroupMove) -> tuple[Any, ...]:
    return tuple(getattr(move, name) for name in MOVE_COLUMNS)


def show_result(result: OperationResult, shown: OperationPlan | None = None) -> None:
    """As people read it; the document has all. `shown`: the plan that they have read in the same place."""
    _show_losses(result, shown)
    _show_moves(result, shown)
    if result.differences:
        _show_rows(result.differences, DIFFERENCE_COLUMNS, "NOT VERIFIED")
        kinds = {difference.kind for difference in result.differences}
        for kind, said in DIFFERENCES.items():
            if kind in kinds:
                click.echo(filled(said), err=True)
    if came := [one for one in result.stranded if one.is_end_told]:
        _show_rows(came, STRANDED_COLUMNS, "Came after the fence")
    if result.late_commits:
        _show_rows(result.late_commits, LATE_COMMIT_COLUMNS, "Read on at the source")
        click.echo(filled(late_commits_line(result)), err=True)
    if result.is_unwatched:
        click.echo(filled(unwatched_line(result)), err=True)
    if result.read_on:
        click.echo(filled(read_on_line(result)), err=True)
    if result.not_compared_partitions:
        click.echo(filled(not_compared_line(result)), err=True)
    if result.left_groups:
        click.echo(filled(f"left behind, with moves that are not known: {', '.join(result.left_groups)}"), err=True)
    if result.not_named:
        click.echo(filled(not_named_line(result.not_named, result.source)), err=True)
    for line in (*silent_lines(result), *left_lines(result)):
        click.echo(filled(line), err=True)
    tell_left(result)
    if result.stranded:
        click.echo(filled(stranded_line(result)), err=True)
    else:
        tell_loss(result.loss, result.source, is_left=bool(result.left_at_source))
    tell_lacks(result.lacks, result.target, to_stderr=True)
    for line in found_lines(result):
        click.echo(filled(line), err=True)
    if result.not_closed:
        click.echo(filled(result.not_closed), err=True)
    if result.hook_error:
        click.echo(filled(f"{result.hook_error}; all else is done"), err=True)
    verdict = "verified" if result.verified else "NOT VERIFIED"
    line = f"{result.operation.value} {result.source} -> {result.target}: {verdict} in {result.seconds:.1f} s"
    click.echo(filled(f"{line}; `farshore operation show {result.operation_id}`"), err=True)
