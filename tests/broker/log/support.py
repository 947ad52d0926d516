"""What the log's tests share: batches, a disk that fails on command, and reading a whole log back."""

import errno
import os
from concurrent.futures import Future
from pathlib import Path

from broker.log.disk import OsDisk
from broker.log.lookup import TimeLookup
from broker.log.partition_log import PartitionLog
from broker.wire.batch import iter_batches
from broker.wire.buffers import Buffer
from broker.wire.compression import Compression
from broker.wire.records import Record, decode_records, encode_batch

NOW_MS = 1_700_000_000_000


def batch_of(
    *values: bytes,
    timestamps: list[int] | None = None,
    keys: list[bytes | None] | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    compression: Compression = Compression.NONE,
) -> bytearray:
    """A batch as a client sends it, one record per value."""
    times = timestamps or [NOW_MS] * len(values)
    all_keys = keys or [b"key"] * len(values)
    records = [Record(i, times[i], all_keys[i], value) for i, value in enumerate(values)]
    return encode_batch(
        records,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
        compression=compression,
    )


def records_in(log: PartitionLog, start: int | None = None, *, max_bytes: int = 1 << 20) -> list[Record]:
    """Every data record from `start` (the log start) to the log end, by as many reads as it takes."""
    offset = log.log_start_offset if start is None else start
    first, found = offset, []
    while offset < log.log_end_offset:
        part = log.read(offset, max_bytes, up_to=log.log_end_offset, at_least_one=True)
        assert part.next_offset > offset, "a read must get on"
        for buffer in part.records:
            for header, batch in iter_batches(buffer, strict=True):
                if not header.is_control:
                    found += decode_records(batch)
        offset = part.next_offset
    return [record for record in found if record.offset >= first]


class FaultyDisk(OsDisk):
    """The real disk with room for `room_bytes` more bytes of log; what does not fit is torn off."""

    def __init__(self) -> None:
        super().__init__()
        self.room_bytes: int | None = None

    def pwrite(self, fd: int, data: Buffer, position: int) -> int:
        if self.room_bytes is None:
            return super().pwrite(fd, data, position)
        if self.room_bytes == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = super().pwrite(fd, memoryview(data)[: self.room_bytes], position)
        self.room_bytes -= written
        return written

    def write_file(self, path: Path, data: bytes, *, durable: bool) -> None:
        if self.room_bytes is not None and self.room_bytes < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write_file(path, data, durable=durable)


class UnsyncedDisk(OsDisk):
    """Late fsyncs never end: every segment stays above the recovery point."""

    def fsync_later(self, paths: list[Path]) -> "Future[None]":
        return Future()


def offset_for_timestamp(log: PartitionLog, timestamp_ms: int, *, up_to: int) -> tuple[int, int] | None:
    """What a lookup in the event loop and one in a thread find: the same."""
    found = log.find_time(lambda lookup: lookup.first_at_or_after(timestamp_ms, up_to))
    apart = None
    for lookup in log.time_lookups_apart(timestamp_ms):
        apart = apart or lookup.first_at_or_after(timestamp_ms, up_to)
        lookup.close()
    assert apart == found
    return found


def max_timestamp(log: PartitionLog) -> tuple[int, int] | None:
    """As `offset_for_timestamp`."""
    found = log.find_time(TimeLookup.latest)
    (apart,) = log.time_lookups_apart(-1) if found else [None]
    if apart is not None:
        assert apart.latest() == found
        apart.close()
    return found
