"""What is said of groups that are to be moved, in lines: a few of them each by itself, many in short."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import click

from broker.base.naming import named
from deploy.cli.late_lines import OTHERS_SHOWN
from deploy.cli.lines import filled
from deploy.cli.tables import counted
from failover.planning.moves import AS_BROUGHT, GroupMove, GroupTotal, MoveKind
from failover.planning.plan import OperationPlan

MOVES_SHOWN = 60
"""Of a plan that is about to be carried out: nobody reads more than two screens of them, and printing takes seconds."""


def tell_totals(totals: Sequence[GroupTotal], *, to_stderr: bool) -> None:
    """Before a question, where they are many, groups that read nothing again and skip nothing are only counted."""
    is_short = to_stderr and len(totals) > MOVES_SHOWN
    told = [one for one in totals if not is_short or (one.read_again_records, one.skipped_records) != (0, 0)]
    for line in total_lines(told, is_short=is_short):
        click.echo(filled(line), err=to_stderr)
    if len(told) < len(totals):
        others = counted(len(totals) - len(told), "group")
        click.echo(f"{others}: 0 records read again, 0 records skipped", err=to_stderr)


def total_lines(totals: Sequence[GroupTotal], *, is_short: bool) -> Iterable[str]:
    """What each group reads again, and skips; where it `is_short`, of those that are many and alike in one line: of a
    lost source nobody can tell it of any.
    """
    if not is_short:
        yield from map(_group_line, totals)
        return
    alike: dict[tuple[int | None, int | None], list[GroupTotal]] = {}
    for total in totals:
        alike.setdefault((total.read_again_records, total.skipped_records), []).append(total)
    for found in alike.values():
        if len(found) > OTHERS_SHOWN:
            names = named([total.group for total in found], OTHERS_SHOWN)
            yield f"{counted(len(found), 'group')} ({names}): {_total(found[0])}"
        else:
            yield from map(_group_line, found)


def place_lines(moves: Sequence[GroupMove], target: str, *, is_short: bool) -> Iterable[str]:
    """Of groups that do not go on at exactly their next record, or of which nobody can tell: by what they go on. Where
    it `is_short`, the first of them by name.
    """
    again = "what was read after it is read again, and what a group was set back by after it"
    unknown = "is skipped: how much that is cannot be known"
    kept = [move for move in moves if move.kind is MoveKind.KEPT]
    as_brought = [move for move in kept if move.target_offset == move.brought_offset]
    others = [move for move in kept if move.target_offset != move.brought_offset]
    restored = [move for move in moves if move.kind is MoveKind.RESTORED]
    ahead = [move for move in moves if move.kind is MoveKind.AHEAD and move.source_offset is None]
    gone = [move for move in moves if move.kind is MoveKind.AT_START and move.skipped_records]
    told = {
        f"offsets of the mirror's last sync; {again}, or had read at {target} alone where both sites write, "
        f"{unknown}": as_brought,
        "they stay where they stand, which the link's state does not know as a place that the mirror brought them to: "
        "how much is read again or skipped cannot be known": others,
        f"set to where the link's state says that the mirror last brought them (restored); {again} {unknown}": restored,
        "they stand further on than where the mirror last brought them: what they skip is counted from there, "
        "and --set-back GROUP sets one back to there": ahead,
        f"{target} has no more all that they would read next (at_start): they skip it, and go on where its log "
        "begins": gone,
    }
    for words, found in told.items():
        if found:
            groups = sorted({move.group for move in found})
            shown = OTHERS_SHOWN if is_short else len(groups)
            yield f"{named(groups, shown)}{f' ({len(groups):,} groups)' if len(groups) > shown else ''}: {words}"


def kept_lines(plan: OperationPlan) -> Iterable[str]:
    """Where groups go on as with a lost source, and it is there: why what they committed there may not count."""
    seen, kept = plan.snapshot, {(move.topic, move.partition) for move in plan.moves if move.kind in AS_BROUGHT}
    untold = [view.name for view in seen.partitions if view.source_end is None and (view.topic, view.partition) in kept]
    if untold and seen.is_source_there:
        yield (
            f"{seen.source} does not tell its log of {named(untold)}: what groups committed there does not count where "
            "another leader, or a link back, may have written there since the last mirrored record; a replica that "
            "left the ISR looks like another leader"
        )


def moves_line(moves: Iterable[GroupMove], shown_by: str = "--dry-run") -> str:
    """How many there are of each kind."""
    kinds = sorted(Counter(move.kind.value.replace("_", " ") for move in moves).items())
    return f"moves: {', '.join(f'{count:,} {kind}' for kind, count in kinds)}; {shown_by} shows each"


def unlike_others(moves: Sequence[GroupMove]) -> list[GroupMove]:
    """All where they are few; else those after which records are read again or skipped, or nobody knows that."""
    if len(moves) <= MOVES_SHOWN:
        return list(moves)
    return [move for move in moves if (move.read_again_records, move.skipped_records) != (0, 0)]


def _group_line(total: GroupTotal) -> str:
    return f"{total.group}: {_total(total)}"


def _total(total: GroupTotal) -> str:
    return f"{_count(total.read_again_records)} read again, {_count(total.skipped_records)} skipped"


def _count(records: int | None) -> str:
    """They are offsets of the target, among which markers and what compaction took are no records."""
    if records is None:
        return "an unknown number of records"
    return f"{'at most ' if records else ''}{counted(records, 'record')}"
