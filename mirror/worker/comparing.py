"""Whether both logs still are the ones that a partition's state speaks of; and where they part, if not.

At each start: where the last leader epoch ended at the source, and the last mirrored record at both sites. Only where
one of them speaks against it more is read, backwards, until the copies agree: what the map says of an offset before
that holds, and what the source has behind it is not at the target. Contents decide over epochs wherever there are both,
since a restored site may use its epochs again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import attrgetter

from broker.base.turns import in_turns
from broker.client.errors import ClientError, ReadUnfinished
from broker.client.fanout import both, split_failures
from broker.client.probe import StoredBatch
from broker.wire.batch import HEADER_BYTES, TRANSACTIONAL_MASK, verify_crc
from broker.wire.errors import CorruptBatch
from broker.wire.records import decode_record_at
from broker.wire.vocabulary import TopicPartition
from mirror.offsets.entries import Checkpoint, GapKind, GapStatus, LastRecord
from mirror.offsets.histories import EpochStart, judge
from mirror.offsets.hold_entries import Hold, HoldReason
from mirror.offsets.offset_map import PartitionMap
from mirror.offsets.recovery import SEQUENCE_MASK, Recovered
from mirror.worker.comparison import Comparison
from mirror.worker.holds import Holds
from mirror.worker.limits import PARTITIONS_AT_ONCE
from mirror.worker.logs import Logs
from mirror.worker.origins import Passage
from mirror.worker.parting import (
    WIDE_WINDOWS_AT_ONCE,
    Copies,
    Parting,
    PartingSearch,
    find_partings,
    is_copy,
)
from mirror.worker.resume import Evidence, recover_partition

_PASSED_ON = attrgetter("batch_length", "last_offset_delta", "base_timestamp", "max_timestamp", "record_count")
"""What the mirror leaves as it is in a batch's header."""


@dataclass(frozen=True, slots=True)
class _Probe:
    """The last mirrored record: its batch at both sites, None where it cannot be read (any more).

    `is_equal`: whether its two copies are; None where one of them is not there, or cannot be read.
    """

    source: StoredBatch | None
    target: StoredBatch | None
    is_equal: bool | None

    @classmethod
    def of(cls, source: StoredBatch | None, target: StoredBatch | None, last: LastRecord | None) -> _Probe:
        is_equal = None
        if source is not None and target is not None and last is not None:
            is_equal = _is_equal(source, target, last)
        return cls(source, target, is_equal)


async def compare_logs(
    logs: tuple[Logs, Logs],
    evidence: Mapping[TopicPartition, Evidence],
    pairs: Mapping[TopicPartition, TopicPartition],
    passage: Passage,
    holds: Holds,
    patience_ms: int | None = None,
) -> dict[TopicPartition, Comparison]:
    """Per source partition with a checkpoint what both logs say of it; one that cannot be read is held, and left out.

    So is one that takes longer than `patience_ms` to compare (None: no limit). Raises ClientError when a site does not
    answer at all.
    """
    source, target = logs
    subjects = {where: found for where, found in evidence.items() if found.checkpoint and not found.source.is_recreated}
    turns = in_turns(subjects.items(), PARTITIONS_AT_ONCE)
    recovered = {where: recover_partition(found) async for where, found in turns}
    lasts = {where: found.last for where, found in recovered.items() if found.last is not None}
    ours = {where: last.source_offset for where, last in lasts.items()}
    theirs = {pairs[where]: last.target_offset for where, last in lasts.items()}
    (agreed, unasked), (read, read_there) = await both(
        _agreed_by_epochs(source, subjects), both(source.batches_at(ours), target.batches_at(theirs))
    )
    (at_source, unread), (at_target, unread_there) = split_failures(read), split_failures(read_there)
    for where, error in (unread | unasked).items():
        holds.add_error(where, error, at_source=True)
    for where in at_source.keys() - unasked.keys():
        if pairs[where] in unread_there:
            holds.add_error(where, unread_there[pairs[where]], at_source=False)
    comparisons: dict[TopicPartition, Comparison] = {}
    searches: dict[TopicPartition, PartingSearch] = {}
    wide = asyncio.Semaphore(WIDE_WINDOWS_AT_ONCE)
    async for where, found in in_turns(subjects.items(), PARTITIONS_AT_ONCE):
        if where in holds.current:
            continue
        probe = _Probe.of(at_source.get(where), at_target.get(pairs[where]), lasts.get(where))
        comparison = comparisons[where] = _doubts(found, recovered[where], probe, agreed.get(where))
        span = _span_to_search(found, recovered[where], comparison, probe, agreed.get(where))
        if span is not None:
            copies = _copies(logs, found, recovered[where], (where, pairs[where]), passage, wide)
            searches[where] = PartingSearch(copies, *span, _was_short(found, recovered[where]))
    for where, parting in (await find_partings(searches, patience_ms)).items():
        doubted, found = comparisons.pop(where), subjects[where]
        if isinstance(parting, ReadUnfinished):
            holds.add_late(where, parting)
        elif isinstance(parting, ClientError):  # of either site, for this partition; the others are not in doubt
            holds.add(Hold(*where, HoldReason.LOGS_NOT_COMPARED, str(parting), found.now_ms))
        elif doubted.is_doubted:
            comparisons[where] = _settled(doubted, found, agreed.get(where), parting)
        else:
            comparisons[where] = _seen(doubted, parting)
    return comparisons


async def _agreed_by_epochs(
    source: Logs, subjects: Mapping[TopicPartition, Evidence]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, ClientError]]:
    """Up to where the source's epochs say that its log is the one that was read; left out where they cannot say.

    And those that could not be asked.
    """
    read: dict[TopicPartition, tuple[EpochStart, ...]] = {}
    read_to: dict[TopicPartition, int] = {}
    for where, found in subjects.items():
        if found.checkpoint is not None and found.checkpoint.leader_epochs:
            read[where], read_to[where] = found.checkpoint.leader_epochs, found.checkpoint.epochs_end
    asked = {where: epochs[-1].leader_epoch for where, epochs in read.items()}
    agreed: dict[TopicPartition, int] = {}
    unasked: dict[TopicPartition, ClientError] = {}
    while asked:
        ends, failures = split_failures(await source.leader_epoch_ends(asked))
        unasked |= failures
        again: dict[TopicPartition, int] = {}
        for where, end in ends.items():
            verdict = judge(read[where], read_to[where], asked[where], end.leader_epoch, end.end_offset)
            if verdict.agreed_to is not None:
                agreed[where] = verdict.agreed_to
            elif verdict.ask_next is not None:
                again[where] = verdict.ask_next
        asked = again
    return agreed, unasked


def _was_short(evidence: Evidence, found: Recovered) -> bool:
    """Whether the source was seen without the end of its log, nobody has decided on that, and it is as long again."""
    stopped = evidence.of(GapStatus.STOPPED)
    return evidence.source.end >= found.position and any(gap.kind is GapKind.TRUNCATED_END for gap in stopped)


def _span_to_search(
    evidence: Evidence, found: Recovered, comparison: Comparison, probe: _Probe, agreed_to: int | None
) -> tuple[int, int | None] | None:
    """Below which source offset copies are to be compared, and what epochs say there; None: nothing asks for it."""
    if comparison.is_doubted and not evidence.target_is_recreated:
        hint = None if comparison.target_lost else agreed_to  # of the target it says nothing
        return min(found.position, evidence.source.end), hint
    if not comparison.is_doubted and (_is_unseen(probe) or _was_short(evidence, found)):
        return (evidence.source.start if found.last is None else found.last.source_offset + 1), None
    return None


def _doubts(evidence: Evidence, found: Recovered, probe: _Probe, agreed_to: int | None) -> Comparison:
    """What speaks against going on, before more is read."""
    checkpoint, source = evidence.checkpoint, evidence.source
    assert checkpoint is not None
    target_lost = _target_lost(evidence, found, probe)
    is_unlike = not target_lost and found.last is not None and _differs(found.last.source_offset, probe)
    source_parted = ""
    if source.end < found.position:
        source_parted = f"the source's log ended at {source.end}, the mirror had read to {found.position}"
    elif agreed_to is not None and agreed_to < checkpoint.epochs_end:
        source_parted = f"by its leader epochs the source's log is another one from offset {agreed_to} on"
    elif is_unlike and found.last is not None:
        if agreed_to is None or agreed_to <= found.last.source_offset or _stands_as_written(checkpoint, found, probe):
            source_parted = f"the source has another record at offset {found.last.source_offset} than was mirrored"
        else:  # by its epochs the source's log is the one that was read: it is the target's that changed
            target_lost = f"the mirrored record at the target's offset {found.last.target_offset} is another one now"
    return Comparison(
        source_parted=source_parted,
        target_lost=target_lost,
        agreed_to=source.start,
        last=None,
        epochs_stand=agreed_to is not None and agreed_to == checkpoint.epochs_end == found.position,
        is_unlike=is_unlike,
    )


def _target_lost(evidence: Evidence, found: Recovered, probe: _Probe) -> str:
    """Why the target does not hold what it had acknowledged; "" where nothing says so."""
    assert evidence.checkpoint is not None
    acknowledged, tail, last = evidence.checkpoint.end.target_next, evidence.tail, found.last
    if evidence.target_is_recreated:
        ids = (evidence.checkpoint.topic_ids.target, evidence.target_topic_id)
        return "the target topic's id was {} and is {}".format(*ids)
    if evidence.lost_from is not None:
        return f"the target's log had ended at {evidence.lost_from}, up to {acknowledged} was acknowledged"
    # The fence wrote a marker, so the log should be longer; but another session that was starting then may have taken
    # the marker for the log's end, and acknowledged it. So of equal ends the last record decides.
    unproved = last is None and bool(found.intervals) and found.intervals[0].target_start < acknowledged
    if tail.log_end < acknowledged or (tail.log_end == acknowledged and unproved and evidence.fenced):
        return f"the target's log ends at {tail.log_end}, up to {acknowledged} was acknowledged"
    if found.lost_at is not None:
        return f"what was mirrored before the target's offset {found.lost_at} is not there any more"
    if last is None:
        return ""
    if last.target_offset >= tail.log_end:
        return f"the target's log ends at {tail.log_end}, offset {last.target_offset} was acknowledged"
    stored = probe.target
    if stored is None or stored.header.base_offset > last.target_offset:
        return ""  # retention or compaction took it: a log that was cut and grew again has no holes
    if stored.header.is_control or stored.header.producer_id != last.producer_id:
        return f"the mirrored record at the target's offset {last.target_offset} is not there any more"
    return ""


def _differs(source_offset: int, probe: _Probe) -> bool:
    """Whether the last mirrored record's two copies can be read, and are unlike."""
    if probe.source is None or probe.source.header.base_offset > source_offset:
        return False
    return probe.source.header.is_control or probe.is_equal is False


def _stands_as_written(checkpoint: Checkpoint, found: Recovered, probe: _Probe) -> bool:
    """Whether the last mirrored record's sequence at the target is the one that the writer gave it.

    Epochs vouch for a source that lost its end and grew again before anybody missed its leader. What a session wrote
    over a loss at the target has a later sequence.
    """
    if found.last is None or probe.target is None:
        return False
    header = probe.target.header
    if (header.producer_id, header.producer_epoch) != checkpoint.writer:
        return False
    if found.last != checkpoint.last:
        return True  # found behind the checkpoint, by its sequence
    sequence = header.base_sequence + found.last.target_offset - header.base_offset
    return (sequence + 1 - checkpoint.sequence) & SEQUENCE_MASK == 0


def _is_unseen(probe: _Probe) -> bool:
    """Whether the last mirrored record's copies could not be compared, though both logs go that far: compaction."""
    return probe.source is not None and probe.target is not None and probe.is_equal is None


def _is_equal(source: StoredBatch, target: StoredBatch, last: LastRecord) -> bool | None:
    """None where compaction took one of the copies, or damage: neither proves anything."""
    try:
        verify_crc(source.batch)
        verify_crc(target.batch)
        if _is_same_batch(source, target, last):
            return True
        theirs = decode_record_at(source.batch, last.source_offset)
        ours = decode_record_at(target.batch, last.target_offset)
    except CorruptBatch:
        return None
    if theirs is None or ours is None:
        return None
    return is_copy(theirs, ours, stamped=target.header.is_log_append_time)


def _is_same_batch(source: StoredBatch, target: StoredBatch, last: LastRecord) -> bool:
    """Whether the batch was passed on as it was, and both have the record at one place in it: it needs no opening."""
    theirs, ours = source.header, target.header
    place = last.source_offset - theirs.base_offset
    return (
        0 <= place == last.target_offset - ours.base_offset < ours.record_count == ours.last_offset_delta + 1
        and _PASSED_ON(theirs) == _PASSED_ON(ours)
        and (theirs.attributes ^ ours.attributes) & ~TRANSACTIONAL_MASK == 0
        and bytes(source.batch[HEADER_BYTES:]) == bytes(target.batch[HEADER_BYTES:])
    )


def _copies(
    logs: tuple[Logs, Logs],
    evidence: Evidence,
    found: Recovered,
    where: tuple[TopicPartition, TopicPartition],
    passage: Passage,
    wide: asyncio.Semaphore,
) -> Copies:
    known = PartitionMap(found.intervals, found.end, found.position)
    target_log = (evidence.tail.log_start, evidence.tail.log_end)
    return Copies(logs, where, known, evidence.source.start, target_log, passage, wide)


def _seen(undoubted: Comparison, parting: Parting) -> Comparison:
    """Records before the last one decide where that is not there any more."""
    if parting.differs_from is None:
        return replace(undoubted, is_whole=parting.is_whole)
    reason = f"the source has another record at offset {parting.differs_from} than was mirrored"
    return replace(undoubted, source_parted=reason, agreed_to=parting.agreed_to, last=parting.last)


def _settled(doubted: Comparison, found: Evidence, by_epochs: int | None, parting: Parting) -> Comparison:
    """The doubt after reading. Copies that are equal behind where epochs say that the logs part take it back, but not
    where the last one is unlike: reading does not meet what the link does not carry, and the source has in its place.
    """
    stands = found.source.end < parting.position or bool(doubted.target_lost) or doubted.is_unlike
    agreed_to = parting.agreed_to
    if by_epochs is not None and (parting.last is None or parting.last.source_offset < by_epochs):
        agreed_to = min(agreed_to, by_epochs)  # also where the source has nothing there now that would be mirrored
    elif parting.is_compared and parting.differs_from is None and not stands:
        return replace(
            doubted,
            source_parted="",
            agreed_to=agreed_to,
            last=parting.last,
            epochs_denied=True,
            is_whole=parting.is_whole,
        )
    return replace(doubted, agreed_to=max(agreed_to, found.source.start), last=parting.last)
