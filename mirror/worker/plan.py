"""From fetched batches to batches to produce: what is left out, what passes closed, what must be re-encoded.

A batch passes closed (its header patched in place, its records untouched and compressed as they came) unless the
position falls inside of it, it has holes in its offsets, the broker stamped its timestamps (the target would show the
producers' instead), or it is larger than the target allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from broker.client.committed import CommittedFilter
from broker.wire.batch import BatchHeader, iter_batches, patch_producer, verify_crc
from broker.wire.errors import CorruptBatch
from broker.wire.messages.fetch import AbortedTransaction
from broker.wire.records import Record, decode_records, encode_batch
from mirror.offsets.entries import Block, GapKind, Writer
from mirror.offsets.intervals import End, Interval, Piece, intervals_for
from mirror.offsets.recovery import SEQUENCE_MASK


@dataclass(slots=True)
class Outgoing:
    """A batch that is ready to be produced.

    `source_next` is the source offset behind its last record; `target_base` where it is expected to land;
    `intervals` what was (or is being) written ahead for it.
    """

    batch: bytearray | memoryview
    sequence: int
    count: int
    pieces: tuple[Piece, ...]
    source_next: int
    target_base: int
    intervals: tuple[Interval, ...]
    source_timestamp_ms: int

    def block(self, topic: str, partition: int, writer: Writer) -> Block:
        """The entry of the state topic for this batch's intervals (there must be some)."""
        first = self.intervals[0].target_start - self.target_base
        sequence = (self.sequence + first) & SEQUENCE_MASK
        return Block(topic, partition, writer, sequence, self.intervals)


@dataclass(slots=True)
class Cursor:
    """Up to where a partition is planned: next source offset to read, last record's end, next sequence."""

    position: int
    end: End
    sequence: int


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for every batch of a partition. `is_foreign` knows the producer ids whose batches came from here."""

    writer: Writer
    max_batch_bytes: int
    is_foreign: Callable[[int], bool] | None = None


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A source batch [source_from, source_to) that cannot be mirrored, and why."""

    kind: GapKind
    source_from: int
    source_to: int
    detail: str


@dataclass(slots=True)
class Plan:
    """The batches to produce, in order; with an obstacle, those before it."""

    outgoing: list[Outgoing] = field(default_factory=list)
    obstacle: Obstacle | None = None


def plan_batches(records: memoryview, aborted: Sequence[AbortedTransaction], cursor: Cursor, rules: Rules) -> Plan:
    """Plan what one fetch brought for one partition; patches batches in place and moves `cursor`."""
    plan = Plan()
    committed = CommittedFilter(aborted)
    source_to = cursor.position + 1  # of a batch whose header cannot be read, all that is known
    try:
        for header, batch in iter_batches(records):
            source_to = max(cursor.position + 1, header.next_offset)
            if _holds_data(header, batch, committed, cursor, rules):
                _add(plan.outgoing, header, batch, cursor, rules)
            cursor.position = max(cursor.position, header.next_offset)
    except CorruptBatch as error:
        plan.obstacle = Obstacle(GapKind.UNREADABLE_BATCH, cursor.position, source_to, str(error))
    except RecordTooLarge as error:
        source_from = max(cursor.position, cursor.end.source_next)  # behind the part of the batch that did fit
        plan.obstacle = Obstacle(GapKind.REFUSED_BATCH, source_from, source_to, str(error))
    return plan


def _holds_data(
    header: BatchHeader, batch: memoryview, committed: CommittedFilter, cursor: Cursor, rules: Rules
) -> bool:
    """Whether the batch has records to mirror. Raises CorruptBatch: damage is never passed on."""
    if header.next_offset > cursor.position:
        verify_crc(batch)
    if committed.drops(header, batch) or header.next_offset <= cursor.position or not header.record_count:
        return False
    return rules.is_foreign is None or header.producer_id < 0 or not rules.is_foreign(header.producer_id)


class RecordTooLarge(Exception):
    """A record that no batch within the target's limit can hold."""


def _add(outgoing: list[Outgoing], header: BatchHeader, batch: memoryview, cursor: Cursor, rules: Rules) -> None:
    closed = (
        header.base_offset >= cursor.position
        and header.record_count == header.last_offset_delta + 1
        and not header.is_log_append_time
        and header.size_bytes <= rules.max_batch_bytes
    )
    if not closed:
        kept = [record for record in decode_records(batch) if record.offset >= cursor.position]
        _add_encoded(outgoing, kept, header, cursor, rules)
        return
    patch_producer(
        batch,
        producer_id=rules.writer.producer_id,
        producer_epoch=rules.writer.epoch,
        base_sequence=cursor.sequence,
    )
    _append(outgoing, batch, (Piece(header.base_offset, 0),), header.record_count, header, cursor)


def _add_encoded(
    outgoing: list[Outgoing], records: list[Record], header: BatchHeader, cursor: Cursor, rules: Rules
) -> None:
    """Re-encode records densely, in halves where they are too large together."""
    if not records:
        return
    batch = encode_batch(
        records,
        compression=header.compression,
        producer_id=rules.writer.producer_id,
        producer_epoch=rules.writer.epoch,
        base_sequence=cursor.sequence,
    )
    if len(batch) > rules.max_batch_bytes:
        if len(records) == 1:
            text = f"the record at offset {records[0].offset} needs a batch of {len(batch)} bytes"
            raise RecordTooLarge(f"{text}, the target's max.message.bytes is {rules.max_batch_bytes}")
        half = len(records) // 2
        _add_encoded(outgoing, records[:half], header, cursor, rules)
        _add_encoded(outgoing, records[half:], header, cursor, rules)
        return
    _append(outgoing, batch, _pieces(records), len(records), header, cursor)


def _pieces(records: list[Record]) -> tuple[Piece, ...]:
    pieces: list[Piece] = []
    expected = -1
    for ordinal, record in enumerate(records):
        if record.offset != expected:
            pieces.append(Piece(record.offset, ordinal))
        expected = record.offset + 1
    return tuple(pieces)


def _append(
    outgoing: list[Outgoing],
    batch: bytearray | memoryview,
    pieces: tuple[Piece, ...],
    count: int,
    header: BatchHeader,
    cursor: Cursor,
) -> None:
    target_base = cursor.end.target_next
    intervals = intervals_for(cursor.end, pieces, target_base)
    last = pieces[-1]
    source_next = last.source_start + count - last.ordinal
    timestamp_ms = header.max_timestamp
    outgoing.append(Outgoing(batch, cursor.sequence, count, pieces, source_next, target_base, intervals, timestamp_ms))
    cursor.end = End(source_next, target_base + count)
    cursor.sequence = (cursor.sequence + count) & SEQUENCE_MASK
