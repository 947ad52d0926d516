"""Compaction: of the records with the same key the last one stays (cleanup.policy=compact).

A pass has three parts, so that the middle one may run in a thread: `plan` chooses sealed segments,
`CompactionJob.run` reads them and writes what stays to `.cleaned` files, `install` puts those in place. Sealed
segments never change, and nobody else writes `.cleaned`.

What stays: the newest record of each key; everything after the pass's end; a tombstone (null value) until
`delete.retention.ms` after the pass that first met it; a transaction marker as long, or as long as data of its
transaction is there; a batch that cannot be opened, which is counted. What goes: older records, records of aborted
transactions, records without a key. Offsets and sequences stay as they were; batches may get offset gaps.

The time of that first pass is the file's modification time. Segments that wait for it are not merged with others: a
merge would start their time again, for ever where passes are frequent (KAFKA-8522).

Crash safety: once `<base>.log.swap` exists under its name it is whole and on the disk, with its indexes;
`finish_swaps` then redoes the rest. Before that, the old segments are untouched and `.cleaned` files are thrown away.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b
from pathlib import Path

from broker.limits import COMPACTION_KEYS_MAX, SEGMENT_OFFSETS_MAX
from broker.log import layout
from broker.log.config import LogConfig
from broker.log.disk import Disk
from broker.log.guard import all_of_it
from broker.log.producers import AbortedTransaction
from broker.log.segment import Segment
from broker.log.stored import stored_records
from broker.wire.batch import BatchHeader, peek
from broker.wire.errors import CorruptBatch
from broker.wire.records import Record, encode_batch

_INDEXES = (layout.OFFSET_INDEX, layout.TIME_INDEX, layout.TXN_INDEX)
_KEY_BYTES_KEPT = 15


class Age(Enum):
    DIRTY = "meets its first pass now"
    WAITING = "its tombstones are still kept"
    EXPIRED = "its tombstones may go"


class PassStopped(Exception):
    """Whoever had it run does not wait for its end."""


@dataclass(frozen=True, slots=True)
class SegmentGroup:
    """Neighbouring segments (readers of them) of one age that become one segment."""

    segments: list[Segment]
    age: Age
    modified_ms: int


@dataclass(slots=True)
class CompactionJob:
    """One pass over `segments`; `end_offset` (exclusive) is known after `run`."""

    segments: list[Segment]
    # The same segments opened again, so that retention or a deleted topic does not pull the files away under `run`.
    readers: list[Segment]
    first_dirty_offset: int
    aborted: Mapping[int, list[AbortedTransaction]]
    config: LogConfig
    disk: Disk
    now_ms: int
    end_offset: int = 0
    outcome: list[tuple[SegmentGroup, Segment]] = field(default_factory=list)
    # Base offsets of batches that were kept because they cannot be opened.
    unreadable: list[int] = field(default_factory=list)
    # Set while `run` is in its thread: it raises PassStopped soon, and nothing of it stays.
    stopped: bool = False
    # Producers whose transactional data was kept and whose next marker must stay.
    _kept_data_of: set[int] = field(default_factory=set)
    _latest: dict[bytes, int] = field(default_factory=dict)

    def run(self) -> None:
        """Writes the cleaned segments. Raises OSError, LogDamaged for files that are not as they were written, and
        PassStopped.
        """
        try:
            with ExitStack() as unfinished:
                unfinished.callback(self.discard)
                self.end_offset = self._read_keys()
                covered = [segment for segment in self.readers if segment.base_offset < self.end_offset]
                for group in self._groups(covered):
                    self._clean(group)
                unfinished.pop_all()
        finally:
            for reader in self.readers:
                reader.close()

    def discard(self) -> None:
        """Throws away what `run` wrote and `install` has not put in place; what cannot be removed now is not taken for
        anything later.
        """
        for _, cleaned in self.outcome:
            with suppress(OSError):
                cleaned.delete()
            cleaned.close()
        self.outcome.clear()

    def _read_keys(self) -> int:
        """Notes the last offset of every key in the dirty part; the offset that the pass reaches."""
        for segment in self.readers:
            if segment.next_offset <= self.first_dirty_offset:
                continue
            for batch in self._batches(segment):
                header = peek(batch)
                done = header.last_offset < self.first_dirty_offset
                if done or header.is_control or self._is_aborted(header):
                    continue
                # The first batch is taken whatever its size, so that every pass gets on.
                if self._latest and len(self._latest) + header.record_count > COMPACTION_KEYS_MAX:
                    return header.base_offset
                for record in self._records(batch) or ():
                    if record.key is not None:
                        self._latest[_short(record.key)] = record.offset
        return self.readers[-1].next_offset

    def _batches(self, segment: Segment) -> Iterator[memoryview]:
        for _, batch in segment.batches(0, segment.size_bytes):
            if self.stopped:
                raise PassStopped
            yield batch

    def _groups(self, segments: Sequence[Segment]) -> Iterator[SegmentGroup]:
        group: list[Segment] = []
        group_age, modified_ms = Age.DIRTY, 0
        for segment in segments:
            age, segment_modified_ms = self._age(segment)
            fits = (
                age is group_age is not Age.WAITING
                and sum(s.size_bytes for s in group) + segment.size_bytes <= self.config.segment_bytes
                and bool(group)
                and segment.next_offset - group[0].base_offset <= SEGMENT_OFFSETS_MAX
            )
            if group and not fits:
                yield SegmentGroup(group, group_age, modified_ms)
                group, modified_ms = [], 0
            group = [*group, segment]
            group_age, modified_ms = age, max(modified_ms, segment_modified_ms)
        if group:
            yield SegmentGroup(group, group_age, modified_ms)

    def _age(self, segment: Segment) -> tuple[Age, int]:
        if segment.next_offset > self.first_dirty_offset:
            return Age.DIRTY, self.now_ms
        modified_ms = self.disk.modified_ms(segment.path(layout.LOG))
        expired = modified_ms + self.config.delete_retention_ms < self.now_ms
        return (Age.EXPIRED if expired else Age.WAITING), modified_ms

    def _clean(self, group: SegmentGroup) -> None:
        directory, base_offset = group.segments[0].directory, group.segments[0].base_offset
        # What a failed pass could not remove would stand before what this one writes.
        self.disk.unlink(layout.file_at(directory, base_offset, layout.LOG + layout.CLEANED))
        target = Segment(directory, base_offset, self.disk, stage=layout.CLEANED)
        self.outcome.append((group, target))
        kept_markers: set[int] = set()
        for segment in group.segments:
            for batch in self._batches(segment):
                header = peek(batch)
                kept = self._kept(batch, header, group.age)
                if kept is not None:
                    target.append(kept, peek(kept), self.config.index_interval_bytes)
                    if header.is_control:
                        kept_markers.add(header.base_offset)
        # An entry without its marker would make readers drop the producer's later transactions.
        target.aborted = [
            entry for segment in group.segments for entry in segment.aborted if entry.last_offset in kept_markers
        ]
        if target.size_bytes == 0:
            # Its index files too replace those of the old segment.
            target.save_indexes()
        target.flush()
        self.disk.set_modified_ms(target.path(layout.LOG), group.modified_ms)

    def _kept(self, batch: memoryview, header: BatchHeader, age: Age) -> memoryview | None:
        """The batch as it was, or with fewer records, or None."""
        if header.base_offset >= self.end_offset:
            return batch
        if header.is_control:
            needed = header.producer_id in self._kept_data_of
            self._kept_data_of.discard(header.producer_id)
            return batch if needed or age is not Age.EXPIRED else None
        if self._is_aborted(header):
            return None
        records = self._records(batch)
        if records is None:
            self.unreadable.append(header.base_offset)
            return batch
        kept = [record for record in records if self._keeps(record, age)]
        if not kept:
            return None
        if header.is_transactional:
            self._kept_data_of.add(header.producer_id)
        return batch if len(kept) == len(records) else memoryview(_with_records(header, kept))

    def _records(self, batch: memoryview) -> list[Record] | None:
        """None for a batch that cannot be opened: a client got it into the log while its records were not looked at.
        It costs neither the pass nor what is in it.
        """
        try:
            return stored_records(batch)
        except CorruptBatch:
            return None

    def _keeps(self, record: Record, age: Age) -> bool:
        if record.offset >= self.end_offset:
            return True
        if record.key is None or record.offset < self._latest.get(_short(record.key), -1):
            return False
        return record.value is not None or age is not Age.EXPIRED

    def _is_aborted(self, header: BatchHeader) -> bool:
        return header.is_transactional and any(
            entry.first_offset <= header.base_offset <= entry.last_offset
            for entry in self.aborted.get(header.producer_id, ())
        )


def plan(
    segments: Sequence[Segment],
    config: LogConfig,
    disk: Disk,
    *,
    first_dirty_offset: int,
    last_stable_offset: int,
    now_ms: int,
) -> CompactionJob | None:
    """The pass that is due, or None. The last segment is being written and is left alone, as is what is not yet
    stable or too young.
    """
    if not config.compacted:
        return None
    cleanable: list[Segment] = []
    for segment in segments[:-1]:
        too_young = segment.max_timestamp_ms > now_ms - config.min_compaction_lag_ms
        if segment.next_offset > last_stable_offset or (config.min_compaction_lag_ms > 0 and too_young):
            break
        cleanable.append(segment)
    total_bytes = sum(segment.size_bytes for segment in cleanable)
    dirty_bytes = sum(s.size_bytes for s in cleanable if s.next_offset > first_dirty_offset)
    if dirty_bytes == 0 or dirty_bytes < config.min_cleanable_dirty_ratio * total_bytes:
        return None
    if layout.offsets_of(segments[0].directory, layout.LOG + layout.SWAP):
        # The disk failed in the middle of an earlier swap: only a start may finish that.
        return None
    aborted: dict[int, list[AbortedTransaction]] = {}
    for segment in segments:
        for entry in segment.aborted:
            aborted.setdefault(entry.producer_id, []).append(entry)
    readers = [segment.reader() for segment in cleanable]
    return CompactionJob(cleanable, readers, first_dirty_offset, aborted, config, disk, now_ms)


def install(segments: list[Segment], job: CompactionJob) -> bool:
    """Puts the job's segments in the place of the old ones in `segments`; False, and nothing done, when those have
    changed since.

    Raises OSError: the groups before are in place then, and the rest is as it was; Unfinished where the files are that
    of neither.
    """
    if not job.outcome or segments[: len(job.segments)] != job.segments:
        return False
    done = 0
    while job.outcome:
        group, cleaned = job.outcome[0]
        old = segments[done : done + len(group.segments)]
        _swap(old, cleaned, job.disk)
        segments[done : done + len(old)] = [cleaned]
        for segment in old:
            segment.close()
        job.outcome.pop(0)
        done += 1
    return True


def finish_swaps(directory: Path, disk: Disk) -> None:
    """At start: finishes swaps that a crash cut short, and throws away compactions that had not come so far."""
    for name in os.listdir(directory):
        if name.endswith((layout.CLEANED, ".tmp")):
            disk.unlink(directory / name)
    for base_offset in layout.offsets_of(directory, layout.LOG + layout.SWAP):
        swapped = Segment(directory, base_offset, disk, stage=layout.SWAP)
        next_offset = base_offset
        for _, header in swapped.headers():
            next_offset = header.next_offset
        swapped.close()
        for other in layout.offsets_of(directory, layout.LOG):
            if base_offset < other < next_offset:
                for suffix in (*_INDEXES, layout.LOG):
                    disk.unlink(layout.file_at(directory, other, suffix))
        _rename_swapped(directory, base_offset, disk)
    for suffix in _INDEXES:
        for base_offset in layout.offsets_of(directory, suffix + layout.SWAP):
            disk.unlink(layout.file_at(directory, base_offset, suffix + layout.SWAP))


def _swap(old: Sequence[Segment], cleaned: Segment, disk: Disk) -> None:
    """Once there is a `.log.swap` the log cannot go on with the old segments: whatever was cut off or deleted of them
    afterwards, the next start would put that in their place.
    """
    directory, base_offset = cleaned.directory, cleaned.base_offset
    try:
        for suffix in (*_INDEXES, layout.LOG):
            disk.replace(
                layout.file_at(directory, base_offset, suffix + layout.CLEANED),
                layout.file_at(directory, base_offset, suffix + layout.SWAP),
            )
    except OSError:
        with all_of_it():
            disk.unlink(layout.file_at(directory, base_offset, layout.LOG + layout.SWAP))
        raise
    with all_of_it():
        disk.fsync_directory(directory)
        for segment in old[1:]:
            for suffix in (*_INDEXES, layout.LOG):
                disk.unlink(segment.path(suffix))
        _rename_swapped(directory, base_offset, disk)
    cleaned.stage = ""
    cleaned.mark_durable()


def _rename_swapped(directory: Path, base_offset: int, disk: Disk) -> None:
    """Indexes first, the log last: while `.log.swap` is there, a start does all of this again."""
    for suffix in (*_INDEXES, layout.LOG):
        swapped = layout.file_at(directory, base_offset, suffix + layout.SWAP)
        if swapped.exists():
            disk.replace(swapped, layout.file_at(directory, base_offset, suffix))
    disk.fsync_directory(directory)


def _short(key: bytes) -> bytes:
    """The key itself, or 16 bytes that stand for it: memory is bounded by the number of keys, not by their length."""
    return key if len(key) <= _KEY_BYTES_KEPT else blake2b(key, digest_size=_KEY_BYTES_KEPT + 1).digest()


def _with_records(header: BatchHeader, records: list[Record]) -> bytearray:
    """The batch with only these records; its offsets and sequences stay those it had."""
    return encode_batch(
        records,
        compression=header.compression,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        dense=False,
        leader_epoch=header.partition_leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        log_append_time_ms=header.max_timestamp if header.is_log_append_time else None,
    )
