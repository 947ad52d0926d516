"""From fetched batches to batches to produce: what is left out, what passes through, what must be re-encoded.

A batch passes through (its header patched in place, its records untouched and compressed as they came) unless the
position falls inside of it, its offsets have gaps, the broker stamped its timestamps (the target would show the
producers' instead), its header says what is no client's to say, or it is larger than the target allows. Messages of the
formats before record batches were made into batches on the way here (`broker/wire/message_sets.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from broker.client.committed import CommittedFilter
from broker.wire.batch import BatchHeader, patch_producer, verify_crc
from broker.wire.errors import CorruptBatch
from broker.wire.message_sets import iter_fetched
from broker.wire.messages.fetch import AbortedTransaction
from broker.wire.vocabulary import NO_LEADER_EPOCH
from mirror.offsets.entries import Block, GapKind, Writer
from mirror.offsets.histories import EpochStart
from mirror.offsets.intervals import End, Interval, Piece, intervals_for
from mirror.offsets.left_out import LeftOut, join_left_out
from mirror.offsets.origin_entries import Way
from mirror.offsets.recovery import SEQUENCE_MASK
from mirror.origins import Judgement, Verdict
from mirror.worker.budget import Lease
from mirror.worker.recoding import Recoded, RecordTooLarge, Sealed, passes_through, recode


@dataclass(slots=True)
class ProducerBatch:
    """A batch that is ready to be produced.

    `source_next` is the source offset behind its last record; `target_base` where it is expected to land;
    `intervals` what was (or is being) written ahead for it; `lease` that of the frame whose memory it is a view of;
    `way` how it came to the source.
    """

    batch: bytearray | memoryview
    sequence: int
    count: int
    pieces: tuple[Piece, ...]
    source_next: int
    target_base: int
    intervals: tuple[Interval, ...]
    source_timestamp_ms: int
    lease: Lease
    way: Way

    def block(self, topic: str, partition: int, writer: Writer) -> Block:
        """The entry of the state topic for this batch's intervals (there must be some)."""
        first = self.intervals[0].target_start - self.target_base
        sequence = (self.sequence + first) & SEQUENCE_MASK
        return Block(topic, partition, writer, sequence, self.intervals)


@dataclass(slots=True)
class Cursor:
    """Up to where a partition is planned: next source offset to read, last record's end, next sequence.

    `leader_epoch` is that of the last record before `position`, NO_LEADER_EPOCH where it is not known.
    """

    position: int
    end: End
    sequence: int
    leader_epoch: int = NO_LEADER_EPOCH


_CARRIED: Final = Judgement(Verdict.CARRY, Way(frozenset(), frozenset()))


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for every batch of a partition. `judge` says what becomes of the batches of producers.

    `names_origins`: of each batch it is written ahead how it came here.
    """

    writer: Writer
    max_batch_bytes: int
    judge: Callable[[BatchHeader], Judgement] = field(default=lambda _header: _CARRIED)
    names_origins: bool = False


@dataclass(frozen=True, slots=True)
class Blocker:
    """A source batch [source_from, source_to) that cannot be mirrored, and why."""

    kind: GapKind
    source_from: int
    source_to: int
    detail: str


@dataclass(slots=True)
class Plan:
    """The batches to produce, in order, and the cursor behind them; with a blocker, those before it.

    `leader_epochs` are those that began, `left_out` is what is left to others. The batches do not hold the `lease` yet:
    who takes the plan holds it for each.
    """

    cursor: Cursor
    lease: Lease
    batches: list[ProducerBatch] = field(default_factory=list)
    leader_epochs: list[EpochStart] = field(default_factory=list)
    blocker: Blocker | None = None
    left_out: tuple[LeftOut, ...] = ()
    way: Way = _CARRIED.way
    """Of the source's batch that was planned last."""


def plan_batches(
    records: memoryview,
    aborted: Sequence[AbortedTransaction],
    start: Cursor,
    rules: Rules,
    lease: Lease,
    recoded: Mapping[int, Recoded] = MappingProxyType({}),
) -> Plan:
    """Plan what one fetch brought for one partition from `start` on; patches batches in place.

    `recoded` is what was opened ahead, from the same start; what is missing there is opened here.
    """
    cursor = replace(start)
    plan = Plan(cursor, lease)
    committed = CommittedFilter(aborted)
    source_to = cursor.position
    try:
        for header, batch in iter_fetched(records):
            source_to = max(cursor.position + 1, header.next_offset)
            judged = _judged(header, batch, committed, cursor, rules)
            if judged is not None and judged.verdict is Verdict.CARRY:
                plan.way = judged.way
                _add(plan, header, batch, rules, recoded)
            elif judged is not None:
                first = max(cursor.position, header.base_offset)
                left = (LeftOut(site, first, header.next_offset) for site in judged.left_to)
                plan.left_out = join_left_out(plan.left_out, left)
            _note_epoch(plan, header)
            cursor.position = max(cursor.position, header.next_offset)
    except CorruptBatch as error:
        source_to = max(source_to, cursor.position + 1, error.next_offset or 0)
        plan.blocker = Blocker(GapKind.UNREADABLE_BATCH, cursor.position, source_to, str(error))
    except OriginUnclear as error:
        plan.blocker = Blocker(GapKind.MIXED_ORIGINS, cursor.position, source_to, str(error))
    except RecordTooLarge as error:
        source_from = max(cursor.position, cursor.end.source_next)  # behind the part of the batch that did fit
        plan.blocker = Blocker(GapKind.REFUSED_BATCH, source_from, error.offset + 1, str(error))
    return plan


def _note_epoch(plan: Plan, header: BatchHeader) -> None:
    """Every batch counts, also one without anything to mirror: the source has it, and may lose it."""
    cursor = plan.cursor
    if header.next_offset > cursor.position and header.partition_leader_epoch > cursor.leader_epoch:
        cursor.leader_epoch = header.partition_leader_epoch
        plan.leader_epochs.append(EpochStart(cursor.leader_epoch, max(cursor.position, header.base_offset)))


def _judged(
    header: BatchHeader, batch: memoryview, committed: CommittedFilter, cursor: Cursor, rules: Rules
) -> Judgement | None:
    """How the batch's records came to the source, and whether they go on; None where it has none.

    Raises CorruptBatch: damage is never passed on; OriginUnclear.
    """
    if header.next_offset > cursor.position:
        verify_crc(batch)
    if committed.drops(header, batch) or header.next_offset <= cursor.position or not header.record_count:
        return None
    judged = rules.judge(header)
    if judged.verdict is Verdict.UNCLEAR and judged.untold:
        text = f"the state of link {judged.untold} does not say how a batch of its producer {header.producer_id} came"
        raise OriginUnclear(f"{text}: it was deleted, or an entry of it cannot be read")
    if judged.verdict is Verdict.UNCLEAR:
        text = f"producer {header.producer_id} brought records that the target has, and others, and did not say which"
        raise OriginUnclear(f"{text}; link the sites directly, or leave out a link of the circle")
    return judged


class OriginUnclear(Exception):
    """A batch of which nothing says whether the target has it: to mirror it may begin a loop, not to may lose it."""


def _add(plan: Plan, header: BatchHeader, batch: memoryview, rules: Rules, recoded: Mapping[int, Recoded]) -> None:
    position = plan.cursor.position
    if passes_through(header, position, rules.max_batch_bytes):
        _sign(batch, plan.cursor, rules)
        _append(plan, batch, (Piece(header.base_offset, 0),), header.record_count, header.max_timestamp)
        return
    made = recoded.get(header.base_offset) or recode(Sealed(header, batch), position, rules.max_batch_bytes)
    for each in made.batches:
        _sign(each.batch, plan.cursor, rules)
        _append(plan, each.batch, each.pieces, each.count, header.max_timestamp)
    if made.error is not None:
        raise made.error


def _sign(batch: bytearray | memoryview, cursor: Cursor, rules: Rules) -> None:
    writer = rules.writer
    patch_producer(batch, producer_id=writer.producer_id, producer_epoch=writer.epoch, base_sequence=cursor.sequence)


def _append(
    plan: Plan, batch: bytearray | memoryview, pieces: tuple[Piece, ...], count: int, source_timestamp_ms: int
) -> None:
    cursor = plan.cursor
    target_base = cursor.end.target_next
    last = pieces[-1]
    source_next = last.source_start + count - last.ordinal
    plan.batches.append(
        ProducerBatch(
            batch=batch,
            sequence=cursor.sequence,
            count=count,
            pieces=pieces,
            source_next=source_next,
            target_base=target_base,
            intervals=intervals_for(cursor.end, pieces, target_base),
            source_timestamp_ms=source_timestamp_ms,
            lease=plan.lease,
            way=plan.way,
        )
    )
    cursor.end = End(source_next, target_base + count)
    cursor.sequence = (cursor.sequence + count) & SEQUENCE_MASK
