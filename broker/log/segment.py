"""One segment: a file of record batches exactly as on the wire, and the indexes that find a batch in it.

Appends write at the end and never touch what is there. A failed write is cut off again, so the file always ends with
a whole batch as far as this process knows; what a crash tears is cut off by opening.py.
"""

import struct
import weakref
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

from broker.errors import LogDamaged
from broker.limits import INDEX_INTERVAL_BYTES_MAX, LOG_SCAN_BYTES, LOG_WALK_BYTES
from broker.log import layout
from broker.log.disk import CLOSED_DISK, Disk, write_all
from broker.log.indexes import OffsetIndex, TimeIndex, encode_aborted
from broker.log.producers import AbortedTransaction
from broker.wire.batch import HEADER_BYTES, LOG_OVERHEAD, BatchHeader

_HEADER = struct.Struct(">qiibIhiqqqhii")
# Base offset, batch length, last offset delta.
_STEP = struct.Struct(">qi11xi")
assert _HEADER.size == HEADER_BYTES
_LENGTH_MIN = HEADER_BYTES - LOG_OVERHEAD


class Segment:
    """`next_offset` is one past the last batch. Timestamps in ms, -1 for none. One writer: the log that owns the
    segment.
    """

    def __init__(self, directory: Path, base_offset: int, disk: Disk, *, stage: str = "") -> None:
        """`stage` is what the file names end with while a compaction writes them (layout.CLEANED)."""
        self.directory = directory
        self.stage = stage
        self.base_offset = base_offset
        self._disk = disk
        self._fd = disk.open(self.path(layout.LOG))
        # As Python's own files: one that nobody closed (a log whose opening failed half-way) is closed with its object.
        self._close = weakref.finalize(self, _let_go, disk, self._fd)
        self._close.atexit = False
        # Where bytes of a failed write may lie behind `size_bytes`.
        self._torn = False
        self.forget()
        self.size_bytes = disk.size(self._fd)

    def forget(self) -> None:
        """Before a scan or a load: nothing is known of what the file holds."""
        self.size_bytes = 0
        self.next_offset = self.base_offset
        self.offset_index = OffsetIndex(self.base_offset)
        self.time_index = TimeIndex(self.base_offset)
        self.aborted: list[AbortedTransaction] = []
        # The largest timestamp, and the base offset of the first batch that has it.
        self.max_timestamp_ms = -1
        self.max_timestamp_offset = self.base_offset
        # What `segment.ms` counts from: the first batch's largest timestamp.
        self.first_timestamp_ms = -1
        self._unindexed_bytes = 0
        self._sync: Future[None] | None = None

    def path(self, suffix: str) -> Path:
        return layout.file_at(self.directory, self.base_offset, suffix + self.stage)

    # -- writing -------------------------------------------------------------------------------------------------

    def append(self, batch: memoryview, header: BatchHeader, index_interval_bytes: int) -> None:
        """Writes one batch at the end. Raises OSError; the segment is then as it was."""
        position = self.size_bytes
        self._write(batch, position)
        self.note(header, position, index_interval_bytes)

    def append_all(self, batches: memoryview, headers: Iterable[BatchHeader], index_interval_bytes: int) -> None:
        """As `append`, for batches that follow each other."""
        position = self.size_bytes
        self._write(batches, position)
        for header in headers:
            self.note(header, position, index_interval_bytes)
            position += header.size_bytes

    def _write(self, data: memoryview, position: int) -> None:
        self._cut_torn()
        try:
            written = self._disk.pwrite(self._fd, data, position)
            if written != len(data):
                write_all(self._pwrite, data[written:], position + written)
        except OSError:
            # Where even this fails the next append does it.
            self._torn = True
            with suppress(OSError):
                self._cut_torn()
            raise
        self._sync = None

    def _cut_torn(self) -> None:
        """Before anything is written behind them: a start takes what it does not know for the end of the log."""
        if self._torn:
            self._disk.truncate(self._fd, self.size_bytes)
            self._torn = False

    def note(self, header: BatchHeader, position: int, index_interval_bytes: int) -> None:
        """Takes the batch at `position`, which is in the file, into the indexes and the totals."""
        size_bytes = LOG_OVERHEAD + header.batch_length
        if header.max_timestamp > self.max_timestamp_ms:
            self.max_timestamp_ms = header.max_timestamp
            self.max_timestamp_offset = header.base_offset
        if position == 0:
            self.first_timestamp_ms = header.max_timestamp
        elif self._unindexed_bytes >= min(index_interval_bytes, INDEX_INTERVAL_BYTES_MAX):
            self.offset_index.append(header.base_offset, position)
            self.time_index.append(self.max_timestamp_ms, self.max_timestamp_offset)
            self._unindexed_bytes = 0
        self._unindexed_bytes += size_bytes
        self.size_bytes = position + size_bytes
        self.next_offset = header.base_offset + header.last_offset_delta + 1

    def restore(
        self,
        offset_index: OffsetIndex,
        time_index: TimeIndex,
        *,
        first: BatchHeader,
        next_offset: int,
    ) -> None:
        """Takes over what the index files say; the file's size is known already."""
        self.offset_index = offset_index
        self.time_index = time_index
        self.max_timestamp_ms, self.max_timestamp_offset = time_index.last
        self.first_timestamp_ms = first.max_timestamp
        self.next_offset = next_offset
        self._unindexed_bytes = self.size_bytes - offset_index.last_position

    def cut(self) -> None:
        """Makes the file end where the last batch does that is known. Raises OSError."""
        self._disk.truncate(self._fd, self.size_bytes)

    def shortened(self, size_bytes: int) -> "Segment":
        """What this one will be when its file ends at `size_bytes`, the start of a batch, with a descriptor of its own.
        The file is as it was until that one is `cut`; read is what lies between two entries of the index. Raises
        OSError, LogDamaged.
        """
        short = Segment(self.directory, self.base_offset, self._disk)
        short.size_bytes = size_bytes
        short.offset_index, short.time_index = self.offset_index.copy(), self.time_index.copy()
        short.offset_index.truncate(size_bytes)
        behind_index = [header for _, header in short.headers(short.offset_index.last_position)]
        if behind_index:
            short.next_offset = behind_index[-1].next_offset
            short.first_timestamp_ms = self.first_timestamp_ms
        short.time_index.truncate(short.next_offset)
        short.max_timestamp_ms, short.max_timestamp_offset = short.time_index.last
        for header in behind_index:
            if header.max_timestamp > short.max_timestamp_ms:
                short.max_timestamp_ms, short.max_timestamp_offset = header.max_timestamp, header.base_offset
        short.aborted = [entry for entry in self.aborted if entry.last_offset < short.next_offset]
        short._unindexed_bytes = size_bytes - short.offset_index.last_position
        return short

    def save_indexes(self) -> None:
        """Writes the index files. Raises OSError."""
        self.time_index.append(self.max_timestamp_ms, self.max_timestamp_offset)
        self._disk.write_file(self.path(layout.OFFSET_INDEX), self.offset_index.encode(), durable=False)
        self._disk.write_file(self.path(layout.TIME_INDEX), self.time_index.encode(), durable=False)
        self.save_aborted()

    def save_aborted(self) -> None:
        """Writes the index of aborted transactions, which must be complete. Raises OSError."""
        data = encode_aborted(self.aborted, self.size_bytes)
        self._disk.write_file(self.path(layout.TXN_INDEX), data, durable=False)

    def seal(self) -> None:
        """No more appends, and nothing more to be noted: writes the indexes and starts making all of it durable. Raises
        OSError.
        """
        self._cut_torn()
        if self.size_bytes == 0:
            self.mark_durable()
            return
        self.save_indexes()
        files = [self.path(suffix) for suffix in (layout.LOG, layout.OFFSET_INDEX, layout.TIME_INDEX, layout.TXN_INDEX)]
        self._sync = self._disk.fsync_later([*files, self.directory])

    def mark_durable(self) -> None:
        """Said of a segment that is known to be on the disk whole, with its indexes."""
        done: Future[None] = Future()
        done.set_result(None)
        self._sync = done

    @property
    def durable(self) -> bool:
        """True when a sealed segment is wholly on the disk. Raises OSError where making it so failed."""
        if self._sync is None or not self._sync.done():
            return False
        self._sync.result()
        return True

    def flush(self) -> None:
        """Waits until the segment is on the disk. Raises OSError."""
        if self._sync is None:
            self.seal()
        if self._sync is not None:
            self._sync.result()

    def reader(self) -> "Segment":
        """The same segment as it is now, with a descriptor of its own: it can be read to its end, also in a thread,
        while this one grows or is deleted.
        """
        twin = Segment(self.directory, self.base_offset, self._disk)
        twin.size_bytes, twin.next_offset, twin.aborted = self.size_bytes, self.next_offset, list(self.aborted)
        sealed = self._sync is not None
        twin.offset_index = self.offset_index if sealed else self.offset_index.copy()
        twin.time_index = self.time_index if sealed else self.time_index.copy()
        twin.max_timestamp_ms, twin.max_timestamp_offset = self.max_timestamp_ms, self.max_timestamp_offset
        return twin

    def close(self) -> None:
        """Whatever is asked of the file afterwards raises OSError."""
        self._disk = CLOSED_DISK
        self._close()

    def delete(self) -> None:
        """Removes the files, the log last: an index without a log is never taken for a segment."""
        for suffix in (layout.OFFSET_INDEX, layout.TIME_INDEX, layout.TXN_INDEX, layout.LOG):
            self._disk.unlink(self.path(suffix))
        self.close()

    # -- reading -------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, up_to: int, at_least_one: bool) -> tuple[bytes | memoryview, int]:
        """Whole batches from the one that contains `offset`, and the offset that follows them.

        At most `max_bytes`, but one batch of any size with `at_least_one`; nothing of `up_to` (a batch's start) or
        later.
        """
        start = self.position_of(offset)
        end, next_offset = self.size_bytes, self.next_offset
        if up_to < next_offset:
            end, next_offset = self.position_of(up_to), up_to
        if start >= end:
            return b"", next_offset
        if end - start <= max_bytes:
            return self._whole(offset, start, end - start), next_offset
        boundary = self.offset_index.at_or_before_position(start + max_bytes)
        if boundary is not None and boundary[1] > start:
            return self._whole(offset, start, boundary[1] - start), boundary[0]
        return self._read_few(offset, start, min(max_bytes, end - start), at_least_one)

    def _read_few(self, offset: int, start: int, max_bytes: int, at_least_one: bool) -> tuple[bytes | memoryview, int]:
        """As `read`, where no index entry says which batch ends within `max_bytes`."""
        data = self.pread(start, max_bytes)
        if len(data) >= _STEP.size:
            self._check_first(data, offset, start)
        used, next_offset = 0, offset
        while used + _STEP.size <= len(data):
            base_offset, batch_length, last_offset_delta = _STEP.unpack_from(data, used)
            if batch_length < _LENGTH_MIN or used + LOG_OVERHEAD + batch_length > len(data):
                break
            used += LOG_OVERHEAD + batch_length
            next_offset = base_offset + last_offset_delta + 1
        if used:
            return memoryview(data)[:used], next_offset
        if not at_least_one:
            return b"", offset
        _, header = next(self.headers(start))
        return self.pread(start, header.size_bytes), header.next_offset

    def _whole(self, offset: int, start: int, size_bytes: int) -> bytes:
        data = self.pread(start, size_bytes)
        self._check_first(data, offset, start)
        return data

    def _check_first(self, data: bytes, offset: int, start: int) -> None:
        """A reader comes back to the place where it could not go on: then that is seen here. Raises LogDamaged."""
        base_offset, batch_length, last_offset_delta = _STEP.unpack_from(data)
        size_bytes, last_offset = LOG_OVERHEAD + batch_length, base_offset + last_offset_delta
        if (
            not HEADER_BYTES <= size_bytes <= self.size_bytes - start
            or base_offset < self.base_offset
            or not offset <= last_offset < self.next_offset
        ):
            raise LogDamaged(
                f"{self.path(layout.LOG)} has no batch with offset {offset} at {start}, but {size_bytes} bytes of "
                f"offsets {base_offset} to {last_offset}"
            )

    def position_of(self, offset: int) -> int:
        """Where the first batch begins whose last offset is >= `offset`; the segment's size when there is none."""
        if offset >= self.next_offset:
            return self.size_bytes
        if offset <= self.base_offset:
            return 0
        indexed_offset, position = self.offset_index.at_or_before_offset(offset)
        if indexed_offset == offset:
            return position
        while position < self.size_bytes:
            data = self.pread(position, min(LOG_WALK_BYTES, self.size_bytes - position))
            at = 0
            while at + _STEP.size <= len(data):
                base_offset, batch_length, last_offset_delta = _STEP.unpack_from(data, at)
                if base_offset + last_offset_delta >= offset:
                    return position + at
                if min(batch_length - _LENGTH_MIN, base_offset - self.base_offset, last_offset_delta) < 0:
                    raise LogDamaged(f"{self.path(layout.LOG)} has no batch at {position + at}")
                at += LOG_OVERHEAD + batch_length
            position += at
        raise LogDamaged(f"{self.path(layout.LOG)} lacks offset {offset}, which was written to it")

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of every batch from the one at `position` on; batches are neither read whole nor
        checked.
        """
        while position + HEADER_BYTES <= self.size_bytes:
            data = self.pread(position, min(LOG_WALK_BYTES, self.size_bytes - position))
            at = 0
            while at + HEADER_BYTES <= len(data):
                header = BatchHeader(*_HEADER.unpack_from(data, at))
                if header.batch_length < _LENGTH_MIN:
                    raise LogDamaged(f"{self.path(layout.LOG)} has no batch at {position + at}")
                yield position + at, header
                at += LOG_OVERHEAD + header.batch_length
            position += at

    def batches(self, position: int, end: int) -> Iterator[tuple[int, memoryview]]:
        """(position, bytes) of whole batches before `end`, read in large pieces; ends at the first that is not whole
        there.
        """
        while position + HEADER_BYTES <= end:
            data = memoryview(self.pread(position, min(LOG_SCAN_BYTES, end - position)))
            at = 0
            while at + HEADER_BYTES <= len(data):
                size_bytes = LOG_OVERHEAD + _STEP.unpack_from(data, at)[1]
                if size_bytes < HEADER_BYTES or position + at + size_bytes > end:
                    return
                if at + size_bytes > len(data):
                    break
                yield position + at, data[at : at + size_bytes]
                at += size_bytes
            if at == 0:
                at = size_bytes
                yield position, memoryview(self.pread(position, size_bytes))
            position += at

    def batch_at(self, position: int) -> bytes:
        """The whole batch that begins at `position`."""
        _, header = next(self.headers(position))
        return self.pread(position, header.size_bytes)

    def pread(self, position: int, size_bytes: int) -> bytes:
        """Raises LogDamaged where the file is shorter than what was written to it."""
        data = self._disk.pread(self._fd, size_bytes, position)
        if len(data) != size_bytes:
            raise LogDamaged(f"{self.path(layout.LOG)} holds {len(data)} of {size_bytes} bytes at {position}")
        return data

    def _pwrite(self, data: memoryview, position: int) -> int:
        return self._disk.pwrite(self._fd, data, position)


def _let_go(disk: Disk, fd: int) -> None:
    with suppress(OSError):  # the descriptor is gone all the same, and what is to last was made durable
        disk.close(fd)
