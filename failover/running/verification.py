"""The check after the steps: committed offsets read back, and the last records compared by content."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from broker.base.errors import FarshoreError
from broker.client.cluster import Cluster
from broker.client.errors import ClientError, KafkaError
from broker.client.fanout import both, split_failures
from broker.client.group_transactions import held_offsets
from broker.client.offsets import list_each_offset
from broker.wire.errors import ErrorCode
from broker.wire.records import Record
from broker.wire.vocabulary import EARLIEST, TopicPartition
from failover.limits import TARGET_ANSWER_MS
from failover.observing.edges import Found, Span, last_records
from failover.observing.snapshot import PartitionView, Snapshot
from failover.planning.moves import GroupMove, MoveKind
from failover.planning.plan import active_at_source
from failover.running.read_on import offsets_at_target


class DifferenceKind(StrEnum):
    """What the check found that should not be."""

    GROUP_OFFSET = "group_offset"
    GROUP_BEFORE_LOG = "group_before_log"
    """The target's log begins behind the group's offset by now: a consumer would begin anywhere."""
    GROUP_PENDING = "group_pending"
    """A transaction at the target that has not ended has another offset of the group, and may move it on."""
    GROUP_NOT_MOVED = "group_not_moved"
    """Since the plan the group's offset there has become unknown, and nobody consented to that."""
    READS_AT_SOURCE = "reads_at_source"
    """The group has consumers at the source after the fence, or that cannot be told: it may go on there."""
    LEFT_BEHIND = "left_behind"
    RECREATED = "recreated"
    """The source's topic was deleted and made anew since the fence: what it has by now is not what was mirrored."""
    LAST_RECORD = "last_record"
    OTHER_OPERATION = "other_operation"
    """Another operation took the link over before this one had ended: what it did may have been changed."""
    NOT_COMPARED = "not_compared"
    """The partition's last record cannot be read at one of the sites: it is damaged, or the topic is not there."""
    NOT_FENCED = "not_fenced"
    """The target's partition could take no marker (it has no leader, say): a mirror that hangs could write there."""
    SOURCE_NOT_COMPARED = "source_not_compared"
    """A switchover's source did not answer any more: whether all of it is here, and who reads there, nobody saw."""
    GROUPS_NOT_FENCED = "groups_not_fenced"
    """A mirror that hangs amid a commit of groups' offsets could still end it, and move them."""


@dataclass(frozen=True, slots=True)
class VerificationDifference:
    """One finding; `expected` and `found` are offsets, or None where there is none."""

    kind: DifferenceKind
    subject: str
    partition: int
    expected: int | None
    found: int | None


def unfenced(link: str, left_out: Iterable[TopicPartition], *, are_groups_fenced: bool) -> list[VerificationDifference]:
    """What the promotion's fence did not reach. Pure."""
    groups = VerificationDifference(DifferenceKind.GROUPS_NOT_FENCED, f"groups of link {link}", -1, None, None)
    partitions = [
        VerificationDifference(DifferenceKind.NOT_FENCED, where.topic, where.partition, None, None)
        for where in sorted(left_out)
    ]
    return partitions if are_groups_fenced else [*partitions, groups]


def verify_own(after: Snapshot, operation_id: str) -> list[VerificationDifference]:
    """The link is still as this operation left it, all of it. Pure."""
    if (after.link_state, after.operation_id) == ("promoted", operation_id) and not after.units_apart:
        return []
    subject = f"{after.link}: {after.link_state} by {after.operation_id}{' in part' if after.units_apart else ''}"
    return [VerificationDifference(DifferenceKind.OTHER_OPERATION, subject, -1, None, None)]


def verify_readers(after: Snapshot, left_groups: Container[str] = ()) -> list[VerificationDifference]:
    """No group reads at the source any more. Pure."""
    return [
        VerificationDifference(DifferenceKind.READS_AT_SOURCE, refusal.subject, -1, 0, None)
        for refusal in active_at_source(after.groups, left_groups)
    ]


def verify_groups(
    after: Snapshot, moves: Iterable[GroupMove], left_groups: Container[str] = ()
) -> Iterable[VerificationDifference]:
    """Every offset that was to be at the target is there, and so is what a consumer reads at it; of `left_groups` it
    may be unknown what that is. Pure.
    """
    found = offsets_at_target(after)
    starts = {(view.topic, view.partition): view.target_start or 0 for view in after.partitions}
    for move in moves:
        at_target = found.get((move.group, move.topic, move.partition))
        subject = f"{move.group} on {move.topic}"
        if move.kind is MoveKind.UNKNOWN and move.group not in left_groups:
            yield VerificationDifference(
                DifferenceKind.GROUP_NOT_MOVED, subject, move.partition, move.target_offset, at_target
            )
        elif move.target_offset is not None and at_target != move.target_offset:
            yield VerificationDifference(
                DifferenceKind.GROUP_OFFSET,
                subject,
                move.partition,
                move.target_offset,
                at_target,
            )
        elif (goes_to := move.target_offset) is not None and goes_to < starts.get((move.topic, move.partition), 0):
            start = starts[move.topic, move.partition]
            yield VerificationDifference(DifferenceKind.GROUP_BEFORE_LOG, subject, move.partition, start, goes_to)


Held = Mapping[str, Collection[TopicPartition] | ClientError]
"""By group where transactions that have not ended commit its offsets, or why that is not told."""


async def held_at_target(target: Cluster, moves: Iterable[GroupMove], but: Container[str] = ()) -> Held:
    """Of the places that groups are moved to, `but` for these groups. It needs no look, and may be asked beside one."""
    wanted: dict[str, list[TopicPartition]] = {}
    for move in moves:
        if move.target_offset is not None and move.group not in but:
            wanted.setdefault(move.group, []).append(TopicPartition(move.target_topic, move.partition))
    return await held_offsets(target, wanted, patience_ms=min(TARGET_ANSWER_MS, target.limits.retry_timeout_ms))


async def pending_moves(
    target: Cluster, after: Snapshot, moves: Iterable[GroupMove], held: Held | None = None
) -> list[GroupMove]:
    """Those whose groups stand where they were to, and that an application's transaction moves on when it ends. One
    that has consumers at the target commits there as it should; one of which that is not known may not. `held`: what
    was asked before. Raises ClientError.
    """
    found = offsets_at_target(after)
    quiet = {group.group for group in after.groups if not group.target_members and not group.unanswered}
    standing = [
        move
        for move in moves
        if move.group in quiet
        and move.target_offset is not None
        and found.get((move.group, move.topic, move.partition)) == move.target_offset
    ]
    told = dict(held or {})
    if more := [move for move in standing if move.group not in told]:
        told |= await held_at_target(target, more)
    places, failures = split_failures({move.group: told[move.group] for move in standing})
    for error in failures.values():
        raise error
    at = [(move.group, TopicPartition(move.target_topic, move.partition), move) for move in standing]
    return [move for group, where, move in sorted(at, key=lambda one: one[:2]) if where in places[group]]


class Compared(NamedTuple):
    """What differs; and the partitions of which no record was compared, since the last mirrored one is gone at a site,
    or where it lies is not known exactly.
    """

    differences: list[VerificationDifference]
    not_compared: list[str]


async def verify_ends(source: Cluster, target: Cluster, fenced: Snapshot, after: Snapshot) -> Compared:
    """Each partition's last record that was mirrored is the same at both sites.

    Where the target has writers of its own, its log's last record may be theirs: there the last mirrored one is where
    the map has it. What came to the source after the fence is for `stranded_ranges`, and what came to the target since
    it was opened is its clients'. Raises ClientError.
    """
    at_fence = {(view.topic, view.partition): view for view in fenced.partitions}
    differences, compared, not_compared = [], [], []
    for view in after.partitions:
        fence_view = at_fence.get((view.topic, view.partition))
        mirrored = fence_view.mirrored_source_next if fence_view else None
        if fence_view is None or not mirrored:
            continue
        if view.is_source_recreated and not fence_view.is_source_recreated:
            kind = DifferenceKind.RECREATED
            differences.append(VerificationDifference(kind, view.topic, view.partition, mirrored, view.source_end))
        elif view.source_end is not None and view.source_end < mirrored:
            kind = DifferenceKind.LEFT_BEHIND
            differences.append(VerificationDifference(kind, view.topic, view.partition, view.source_end, mirrored))
        elif not view.has_local_writers:
            fenced_end = fence_view.target_end
            target_end = view.target_end if fenced_end is None else min(view.target_end or 0, fenced_end)
            compared.append(_Ends(view, Span(0, mirrored), Span(0, target_end or 0)))
        elif fence_view.last_mirrored is not None:
            here, there = fence_view.last_mirrored
            compared.append(_Ends(view, Span(here, here + 1), Span(there, there + 1)))
        else:
            not_compared.append(view.name)
    found = await _compare_last(compared, source, target)
    return Compared([*differences, *found.differences], [*not_compared, *found.not_compared])


class _Ends(NamedTuple):
    """Where a partition's last mirrored record is looked for, at either site."""

    view: PartitionView
    here: Span
    there: Span


async def _compare_last(ends: Sequence[_Ends], source: Cluster, target: Cluster) -> Compared:
    (here, _), (there, starts) = await both(
        _last_kept(source, {TopicPartition(e.view.topic, e.view.partition): e.here for e in ends}),
        _last_kept(target, {TopicPartition(e.view.target_topic, e.view.partition): e.there for e in ends}),
    )
    differences, not_compared = [], []
    for view, _, span in ends:
        at_target = TopicPartition(view.target_topic, view.partition)
        ours, theirs = here[TopicPartition(view.topic, view.partition)], there[at_target]
        expected = ours.offset if isinstance(ours, Record) else None
        found = theirs.offset if isinstance(theirs, Record) else None
        is_cut = view.target_end is not None and view.target_end < span.end
        if isinstance(ours, FarshoreError) or isinstance(theirs, FarshoreError):
            kind = DifferenceKind.NOT_COMPARED
        elif ours is None or (theirs is None and not is_cut and (starts[at_target] or span.start)):
            not_compared.append(view.name)  # retention or compaction has left nothing to compare
            continue
        elif theirs is None or not same_content(ours, theirs):
            kind = DifferenceKind.LAST_RECORD
        else:
            continue
        differences.append(VerificationDifference(kind, view.topic, view.partition, expected, found))
    return Compared(differences, not_compared)


async def _last_kept(
    cluster: Cluster, spans: Mapping[TopicPartition, Span]
) -> tuple[Found, Mapping[TopicPartition, int]]:
    """The last record in each span that is still there, or why it cannot be read, where asking again is of no use; and
    where each log starts. Raises ClientError where it is of use.
    """
    told, _ = split_failures(await list_each_offset(cluster, dict.fromkeys(spans, EARLIEST)))
    starts = {where: told[where].offset if where in told else 0 for where in spans}
    left = {where: Span(min(max(starts[where], span.start), span.end), span.end) for where, span in spans.items()}
    found = await last_records(cluster, left)
    for record in found.values():
        is_gone = isinstance(record, KafkaError) and record.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if isinstance(record, ClientError) and record.retriable and not is_gone:
            raise record
    return found, starts


def same_content(one: Record, other: Record) -> bool:
    """Whether two records are equal in everything but their offset."""
    return (one.key, one.value, one.timestamp, one.headers) == (other.key, other.value, other.timestamp, other.headers)
