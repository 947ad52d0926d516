"""What does not answer at the target, in lines: of a plan before it is carried out, and of a result that left it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from deploy.cli.tables import counted
from failover.journal.standing import OperationStanding
from failover.journal.values import Event, OperationLog
from failover.planning.left import LeftPartition
from failover.planning.moves import GroupMove, MoveKind
from failover.planning.plan import OperationPlan
from failover.planning.staying import StayingLink
from failover.running.result import OperationResult
from failover.running.verification import DifferenceKind

SHOWN = 20
NAMED = 10
"""Of those whose applications are not to start: people wait for that word."""


def unanswered_lines(plan: OperationPlan) -> Iterable[str]:
    """Of a plan: each thing with the reason, and whether somebody consented to leaving it."""
    snapshot = plan.snapshot
    read = snapshot.read_topics
    views = [view for view in snapshot.partitions if view.unanswered]
    for view in views[:SHOWN]:
        asked = "left as it is" if view.name in plan.left_partitions else "groups that are to be moved read its topic"
        is_left = asked if view.topic in read else "no group that is to be moved reads its topic"
        yield f"{view.name} does not answer at {snapshot.target}, {is_left}: {view.unanswered}"
    groups = [group for group in snapshot.groups if group.unanswered]
    for group in groups[:SHOWN]:
        is_left = ", left as it is" if group.group in plan.left_groups else ""
        yield f"group {group.group} does not answer at {snapshot.target}{is_left}: {group.unanswered}"
    if more := max(0, len(views) - SHOWN) + max(0, len(groups) - SHOWN):
        yield f"and {more:,} more that do not answer at {snapshot.target}: -o json names each"
    if snapshot.groups_not_listed:
        yield (
            f"{snapshot.target} does not list all of its groups, so that those that it alone has may be missing here: "
            f"{snapshot.groups_not_listed}"
        )


def left_lines(result: OperationResult) -> Iterable[str]:
    """Of a result: what was left as it is."""
    for left in result.left_partitions[:SHOWN]:
        yield _left(left, result.target)
    if len(result.left_partitions) > SHOWN:
        yield f"and {len(result.left_partitions) - SHOWN:,} more partitions: -o json names each"
    if result.unanswered_groups:
        shown = ", ".join(result.unanswered_groups[:SHOWN]) + (", ..." if len(result.unanswered_groups) > SHOWN else "")
        yield f"groups that did not answer at {result.target}, left as they are: {shown}"


def not_named_line(groups: Sequence[str], source: str) -> str:
    """Of a plan, or a result: whom it leaves as others were asked for."""
    shown = ", ".join(groups[:SHOWN]) + (", ..." if len(groups) > SHOWN else "")
    return f"not asked for, and left at {source}, where the link carries them no further: {shown}"


def but_not(source: str, groups: Sequence[str], links: Sequence[StayingLink], operation_id: str) -> str:
    """Behind the words that applications may start: whose may not; "" where all may."""
    said = f", but not: {', '.join(groups[:NAMED])}" if groups else ""
    said += f" and {counted(len(groups) - NAMED, 'more group')}" if len(groups) > NAMED else ""
    if links:
        named = ", ".join(map(staying_line, links[:NAMED]))
        named += f" and {counted(len(links) - NAMED, 'more link')}" if len(links) > NAMED else ""
        said += f"{';' if groups else ','} {'nor' if groups else 'but not'} along links that stay at {source}: {named}"
    if len(groups) > NAMED or links:
        said += f" (`farshore operation show {operation_id}` has all)"
    return said


def not_let_in(log: OperationLog, standing: OperationStanding) -> Iterable[str]:
    """All whose applications may not start at the target, as the last run says that told of the others."""
    said = [entry.detail for entry in log.entries if entry.event == Event.GROUPS_VERIFIED]
    if said and (groups := said[-1].get("left_groups")):
        named = ", ".join(groups)
        yield f"left as they were at {standing.target}, or to be looked at before they start there: {named}"
    if said and (links := said[-1].get("staying_links")):
        named = ", ".join(staying_line(StayingLink(**one)) for one in links)
        yield f"stay at {standing.source}, with what reads along them: {named}"


def staying_line(one: StayingLink) -> str:
    """A link, and how many groups stay with it."""
    return f"{one.link} ({'groups not known' if one.groups is None else counted(one.groups, 'group')})"


def groups_to_move(result: OperationResult) -> tuple[str, ...]:
    """Those that a later run has something to do for."""
    return tuple(
        sorted({*result.unanswered_groups, *(group for one in result.left_partitions for group in one.groups)})
    )


def groups_unknown(result: OperationResult) -> tuple[str, ...]:
    """Those that were left by consent, as nobody knew where they go on; of a target that did not answer others tell."""
    return tuple(sorted({*result.left_groups} - {*groups_to_move(result)}))


def groups_not_moved(result: OperationResult) -> tuple[str, ...]:
    """Those that stand where they stood, and should not: nobody consented to that."""
    places = {(one.subject, one.partition) for one in result.differences if one.kind is DifferenceKind.GROUP_NOT_MOVED}
    found = {
        move.group for move in unknown_moves(result) if (f"{move.group} on {move.topic}", move.partition) in places
    }
    return tuple(sorted(found))


def unknown_moves(result: OperationResult) -> tuple[GroupMove, ...]:
    """Of which it is not known where the group goes on."""
    return tuple(move for move in result.moves if move.kind is MoveKind.UNKNOWN)


def _left(left: LeftPartition, target: str) -> str:
    groups = f"; groups with offsets there: {', '.join(left.groups)}" if left.groups else ""
    fence = "" if left.is_fenced else "; it took no fence: see that the old mirror's process has ended"
    return f"{left.topic}:{left.partition} did not answer at {target}, left as it is: {left.error}{groups}{fence}"
