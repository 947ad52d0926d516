"""Where one partition goes on when a session starts: a pure decision over what both clusters and the state say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from broker.wire.vocabulary import TopicPartition
from mirror.offsets.entries import Block, Checkpoint, Gap, GapKind, GapStatus, VoidBlock, Writer
from mirror.offsets.intervals import End, Interval
from mirror.offsets.recovery import Recovered, recover, step_over
from mirror.offsets.state_writer import Change
from mirror.offsets.tail import Tail

RETRIED_KINDS = frozenset({GapKind.UNREADABLE_BATCH, GapKind.REFUSED_BATCH})
"""A new session tries these again by itself: the batch may be readable, or the target willing, by now."""


class SourceLog(NamedTuple):
    """The source partition: log start and end, its topic's id now and when it was first mirrored ("" for no id)."""

    start: int
    end: int
    topic_id: str
    known_topic_id: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that decides. `tail` is the target's log behind the checkpoint, read after the fence."""

    where: TopicPartition
    shared: bool
    source: SourceLog
    tail: Tail
    recorded: tuple[Interval, ...]
    blocks: tuple[Block, ...]
    checkpoint: Checkpoint | None
    open_gap: Gap | None
    accepted_gap: Gap | None
    now_ms: int


@dataclass(frozen=True, slots=True)
class Opening:
    """The decision: the map so far, where to go on, what to write first; a `gap` means: stand still.

    `passed` is the accepted gap that this opening steps over.
    """

    end: End
    position: int
    intervals: tuple[Interval, ...]
    changes: tuple[Change, ...]
    gap: Gap | None = None
    passed: Gap | None = None


def open_partition(evidence: Evidence, writer: Writer) -> Opening:
    """Decide. An accepted gap is stepped over; a new one, or one that is still open, stops the partition."""
    checkpoint = evidence.checkpoint
    if checkpoint is None:
        start = evidence.source.start
        fresh = Recovered(End(start, evidence.tail.log_end), start, (), (), 0)
        return _go_on(evidence, writer, fresh)
    found = recover(evidence.recorded, evidence.blocks, checkpoint, evidence.tail.batches)
    accepted = evidence.accepted_gap
    gap = _find_gap(evidence, checkpoint, found)
    if gap is not None and accepted is not None and accepted.kind is gap.kind:
        return _pass_gap(
            evidence, writer, found, replace(gap, status=GapStatus.PASSED, source_from=accepted.source_from)
        )
    if accepted is not None and gap is None:
        return _pass_gap(evidence, writer, found, replace(accepted, status=GapStatus.PASSED))
    open_gap = evidence.open_gap
    if gap is None and open_gap is not None and open_gap.kind not in RETRIED_KINDS:
        gap = open_gap
    if gap is None:
        opening = _go_on(evidence, writer, found)
        if open_gap is None:
            return opening
        retried = replace(open_gap, status=GapStatus.PASSED, detail=f"tried again: {open_gap.detail}")
        return replace(opening, changes=(*opening.changes, retried))
    return Opening(found.end, found.position, found.intervals, (gap,), gap)


def _find_gap(evidence: Evidence, checkpoint: Checkpoint, found: Recovered) -> Gap | None:
    """What keeps the partition from going on at `found.position`, if anything does."""
    source, tail = evidence.source, evidence.tail
    position, target_next = found.position, found.end.target_next
    if source.topic_id and source.known_topic_id and source.topic_id != source.known_topic_id:
        detail = f"the source topic's id was {source.known_topic_id} and is {source.topic_id}"
        return _gap(evidence, GapKind.RECREATED, (position, source.start), target_next, detail)
    if tail.log_end <= checkpoint.end.target_next:  # the fence's marker is there, so the log should be longer
        lost_from = tail.log_end - 1
        detail = f"the target's log ends at {lost_from}, up to {checkpoint.end.target_next} was acknowledged"
        again = _source_of(found, lost_from)
        return _gap(evidence, GapKind.TARGET_TRUNCATED, (position, again), lost_from, detail)
    if found.foreign and not evidence.shared:
        first, last = found.foreign[0].first, found.foreign[-1].last
        detail = f"another producer wrote target offsets {first} to {last}"
        return _gap(evidence, GapKind.FOREIGN_WRITER, (position, position), target_next, detail)
    if source.start > position:
        detail = f"the source's log starts at {source.start}"
        return _gap(evidence, GapKind.TRUNCATED_START, (position, source.start), target_next, detail)
    if source.end < position:
        detail = f"the source's log ends at {source.end}, the mirror had read to {position}"
        return _gap(evidence, GapKind.TRUNCATED_END, (position, source.end), target_next, detail)
    return None


def _gap(evidence: Evidence, kind: GapKind, span: tuple[int, int], target_offset: int, detail: str) -> Gap:
    return Gap(
        topic=evidence.where.topic,
        partition=evidence.where.partition,
        kind=kind,
        source_from=span[0],
        source_to=span[1],
        target_offset=target_offset,
        status=GapStatus.STOPPED,
        at_ms=evidence.now_ms,
        detail=detail,
    )


def _source_of(found: Recovered, target_offset: int) -> int:
    """The source offset of the first mirrored record at or after the target offset."""
    for index in range(len(found.intervals) - 1, -1, -1):
        interval = found.intervals[index]
        if interval.target_start <= target_offset:
            return min(found.end.source_next, interval.source_start + target_offset - interval.target_start)
    return found.intervals[0].source_start if found.intervals else found.end.source_next


def _pass_gap(evidence: Evidence, writer: Writer, found: Recovered, gap: Gap) -> Opening:
    """Go on at the gap's other side. Intervals that the new offsets contradict are void."""
    recreated = gap.kind is GapKind.RECREATED
    log_end = evidence.tail.log_end
    before = () if recreated else step_over(found, log_end).intervals
    kept = tuple(interval for interval in before if interval.source_start < gap.source_to)
    behind = Recovered(End(gap.source_to, log_end), gap.source_to, kept, (), 0)
    opening = _go_on(evidence, writer, behind, force=True, void_all=recreated)
    return replace(opening, changes=(*opening.changes, gap), passed=gap)


def _go_on(
    evidence: Evidence, writer: Writer, found: Recovered, *, force: bool = False, void_all: bool = False
) -> Opening:
    """Start at `found`: void what was written ahead and never landed, record what landed otherwise than recorded."""
    where = evidence.where
    base = found
    found = step_over(found, evidence.tail.log_end)
    start = Interval(*found.end)
    intervals = found.intervals
    if force or not intervals or found is not base:
        intervals = (*(i for i in intervals if i.source_start < start.source_start), start)
    intervals = _still_there(intervals, evidence.tail.log_start)
    changes: list[Change] = [
        VoidBlock(where.topic, where.partition, block.key_source)
        for block in evidence.blocks
        if void_all
        or block.key_source >= found.end.source_next
        or block.intervals[-1].source_start < intervals[0].source_start
    ]
    recorded = set(evidence.recorded)
    corrected = tuple(interval for interval in intervals if interval not in recorded and interval != start)
    if corrected:
        changes.append(Block(where.topic, where.partition, writer, 0, corrected))
    changes.append(Block(where.topic, where.partition, writer, 0, (start,)))
    before = evidence.checkpoint
    changes.append(
        Checkpoint(
            topic=where.topic,
            partition=where.partition,
            end=found.end,
            position=found.position,
            writer=writer,
            sequence=0,
            source_end_offset=evidence.source.end,
            source_timestamp_ms=before.source_timestamp_ms if before else -1,
            observed_at_ms=evidence.now_ms,
        )
    )
    return Opening(found.end, found.position, intervals, tuple(changes))


def _still_there(intervals: tuple[Interval, ...], log_start: int) -> tuple[Interval, ...]:
    """Without the intervals whose records the target's retention has deleted: or a map would only ever grow."""
    first = 0
    while first + 1 < len(intervals) and intervals[first + 1].target_start <= log_start:
        first += 1
    return intervals[first:]
