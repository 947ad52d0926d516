"""What came late, or could not be seen to, and who read on: of a result, in lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from deploy.cli.loss_lines import paused_line
from deploy.cli.tables import counted
from failover.losses.stranded import StrandedRange, uncounted_of, unshown_of, untold_of
from failover.observing.snapshot import Snapshot
from failover.observing.unshown import TO_BE_TOLD, told_in_doubt, told_unshown, told_untold
from failover.planning.plan import OperationPlan
from failover.running.result import OperationResult
from failover.running.steps import Operation

OTHERS_SHOWN = 10


def stranded_line(result: OperationResult) -> str:
    """What came to the source after the fence, in one line."""
    shown, unshown = [one for one in result.stranded if one.is_shown], unshown_of(result.stranded)
    found = [one for one in shown if one.records is not None]
    places = ", ".join(f"{one.topic}-{one.partition} [{one.first_offset}, {one.end_offset})" for one in found)
    told = counted(sum(one.records or 0 for one in found), "record")
    said = f"{told} came to {result.source} after the fence, and are only there: {places}" if found else ""
    if uncounted := uncounted_of(result.stranded):
        came = "" if found else f" that came to {result.source} after the fence"
        unsaid = f"of what is in {', '.join(uncounted)}{came} it could not be counted whether any is only there"
        said = f"{said}; {unsaid}" if found else unsaid
    hidden = [told_unshown(unshown)] if unshown else []
    hidden += [told_untold(result.source, untold)] if (untold := untold_of(result.stranded)) else []
    if not shown:
        at_fence = f"at {result.source} after the fence " if unshown else ""
        return f"{at_fence}{'; '.join(hidden)}"
    opened = [f"{one.topic}-{one.partition} from {one.open_from_offset}" for one in result.stranded if _is_open(one)]
    if opened:
        said += f"; in a transaction that has not ended, and may still be committed: {', '.join(opened)}"
    return "; ".join([said, *hidden])


def unshown_line(result: OperationResult) -> str:
    """What a link back may be bringing there, in one line: no finding."""
    return f"at {result.source} {told_in_doubt(unshown_of(result.unshown))}; `farshore stranded list` counts it then"


def until_counted(result: OperationResult) -> Iterable[str]:
    """What is to be done before all of it can be counted."""
    then = "`farshore stranded list` counts what"
    if any(_is_open(one) for one in result.stranded):
        yield f"end the transactions that are open at {result.source}: {then} they have only then"
    if any(map(_is_unread, result.stranded)):
        yield f"have what could not be counted at {result.source} read to its end, which says what of it is only there"
    if unshown_of(result.stranded):
        yield f"bring back the brokers of {result.source}, or see why they lag: {then} nobody is shown only then"
    if untold := untold_of(result.stranded):
        yield f"have {result.source} tell how far its logs go ({told_untold(result.source, untold)}): {TO_BE_TOLD}"


def _is_unread(stranded: StrandedRange) -> bool:
    return stranded.is_shown and stranded.records is None and not _is_open(stranded)


def _is_open(stranded: StrandedRange) -> bool:
    return stranded.open_from_offset is not None


def unwatched_line(result: OperationResult) -> str:
    """What nobody could see any more, in one line."""
    unseen = "whether records came there after the fence, nor who read on there"
    if result.operation is Operation.FAILOVER:  # what came there is in its loss
        unseen = "of every group whether it read on there after the fence"
    elif result.are_late_records_known:
        unseen = "who read on there after the fence"
    return f"{result.source} did not tell {unseen}: that is not known"


def open_line(result: OperationResult) -> str:
    """Of a source that was left and may go on taking writes, in one line."""
    seen = f"{result.source} answers"
    if result.seen_by:
        seen = f"{result.source} answered the worker of {_names(result.seen_by)}, though not this machine"
    return f"{seen}, and is not known to refuse writes: what clients write there from now on is only there"


def open_topics_line(result: OperationResult) -> str:
    """Of topics that a freeze by ACLs could not close at the source, in one line; `not_closed` says why."""
    return (
        f"{_names(result.open_topics)} stays open at {result.source}, to everybody for all that is known: what clients "
        "write there from now on is only there"
    )


def stopping_writers(result: OperationResult) -> Iterable[str]:
    """What is to be stopped at the source before anything else, and why."""
    if not (result.stranded or result.is_source_open or result.open_topics):
        return
    more = "it would bring more of what is only there, behind what the mirror carried"
    if result.open_topics and not result.stranded:  # it may be that nobody writes, and whom to stop nobody knows
        yield f"if anything writes to {_names(result.open_topics)} at {result.source}, stop it: {more}"
    else:
        yield f"stop what writes at {result.source}: {more}"


def closing_open_topics(result: OperationResult) -> str:
    """What is to be done before the command closes what stays open."""
    topics = _names(result.open_topics)
    return (
        f"everybody may write to {topics} at {result.source}, for all that is known, since no ACL there is about it: "
        "make one that says who may (docs/configuration.md, A freeze by ACLs); then close it"
    )


def closing_line(addresses: Sequence[str], source: str) -> str:
    """Of a source that is held to be dead, and at which something listens, in one line."""
    return (
        f"something takes connections at {_names(addresses)} and closes them, as a proxy with nobody behind it does, "
        f"and a broker that has too many: if {source} lives, what clients write there from now on is only there"
    )


def source_lines(snapshot: Snapshot) -> Iterable[str]:
    """What is to be known of the source before it is left, each in one line."""
    if snapshot.closing_addresses:
        yield closing_line(snapshot.closing_addresses, snapshot.source)


def paused_lines(plan: OperationPlan) -> Iterable[str]:
    """What nobody mirrored of late, as the plan has it, each in one line."""
    snapshot = plan.snapshot
    if snapshot.is_behind_pause:
        yield paused_line(plan.loss, snapshot.link, snapshot.source, is_over=False)
    if snapshot.paused_topics:
        yield f"paused topics, of which nothing more was mirrored: {', '.join(snapshot.paused_topics)}"


def was_paused_lines(result: OperationResult) -> Iterable[str]:
    """How old that is what a failover states of a link that was paused, in one line, or none."""
    if result.was_paused:
        yield paused_line(result.loss, result.link, result.source, is_over=True)


def found_lines(result: OperationResult) -> Iterable[str]:
    """What a move found that its plan did not say, or said of an earlier moment, each in one line."""
    yield from was_paused_lines(result)
    if result.open_topics:
        yield open_topics_line(result)
    elif result.is_source_open:
        yield open_line(result)
    if result.closing_addresses:
        yield closing_line(result.closing_addresses, result.source)
    if result.unshown:
        yield unshown_line(result)
    if result.source_readers:
        yield readers_line(result)
    if result.is_loss_unconsented:
        yield (
            "nothing was missing when this was planned, and --allow-data-loss was not given; by the fence something of "
            f"{result.source} was, or that cannot be excluded"
        )
    if result.unplanned_skips:
        yield unplanned_skips_line(result)
    if result.unplanned_read_again:
        yield unplanned_read_again_line(result)


def readers_line(result: OperationResult) -> str:
    """Who reads on at a source that was failed over from, in one line."""
    reading = [one.group for one in result.source_readers if one.members]
    untold = [one.group for one in result.source_readers if one.members is None]
    told = [f"consumers read on at {result.source} as {_names(reading)}"] if reading else []
    told += [f"{result.source} does not say whether consumers read there as {_names(untold)}"] if untold else []
    return f"{'; '.join(told)}: what they read there from now on, {result.target} does not know"


def unplanned_skips_line(result: OperationResult) -> str:
    """Of groups that went on at the target since the plan, or whose records it lost, in one line."""
    found = result.unplanned_skips
    places = [
        f"{one.group} on {one.topic}-{one.partition} "
        + ("nobody knows how many" if one.skipped_records is None else f"at most {one.skipped_records:,}")
        for one in found[:OTHERS_SHOWN]
    ]
    more = ", ..." if len(found) > OTHERS_SHOWN else ""
    since = f"since the plan was made groups went on at {result.target}, or it lost what they read next"
    return f"{since}: they skip more records than it said: {', '.join(places)}{more}"


def unplanned_read_again_line(result: OperationResult) -> str:
    """Of groups whose offsets the source lost since the plan, in one line."""
    found = result.unplanned_read_again
    places = [
        f"{one.group} on {one.topic}-{one.partition} at most {one.read_again_records:,}" for one in found[:OTHERS_SHOWN]
    ]
    more = ", ..." if len(found) > OTHERS_SHOWN else ""
    since = f"since the plan was made {result.source} has lost offsets of groups, or ceased to tell them"
    return f"{since}: they read records again that it did not say: {', '.join(places)}{more}"


def _names(groups: Sequence[str]) -> str:
    return ", ".join(groups[:OTHERS_SHOWN]) + (", ..." if len(groups) > OTHERS_SHOWN else "")


def late_commits_line(result: OperationResult) -> str:
    """Who went on reading at the source, in one line."""
    places = [(one.group, one.topic, one.partition, one.moved_offset, one.found_offset) for one in result.late_commits]
    groups = counted(len({one.group for one in result.late_commits}), "group")
    return f"{groups} read on at {result.source} after they were moved: {_places(places)}"


def pending_line(source: str, groups: Sequence[str], then: str) -> str:
    """Whose offsets are in transactions that have not ended, and what becomes of that, in one line."""
    shown = ", ".join(groups[:OTHERS_SHOWN]) + (", ..." if len(groups) > OTHERS_SHOWN else "")
    return f"offsets in transactions at {source} that have not ended: {shown}; {then}"


def read_on_line(result: OperationResult) -> str:
    """Who stands further on at the target than where an earlier run verified it, or it was left, in one line."""
    places = [(one.group, one.topic, one.partition, one.verified_offset, one.found_offset) for one in result.read_on]
    groups = counted(len({one.group for one in result.read_on}), "group")
    return (
        f"{groups} stood at {result.target} as promised, when this operation first verified them or left them as they "
        f"were, and further on now; applications could read there meanwhile, so that this is taken for what they read: "
        f"{_places(places)}"
    )


def not_compared_line(result: OperationResult) -> str:
    """Of which partitions a switchover compared no record, in one line: the last was gone, or there never was one."""
    names = result.not_compared_partitions
    return (
        f"{counted(len(names), 'partition')} verified by offsets, which is as much as can be compared there, and no "
        f"finding: there never was a record, or the last mirrored one is gone at a site, or nobody can say where "
        f"exactly it is: {_names(names)}"
    )


def _places(found: Sequence[tuple[str, str, int, int | None, int | None]]) -> str:
    """Groups, where they are, and from which offset to which they went; None: from nowhere, to what a transaction
    holds.
    """
    told = [
        f"{group} on {topic}-{partition} {'none' if before is None else before} -> "
        f"{'in a transaction that has not ended' if now is None else now}"
        for group, topic, partition, before, now in found[:OTHERS_SHOWN]
    ]
    return ", ".join(told) + (", ..." if len(found) > OTHERS_SHOWN else "")
