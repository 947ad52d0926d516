"""Reading a segment batch by batch, and telling where the good part of it ends.

A batch's base offset and leader epoch lie outside of its CRC. What they must be follows from their neighbours: where no
compaction ever ran, each batch begins where the one before it ended; everywhere offsets rise, nothing reaches into the
next segment, and leader epochs never go down. A value that is too high shows only at the batch behind it: so each batch
counts when its successor is known.

The batch length lies outside of it too. A batch that goes on behind the end of the file is the torn end that a crash
leaves, unless its bytes up to there are whole, or a whole batch lies behind its start: then its length is wrong.
"""

import struct
from collections.abc import Iterator
from enum import Enum
from functools import partial
from pathlib import Path
from typing import NamedTuple

from broker.limits import LOG_SCAN_BYTES, LOG_SEARCH_CRC_BYTES_MAX, SEGMENT_OFFSETS_MAX
from broker.log import layout
from broker.log.disk import Disk, write_all
from broker.log.epochs import LeaderEpochs
from broker.log.segment import Segment
from broker.wire.batch import HEADER_BYTES, MAGIC, MAGIC_OFFSET, BatchHeader, compute_crc, peek, verify_crc
from broker.wire.errors import CorruptBatch

_HEADER = struct.Struct(">qiibIhiqqqhii")
_MAGIC = bytes([MAGIC])


class Damage(Enum):
    """Why a segment, or the log, is cut."""

    TORN = "the last batch is not whole"
    LENGTH = "a batch has a length that is not its own"
    CONTENT = "a batch is not what was written"
    BASE_OFFSET = "a batch has a base offset that its neighbours rule out"
    LEADER_EPOCH = "a batch has a leader epoch that its neighbours rule out"
    HOLE = "the records between this segment and the next are missing"

    @property
    def misplaced(self) -> bool:
        """What there is, is as it was written; what is wrong is where it stands."""
        return self in (Damage.BASE_OFFSET, Damage.LEADER_EPOCH, Damage.HOLE)


class Bounds(NamedTuple):
    """What is known of a segment from outside of it. `next_base_offset` is None for the last one."""

    gaps: bool
    next_base_offset: int | None
    epochs: LeaderEpochs | None

    def leaves_hole(self, end_offset: int) -> bool:
        return not self.gaps and self.next_base_offset not in (None, end_offset)

    def rules_out(self, header: BatchHeader) -> Damage | None:
        if header.last_offset_delta < 0:
            return Damage.BASE_OFFSET
        if self.next_base_offset is not None and header.next_offset > self.next_base_offset:
            return Damage.BASE_OFFSET
        if self.epochs is not None and not self.epochs.allows(header.partition_leader_epoch, header.base_offset):
            return Damage.LEADER_EPOCH
        return None


def scan(segment: Segment, index_interval_bytes: int, bounds: Bounds) -> Damage | None:
    """Reads and checks every batch and builds the indexes; what ended it before the end of the file, if anything.

    Only good batches are noted: the segment's `size_bytes` is where they end.
    """
    file_bytes = segment.size_bytes
    segment.forget()
    checked = _Checked(segment, index_interval_bytes, bounds)
    for position, batch in segment.batches(0, file_bytes):
        try:
            header = peek(batch)
            verify_crc(batch)
        except CorruptBatch:
            checked.take_pending()
            return Damage.CONTENT
        damage = checked.follow(position, header)
        if damage is not None:
            return damage
    checked.take_pending()
    if segment.size_bytes != file_bytes:
        return Damage.LENGTH if _holds_whole_batch(segment, file_bytes) else Damage.TORN
    return Damage.HOLE if bounds.leaves_hole(segment.next_offset) else None


def _holds_whole_batch(segment: Segment, file_bytes: int) -> bool:
    """Whether what follows the good part has a whole batch, at its start under a wrong length or anywhere behind it.

    A client's record may look like many batches: where the CRCs of such cost too much, the answer is that there is one.
    """
    start, checked_bytes = segment.size_bytes, 0
    for position in _positions_of_magic(segment, file_bytes):
        room_bytes = file_bytes - position
        if room_bytes < HEADER_BYTES:
            break
        header = BatchHeader(*_HEADER.unpack(segment.pread(position, HEADER_BYTES)))
        size_bytes = room_bytes if position == start else header.size_bytes
        if not HEADER_BYTES <= size_bytes <= room_bytes or header.last_offset_delta < 0:
            continue
        if not segment.next_offset <= header.base_offset <= segment.next_offset + SEGMENT_OFFSETS_MAX:
            continue
        checked_bytes += size_bytes
        if checked_bytes > file_bytes - start + LOG_SEARCH_CRC_BYTES_MAX:
            return True
        if compute_crc(segment.pread(position, size_bytes)) == header.crc:
            return True
    return False


def _positions_of_magic(segment: Segment, file_bytes: int) -> Iterator[int]:
    """Where behind the good part a batch could begin, ascending."""
    for position, piece in _pieces(segment, file_bytes):
        at = piece.find(_MAGIC)
        while at >= 0:
            if position + at >= segment.size_bytes + MAGIC_OFFSET:
                yield position + at - MAGIC_OFFSET
            at = piece.find(_MAGIC, at + 1)


class _Checked:
    """The batches of one segment in order; the newest is `_pending` until the one behind it speaks for it."""

    def __init__(self, segment: Segment, index_interval_bytes: int, bounds: Bounds) -> None:
        self._segment = segment
        self._index_interval_bytes = index_interval_bytes
        self._bounds = bounds
        self._pending: tuple[int, BatchHeader] | None = None
        self._epoch = -1

    def follow(self, position: int, header: BatchHeader) -> Damage | None:
        """Takes the batch behind the pending one. Where the two contradict each other, the one that fits what lies
        before both is believed; where both do, neither is: an epoch that nobody led in would rule every later one out.
        """
        damage = self._bounds.rules_out(header)
        if self._pending is None:
            damage = damage or self._contradicts(header, self._segment.next_offset, self._epoch)
        else:
            before = self._pending[1]
            clash = self._contradicts(header, before.next_offset, before.partition_leader_epoch)
            if damage is None and clash is not None:
                if clash is Damage.BASE_OFFSET:
                    jumped = before.base_offset > self._segment.next_offset
                    fits = self._contradicts(header, self._segment.next_offset, self._epoch) is None
                else:
                    jumped = before.partition_leader_epoch > self._epoch
                    fits = header.partition_leader_epoch >= self._epoch
                if jumped and fits:
                    return clash
                damage = clash
            self.take_pending()
        if damage is None:
            self._pending = (position, header)
        return damage

    def take_pending(self) -> None:
        if self._pending is not None:
            position, header = self._pending
            self._segment.note(header, position, self._index_interval_bytes)
            self._epoch = header.partition_leader_epoch
            self._pending = None

    def _contradicts(self, header: BatchHeader, expected_offset: int, epoch: int) -> Damage | None:
        wrong = header.base_offset < expected_offset
        if wrong or (header.base_offset > expected_offset and not self._bounds.gaps):
            return Damage.BASE_OFFSET
        return Damage.LEADER_EPOCH if header.partition_leader_epoch < epoch else None


def set_aside(directory: Path, disk: Disk, bases: list[int]) -> None:
    """Segments that are no part of the log any more: kept under another name, which nothing here reads again."""
    for base_offset in bases:
        for suffix in (layout.OFFSET_INDEX, layout.TIME_INDEX, layout.TXN_INDEX):
            disk.unlink(layout.file_at(directory, base_offset, suffix))
        disk.replace(layout.file_at(directory, base_offset, layout.LOG), _unused_name(directory, base_offset))


def copy_tail(segment: Segment, size_bytes: int, disk: Disk) -> None:
    """Copies what is about to be cut off the segment of `size_bytes` into a new file, named by the offset it begins at;
    durable when this returns.
    """
    fd = disk.open(_unused_name(segment.directory, segment.next_offset))
    try:
        for position, piece in _pieces(segment, size_bytes):
            write_all(partial(disk.pwrite, fd), piece, position - segment.size_bytes)
        disk.fsync(fd)
    finally:
        disk.close(fd)
    disk.fsync_directory(segment.directory)


def _unused_name(directory: Path, offset: int) -> Path:
    """What an earlier start kept stays as it is."""
    path = layout.file_at(directory, offset, layout.LOG + layout.DAMAGED)
    number = 1
    while path.exists():
        path = layout.file_at(directory, offset, f"-{number}{layout.LOG}{layout.DAMAGED}")
        number += 1
    return path


def _pieces(segment: Segment, size_bytes: int) -> Iterator[tuple[int, bytes]]:
    for position in range(segment.size_bytes, size_bytes, LOG_SCAN_BYTES):
        yield position, segment.pread(position, min(LOG_SCAN_BYTES, size_bytes - position))
