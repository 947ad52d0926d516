"""Record batches of magic 2: their header, their CRC, and patching them in place.

Layout, big-endian, position: base offset int64 0, batch length int32 8, partition leader epoch int32 12,
magic int8 16, CRC uint32 17, attributes int16 21, last offset delta int32 23, base timestamp int64 27, max
timestamp int64 35, producer id int64 43, producer epoch int16 51, base sequence int32 53, record count
int32 57, records from 61. The batch length counts what follows it; the CRC32C covers everything from the
attributes on, so the base offset and the leader epoch can be changed without a new CRC.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterator
from typing import Final, NamedTuple, TypeAlias

from crc32c import crc32c

from broker.wire.buffers import Buffer
from broker.wire.compression import Compression
from broker.wire.errors import CorruptBatch
from broker.wire.vocabulary import NO_LEADER_EPOCH, NO_SEQUENCE

LOG_OVERHEAD: Final = 12
"""Bytes of base offset and batch length, which the batch length does not count."""
HEADER_BYTES: Final = 61
MIN_BATCH_LENGTH: Final = HEADER_BYTES - LOG_OVERHEAD
MAGIC: Final = 2

BATCH_LENGTH_OFFSET: Final = 8
LEADER_EPOCH_OFFSET: Final = 12
MAGIC_OFFSET: Final = 16
CRC_OFFSET: Final = 17
ATTRIBUTES_OFFSET: Final = 21
MAX_TIMESTAMP_OFFSET: Final = 35
PRODUCER_OFFSET: Final = 43

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME_MASK: Final = 0x08
TRANSACTIONAL_MASK: Final = 0x10
CONTROL_MASK: Final = 0x20
DELETE_HORIZON_MASK: Final = 0x40
"""Set by Kafka's cleaner only (KIP-534): the base timestamp says until when the tombstones in it are kept there."""
CLIENT_ATTRIBUTES: Final = COMPRESSION_MASK | LOG_APPEND_TIME_MASK | TRANSACTIONAL_MASK | CONTROL_MASK
"""What a batch may say that a client sends; what else a broker notes in its own log is no other log's business."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_INT16 = struct.Struct(">h")
_POSITION = struct.Struct(">qiibI")
_PRODUCER = struct.Struct(">qhi")
_LENGTH_TO_PRODUCER = struct.Struct(">i4xb26xqh")
"""From the batch length on: it, the magic byte, the producer's id and epoch."""

Writable: TypeAlias = bytearray | memoryview
"""A buffer that can be patched in place (a memoryview must be of something writable)."""


class BatchHeader(NamedTuple):
    """The header's fields in their order on the wire; timestamps in ms."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return LOG_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> Compression:
        """Raises CorruptBatch for a codec number that Kafka does not have."""
        number = self.attributes & COMPRESSION_MASK
        if number > Compression.ZSTD:
            raise CorruptBatch(f"compression codec {number} is not known")
        return Compression(number)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_MASK)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_MASK)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_MASK)

    @property
    def first_timestamp(self) -> int:
        """The first record's; the latest of all where only that is told: a broker stamped them, or the field has
        another meaning.
        """
        told = self.attributes & (LOG_APPEND_TIME_MASK | DELETE_HORIZON_MASK)
        return self.max_timestamp if told else self.base_timestamp

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; sequences wrap to 0 after 2^31 - 1. -1 without a producer id."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


def peek(buf: Buffer, position: int = 0) -> BatchHeader:
    """Read the header of the batch at `position`, without its CRC being checked.

    Raises CorruptBatch when the magic is not 2 or the batch is not wholly inside the buffer.
    """
    try:
        header = tuple.__new__(BatchHeader, _HEADER.unpack_from(buf, position))
    except struct.error as error:
        raise CorruptBatch(f"{len(buf) - position} bytes are no batch: a header has {HEADER_BYTES}") from error
    if header.magic != MAGIC:
        raise CorruptBatch(f"magic {header.magic} at position {position}, only {MAGIC} is supported")
    length = header.batch_length
    if length < MIN_BATCH_LENGTH or position + LOG_OVERHEAD + length > len(buf):
        raise CorruptBatch(f"batch length {length} at position {position} of {len(buf)} bytes")
    return header


def iter_batches(buf: Buffer, *, strict: bool = False) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The complete batches of a buffer, each with its bytes (header included) as a slice.

    A partial batch at the end is silently the end, as fetch responses may have one; with `strict` it raises
    CorruptBatch, as does damage in any case.
    """
    view = memoryview(buf)
    position, size = 0, len(view)
    while position < size:
        if not strict and is_partial(view, position, size):
            return
        header = peek(view, position)
        end = position + header.size_bytes
        yield header, view[position:end]
        position = end


def is_partial(view: memoryview, position: int, size: int) -> bool:
    """Whether the batch at `position` goes on behind the end of the buffer."""
    if size - position < HEADER_BYTES:
        return True
    (length,) = _INT32.unpack_from(view, position + BATCH_LENGTH_OFFSET)
    return bool(view[position + MAGIC_OFFSET] == MAGIC and position + LOG_OVERHEAD + length > size)


def compute_crc(batch: Buffer) -> int:
    """CRC32C from the attributes to the end of `batch`, which is exactly one batch."""
    checksum: int = crc32c(memoryview(batch)[ATTRIBUTES_OFFSET:])
    return checksum


def verify_crc(batch: Buffer) -> None:
    """Raise CorruptBatch when the stored CRC is not that of the bytes. `batch` is exactly one batch."""
    if len(batch) < HEADER_BYTES:
        raise CorruptBatch(f"{len(batch)} bytes are no batch: a header has {HEADER_BYTES}")
    (stored,) = _UINT32.unpack_from(batch, CRC_OFFSET)
    computed = compute_crc(batch)
    if stored != computed:
        raise CorruptBatch(f"CRC {stored:#010x} is stored, the bytes have {computed:#010x}")


def patch_base_offset(batch: Writable, offset: int) -> None:
    """Set the base offset; the CRC does not cover it."""
    _INT64.pack_into(batch, 0, offset)


def patch_leader_epoch(batch: Writable, leader_epoch: int) -> None:
    """Set the partition leader epoch; the CRC does not cover it."""
    _INT32.pack_into(batch, LEADER_EPOCH_OFFSET, leader_epoch)


def patch_log_append_time(batch: Writable, now_ms: int) -> None:
    """Mark the batch as LogAppendTime with this time as its max timestamp, and renew its CRC."""
    (attributes,) = _INT16.unpack_from(batch, ATTRIBUTES_OFFSET)
    _INT16.pack_into(batch, ATTRIBUTES_OFFSET, attributes | LOG_APPEND_TIME_MASK)
    _INT64.pack_into(batch, MAX_TIMESTAMP_OFFSET, now_ms)
    renew_crc(batch)


def patch_producer(
    batch: Writable,
    *,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    clear_transactional: bool = True,
) -> None:
    """Make the batch one that this producer sends: its id, epoch and sequence, base offset 0, no leader epoch.

    One pass over the batch for the new CRC. `clear_transactional` takes the batch out of its transaction.
    """
    (attributes,) = _INT16.unpack_from(batch, ATTRIBUTES_OFFSET)
    if clear_transactional and attributes & TRANSACTIONAL_MASK:
        _INT16.pack_into(batch, ATTRIBUTES_OFFSET, attributes & ~TRANSACTIONAL_MASK)
    _PRODUCER.pack_into(batch, PRODUCER_OFFSET, producer_id, producer_epoch, base_sequence)
    (length,) = _INT32.unpack_from(batch, BATCH_LENGTH_OFFSET)
    _POSITION.pack_into(batch, 0, 0, length, NO_LEADER_EPOCH, MAGIC, compute_crc(batch))


def renew_crc(batch: Writable) -> None:
    """Compute and store the CRC of a batch that was changed after its attributes."""
    _UINT32.pack_into(batch, CRC_OFFSET, compute_crc(batch))


def pack_header(batch: Writable, header: BatchHeader) -> None:
    """Write all header fields but the CRC, which is computed from the batch as it then stands."""
    _HEADER.pack_into(batch, 0, *header)
    renew_crc(batch)


def only_from(records: memoryview, producers: Container[tuple[int, int]]) -> bool:
    """Whether every whole batch of the current format is one of these producers' (id, epoch), or no producer's.

    A look at two fields for each batch, where reading whole headers would show. False also where the bytes are no such
    batches: then somebody has to read them.
    """
    at, end = 0, len(records)
    while end - at >= HEADER_BYTES:
        length, magic, producer_id, epoch = _LENGTH_TO_PRODUCER.unpack_from(records, at + 8)
        if magic != MAGIC or length < MIN_BATCH_LENGTH or (producer_id >= 0 and (producer_id, epoch) not in producers):
            return False
        at += LOG_OVERHEAD + length
    return True
