"""From a link's run to its result. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from broker.wire.site_role import SiteStanding
from failover.freezing.denials import is_named
from failover.losses.statements import PartitionLoss, total_loss
from failover.planning.moves import MoveKind, group_totals
from failover.planning.unplanned import unplanned_read_again, unplanned_skips
from failover.running.link_run import LinkRun
from failover.running.result import OperationResult
from failover.running.steps import Operation


@dataclass(frozen=True, slots=True)
class SourceEnd:
    """How the source was left: what its brokers have taken (None: not told), whom its ACLs keep from writing, and how
    it stands where that is not known. `hook_error`: why the after_hook failed. `closed_at_both`: topics that the target
    refuses, too; `closed_for_third`: that it refuses for a third site. `left_open`: topics of the
    source that no ACL is about.
    """

    role: SiteStanding | None
    denied_principals: tuple[str, ...]
    not_closed: str
    hook_error: str
    closed_at_both: tuple[str, ...]
    closed_for_third: tuple[str, ...]
    left_open: tuple[str, ...] = ()


def result_of(operation_id: str, link: LinkRun, seconds: float, at_source: SourceEnd) -> OperationResult:
    """How it ended, with its losses as they were stated last."""
    seen, losses = link.snapshot, link.losses
    moves = link.moves if link.failure is None else ()
    return OperationResult(
        operation_id=operation_id,
        operation=link.plan.operation,
        link=link.sites.link.name,
        source=link.snapshot.source,
        target=link.snapshot.target,
        verified=link.failure is None and not link.differences,
        seconds=seconds,
        losses=losses,
        moves=moves,
        differences=link.differences,
        group_totals=group_totals(moves),
        loss=total_loss(
            losses,
            link.stated_at_ms,
            seen.last_look,
            is_source_there=seen.is_source_there,
            found_dead_at_ms=seen.found_dead_at_ms,
        ),
        left_groups=tuple(sorted({move.group for move in moves if move.kind is MoveKind.UNKNOWN})),
        not_named=link.plan.not_named,
        stays=link.plan.stays,
        left_partitions=link.left_partitions,
        unanswered_groups=tuple(group.group for group in link.snapshot.groups if group.unanswered),
        stranded=link.stranded,
        unshown=link.unshown,
        silent_at_fence=link.silent_at_fence,
        is_unwatched=link.is_unwatched,
        are_late_records_known=link.are_late_records_known,
        late_commits=link.late_commits,
        source_finding=link.snapshot.source_finding,
        source_readers=link.source_readers,
        lacks=link.plan.lacks,
        unplanned_skips=tuple(unplanned_skips(link.consented, moves, link.plan.left_groups)),
        unplanned_read_again=tuple(unplanned_read_again(link.consented, moves)),
        is_loss_unconsented=_is_loss_unconsented(link, losses),
        read_on=link.read_on,
        not_compared_partitions=link.not_compared,
        source_role=at_source.role,
        hook_error=at_source.hook_error,
        takes_writes=_takes_writes(link, at_source),
        moved_topics=link.plan.freezing.topics,
        failure=link.failure,
        denied_principals=at_source.denied_principals,
        is_source_open=_is_source_open(link, at_source),
        seen_by=seen.seen_by,
        closing_addresses=_closing_addresses(link, at_source),
        not_closed=at_source.not_closed,
        open_topics=_open_topics(link, at_source),
        closed_at_both=at_source.closed_at_both,
        closed_for_third=at_source.closed_for_third,
        left_at_source=link.plan.snapshot.left_at_source,
        was_paused=link.was_paused and _is_failover(link) and not seen.source_answers,
    )


def _takes_writes(link: LinkRun, at_source: SourceEnd) -> bool:
    if _was_closed(link):
        return False
    if link.sites.link.source.freeze_principals:
        return not at_source.denied_principals or bool(_open_topics(link, at_source))
    freezing = link.plan.freezing
    return (freezing.source is not None or freezing.target is not None) and at_source.role is None


def _was_closed(link: LinkRun) -> bool:
    """Before anything was asked of it: it stands by already."""
    freezing = link.plan.freezing
    return freezing.source is not None and freezing.source.covers(freezing.topics)


def _is_source_open(link: LinkRun, at_source: SourceEnd) -> bool:
    is_there = link.sites.source is not None and link.snapshot.is_source_there  # by the fence
    return _is_failover(link) and (is_there or bool(link.snapshot.seen_by)) and not _is_closed(link, at_source)


def _is_closed(link: LinkRun, at_source: SourceEnd) -> bool:
    is_denied = bool(at_source.denied_principals) and not _open_topics(link, at_source)
    return _was_closed(link) or at_source.role is not None or is_denied


def _open_topics(link: LinkRun, at_source: SourceEnd) -> tuple[str, ...]:
    """Of those that the link's move is about."""
    if _was_closed(link) or link.failure is not None:
        return ()
    return tuple(topic for topic in at_source.left_open if is_named(topic, link.plan.freezing.topics))


def _closing_addresses(link: LinkRun, at_source: SourceEnd) -> tuple[str, ...]:
    return link.snapshot.closing_addresses if _is_failover(link) and not _is_closed(link, at_source) else ()


def _is_loss_unconsented(link: LinkRun, losses: tuple[PartitionLoss, ...]) -> bool:
    """What came between the look, at which nothing was missing, and the fence; also where nobody can exclude that."""
    is_lost = any(not loss.is_none for loss in losses)
    return _is_failover(link) and not link.plan.allows_data_loss and is_lost


def _is_failover(link: LinkRun) -> bool:
    return link.plan.operation is Operation.FAILOVER and link.failure is None
