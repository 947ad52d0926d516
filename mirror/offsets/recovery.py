"""Where a partition stands after a crash or a takeover: a pure function of what the target holds.

The last checkpoint is proved. After it, the target's log holds a prefix of what its writer sent (one producer id and
epoch, sequences without gaps), maybe a local writer's batches in between, and the markers of later fences. The
blocks that were written ahead say which source offset a sequence stands for; the batches' headers say where it landed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from mirror.offsets.entries import Block, Checkpoint, LastRecord
from mirror.offsets.intervals import End, Interval, Piece, intervals_for
from mirror.offsets.paged import Intervals

SEQUENCE_MASK = 0x7FFFFFFF
"""Sequences wrap to 0 after 2^31 - 1."""
_BEHIND = 0x40000000
"""A distance beyond half of the sequence space lies behind, not ahead."""


class TailBatch(NamedTuple):
    """What recovery needs of a batch's header in the target's log."""

    base_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_control: bool


class OffsetRange(NamedTuple):
    """Target offsets [first, last]."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Recovered:
    """`end` is where the next record comes from and goes to; `intervals` are all that hold before it.

    `position` is the source offset to read next (what lies between it and the end's is known to hold nothing).

    `foreign` are the batches of other writers after the checkpoint. `landed_records` counts our own there, `sequences`
    how far the last of them goes behind the checkpoint's (more, where some are gone again). `last` is the last of our
    own, there or before. `lost_at` is the target offset of the first batch of ours before which another of ours is
    missing, though no offset is, or of one that lies across the checkpoint's end: the target lost what was there, and
    what came later is not counted.
    """

    end: End
    position: int
    intervals: Intervals
    foreign: tuple[OffsetRange, ...]
    landed_records: int
    last: LastRecord | None = None
    lost_at: int | None = None
    sequences: int = 0


def recover(
    recorded: Intervals,
    blocks: Iterable[Block],
    checkpoint: Checkpoint,
    tail: Iterable[TailBatch],
) -> Recovered:
    """Compute the exact position from the recorded intervals, the blocks, and the log behind the checkpoint.

    `tail` are the batches of the target's log from `checkpoint.end.target_next` on. The returned end's target is right
    behind the last mirrored record, whatever others (markers, local writers) put there: see `step_over`.
    """
    end = checkpoint.end
    intervals = recorded.copy()
    while intervals and intervals[-1].source_start >= end.source_next and tuple(intervals[-1]) != end:
        intervals.pop()
    steps: list[int] = []  # made when a batch of the writer is met: behind most checkpoints there is none
    sources: list[int] = []
    foreign: list[OffsetRange] = []
    found = checkpoint.last
    lost_at: int | None = None
    distance = landed = 0
    target_next, is_behind_hole = checkpoint.end.target_next, False
    for batch in tail:
        if batch.last_offset < target_next:
            continue
        is_behind_hole |= batch.base_offset > target_next  # wherever since our last: others may stand between
        target_next = batch.last_offset + 1
        if batch.is_control:
            continue
        if batch.base_offset < checkpoint.end.target_next:  # it lies across the end: that had gone when it landed
            lost_at = batch.base_offset
            break
        ahead = (batch.base_sequence - checkpoint.sequence) & SEQUENCE_MASK
        ours = (batch.producer_id, batch.producer_epoch) == checkpoint.writer
        if not ours or not distance <= ahead < _BEHIND:
            foreign.append(OffsetRange(batch.base_offset, batch.last_offset))
            continue
        if ahead > distance and not is_behind_hole:  # of what compaction or retention took sequences are missing, too
            lost_at = batch.base_offset
            break
        is_behind_hole = False
        count = batch.last_offset - batch.base_offset + 1
        if not steps:
            steps, sources = _sequence_map(blocks, checkpoint)
        pieces = _pieces(steps, sources, ahead, count)
        intervals.go_on(intervals_for(end, pieces, batch.base_offset), end)
        last = pieces[-1]
        end = End(last.source_start + count - last.ordinal, batch.last_offset + 1)
        found = LastRecord(end.source_next - 1, batch.last_offset, batch.producer_id)
        distance = ahead + count
        landed += count
    position = end.source_next if distance else checkpoint.position
    return Recovered(end, position, intervals, tuple(foreign), landed, found, lost_at, distance)


def landed_to(blocks: Iterable[Block], checkpoint: Checkpoint, tail: Iterable[TailBatch]) -> int:
    """The source offset behind the last record of the checkpoint's writer in `tail`, wherever in the log it stands.

    Where the target lost records, later ones of the same session may have landed in their place, or in a new topic of
    that name. The checkpoint's own end where there are none.
    """
    steps, sources = _sequence_map(blocks, checkpoint)
    source_next = checkpoint.end.source_next
    for batch in tail:
        ahead = (batch.base_sequence - checkpoint.sequence) & SEQUENCE_MASK
        ours = (batch.producer_id, batch.producer_epoch) == checkpoint.writer and not batch.is_control
        if ours and ahead < _BEHIND:
            count = batch.last_offset - batch.base_offset + 1
            last = _pieces(steps, sources, ahead, count)[-1]
            source_next = max(source_next, last.source_start + count - last.ordinal)
    return source_next


def step_over(found: Recovered, log_end: int) -> Recovered:
    """The position from which a new writer goes on: what lies between the last record and the log end is skipped."""
    end = found.end
    if log_end == end.target_next:
        return found
    intervals = found.intervals.copy()
    intervals.go_on([Interval(end.source_next, log_end)], end)
    stepped = End(end.source_next, log_end)
    return Recovered(
        stepped,
        found.position,
        intervals,
        found.foreign,
        found.landed_records,
        found.last,
        found.lost_at,
        found.sequences,
    )


def _sequence_map(blocks: Iterable[Block], checkpoint: Checkpoint) -> tuple[list[int], list[int]]:
    """Sorted distances from the checkpoint's sequence, and the source offset at each."""
    starts = [(0, checkpoint.end.source_next)]
    for block in blocks:
        if block.writer != checkpoint.writer or not block.intervals:
            continue
        first_target = block.intervals[0].target_start
        for interval in block.intervals:
            sequence = block.sequence + interval.target_start - first_target
            distance = (sequence - checkpoint.sequence) & SEQUENCE_MASK
            if distance < _BEHIND and interval.source_start >= checkpoint.end.source_next:
                starts.append((distance, interval.source_start))
    starts.sort()
    return [distance for distance, _ in starts], [source for _, source in starts]


def _pieces(steps: list[int], sources: list[int], ahead: int, count: int) -> list[Piece]:
    """The runs of a batch whose first record is `ahead` of the checkpoint's sequence."""
    index = bisect_right(steps, ahead) - 1
    pieces = [Piece(sources[index] + ahead - steps[index], 0)]
    index += 1
    while index < len(steps) and steps[index] < ahead + count:
        piece = Piece(sources[index], steps[index] - ahead)
        if pieces[-1].ordinal == piece.ordinal:
            pieces[-1] = piece
        else:
            pieces.append(piece)
        index += 1
    return pieces
