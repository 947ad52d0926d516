"""Records inside of batches: reading them, and building batches of them.

A record is, in zigzag varints: length, attributes (int8, unused), timestamp delta, offset delta, key length and key,
value length and value, header count, and per header key length, key, value length, value; a length of -1 is null.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from broker.wire.batch import (
    CONTROL_MASK,
    HEADER_BYTES,
    LOG_APPEND_TIME_MASK,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_MASK,
    BatchHeader,
    pack_header,
    peek,
)
from broker.wire.buffers import Buffer
from broker.wire.compression import Compression, compress, decompress
from broker.wire.errors import BatchBeyondLimits, CorruptBatch
from broker.wire.limits import MAX_DECOMPRESSED_BATCH_BYTES, MAX_OPENED_BATCH_RECORDS, MIN_RECORD_BYTES
from broker.wire.varint import SMALL_VARINTS, read_varint, varint
from broker.wire.vocabulary import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

_CONTROL_KEY = struct.Struct(">hh")
_NOT_SHORT = 0x81
"""Bits of a varint's first byte that are clear when it is the whole of a number that is not negative."""
_TIMESTAMP_MIN = -(2**63)
_TIMESTAMP_SPAN = 2**64 - 1
_SHORT_DELTA = 64
"""No delta that is one byte long is larger."""
_NOT_UTF8 = "surrogateescape"
"""Clients may name headers with any bytes: what is no UTF-8 is kept as PEP 383 does, and written back as it was."""
_END_TXN_VALUE = struct.Struct(">hi")


class Record(NamedTuple):
    """One record; `offset` is absolute, `timestamp` in ms (-1: none)."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class OpeningLimits(NamedTuple):
    """How much of one batch may be looked at: bytes before compression, and records, each header counted as one more.
    What it costs to open a batch is bounded by these, not by its size: a few hundred bytes hold a million records.
    """

    max_bytes: int = MAX_DECOMPRESSED_BATCH_BYTES
    max_records: int = MAX_OPENED_BATCH_RECORDS


OPENING_LIMITS = OpeningLimits()
_MARKER_LIMITS = OpeningLimits(max_bytes=1024, max_records=1)


class ControlKind(IntEnum):
    """Types of control records; the first two end a transaction, the others only stand in KRaft's own log."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class Control(NamedTuple):
    """What a control batch says; the coordinator's epoch is -1 for the kinds that have none."""

    kind: ControlKind
    coordinator_epoch: int


def decode_records(batch: Buffer, limits: OpeningLimits = OPENING_LIMITS) -> list[Record]:
    """The records of exactly one batch, with absolute offsets and timestamps (the batch's, if LogAppendTime).

    The CRC is not checked here (`broker.wire.batch.verify_crc`). Raises CorruptBatch for records that cannot be
    read, whose count is not the header's, or whose times leave 64 bits, and BatchBeyondLimits.
    """
    header = peek(batch)
    view = memoryview(batch)[HEADER_BYTES : header.size_bytes]
    if not header.record_count and not view:
        return []
    if header.record_count > limits.max_records:
        raise _too_many(header, limits)
    data = decompress(header.compression, view, limits.max_bytes)
    if not 0 <= header.record_count <= len(data) // MIN_RECORD_BYTES:
        raise CorruptBatch(f"{header.record_count} records cannot be in {len(data)} bytes")
    try:
        records, end = _read_records(data, header, limits)
    except IndexError as error:
        raise CorruptBatch(f"the batch at offset {header.base_offset} has a record that cannot be read") from error
    if end != len(data):
        raise CorruptBatch(f"{len(data) - end} bytes are left after {header.record_count} records")
    if not _SHORT_DELTA <= header.base_timestamp - _TIMESTAMP_MIN <= _TIMESTAMP_SPAN - _SHORT_DELTA:
        # So near the edge also a short delta can leave it, which is not looked at record by record.
        for record in records:
            _check_timestamp(record.timestamp)
    return records


def decode_record_at(batch: Buffer, offset: int, limits: OpeningLimits = OPENING_LIMITS) -> Record | None:
    """The record of exactly one batch that has this offset; None: none has. The records before it are stepped over
    where none is missing in the batch, and nothing behind it is looked at. Raises as `decode_records`.
    """
    header = peek(batch)
    before = offset - header.base_offset
    if header.record_count != header.last_offset_delta + 1 or not 0 <= before < header.record_count:
        return next((record for record in decode_records(batch, limits) if record.offset == offset), None)
    if header.record_count > limits.max_records:
        raise _too_many(header, limits)
    data = decompress(header.compression, memoryview(batch)[HEADER_BYTES : header.size_bytes], limits.max_bytes)
    position = 0
    try:
        for _ in range(before):
            size = data[position]
            if size & _NOT_SHORT:
                size, position = read_varint(data, position)
                position += size
            else:
                position += 1 + (size >> 1)
        (record,), _ = _read_records(data[position:], header._replace(record_count=1), limits)
    except IndexError as error:
        raise CorruptBatch(f"the batch at offset {header.base_offset} has a record that cannot be read") from error
    if record.offset != offset:
        raise CorruptBatch(f"record {before} of the batch at offset {header.base_offset} has offset {record.offset}")
    return record


def _check_timestamp(timestamp: int) -> None:
    if not 0 <= timestamp - _TIMESTAMP_MIN <= _TIMESTAMP_SPAN:
        raise CorruptBatch(f"a record has the timestamp {timestamp}, which 64 bits do not hold")


def _too_many(header: BatchHeader, limits: OpeningLimits) -> BatchBeyondLimits:
    return BatchBeyondLimits(
        f"the batch at offset {header.base_offset} has more than {limits.max_records} records and headers"
    )


def _read_records(data: bytes, header: BatchHeader, limits: OpeningLimits) -> tuple[list[Record], int]:
    """Read all records -> (records, position after them).

    Short varints are read inline: nearly all are. Where a field would end is only tested at the record's end: until
    then the position can but grow, and a slice beyond the end is merely short.
    """
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time_ms = header.max_timestamp if header.is_log_append_time else None
    lowest, highest = _TIMESTAMP_MIN, _TIMESTAMP_MIN + _TIMESTAMP_SPAN
    make, position = tuple.__new__, 0
    headers_left = limits.max_records - header.record_count
    records: list[Record] = []
    for _ in range(header.record_count):
        end, position = read_varint(data, position)
        end += position
        byte = data[position + 1]
        position += 2
        if byte < 128:
            timestamp = base_timestamp + ((byte >> 1) ^ -(byte & 1))
        else:
            delta, position = read_varint(data, position - 1)
            timestamp = base_timestamp + delta
            if not lowest <= timestamp <= highest:
                _check_timestamp(timestamp)
        byte = data[position]
        position += 1
        if byte < 128:
            offset = base_offset + ((byte >> 1) ^ -(byte & 1))
        else:
            delta, position = read_varint(data, position - 1)
            offset = base_offset + delta
        byte = data[position]
        if byte & _NOT_SHORT:
            key, position = _read_sized(data, position)
        else:
            start = position + 1
            position = start + (byte >> 1)
            key = data[start:position]
        byte = data[position]
        if byte & _NOT_SHORT:
            value, position = _read_sized(data, position)
        else:
            start = position + 1
            position = start + (byte >> 1)
            value = data[start:position]
        headers: Headers = ()
        if data[position]:
            headers, position = _read_headers(data, position, end, headers_left)
            headers_left -= len(headers)
            if headers_left < 0:
                raise _too_many(header, limits)
        else:
            position += 1
        if position != end:
            raise CorruptBatch("a record does not end where it says")
        if append_time_ms is not None:
            timestamp = append_time_ms
        records.append(make(Record, (offset, timestamp, key, value, headers)))
    return records, position


def _read_sized(data: bytes, position: int) -> tuple[bytes | None, int]:
    """A length and that many bytes (fewer at the end of the data), or None for length -1 -> (bytes, next position)."""
    length, position = read_varint(data, position)
    if length < 0:
        if length != -1:
            raise CorruptBatch(f"a key or value in a record has the length {length}")
        return None, position
    return data[position : position + length], position + length


def _read_headers(data: bytes, position: int, end: int, max_headers: int) -> tuple[Headers, int]:
    """The headers of a record that ends at `end`, one more than `max_headers` where there are more -> (headers, next
    position).
    """
    count, position = read_varint(data, position)
    if not 0 <= count <= (end - position) // 2:
        raise CorruptBatch(f"{count} headers cannot be in {end - position} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(min(count, max_headers + 1)):
        name, position = _read_sized(data, position)
        if name is None:
            raise CorruptBatch("a header has a null key")
        value, position = _read_sized(data, position)
        headers.append((name.decode(errors=_NOT_UTF8), value))
    return tuple(headers), position


def encode_batch(
    records: Sequence[Record],
    *,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    base_offset: int = 0,
    last_offset: int | None = None,
    dense: bool = True,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    log_append_time_ms: int | None = None,
) -> bytearray:
    """Build one batch, CRC included.

    `dense` numbers the records 0, 1, 2... whatever their offsets say; otherwise a record's delta is its offset minus
    `base_offset` (as after compaction), and `last_offset` may lie beyond the last record. `log_append_time_ms` makes
    it a LogAppendTime batch of that time. Raises ValueError for no records without `last_offset`, and for an offset
    before `base_offset` or beyond `last_offset`.
    """
    count = len(records)
    deltas = range(count) if dense else [record.offset - base_offset for record in records]
    last_delta = _last_delta(deltas, base_offset, last_offset)
    base_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    max_timestamp = max((record.timestamp for record in records), default=NO_TIMESTAMP)
    attributes = int(compression)
    attributes |= TRANSACTIONAL_MASK if transactional else 0
    attributes |= CONTROL_MASK if control else 0
    if log_append_time_ms is not None:
        attributes |= LOG_APPEND_TIME_MASK
        max_timestamp = log_append_time_ms
    batch = bytearray(HEADER_BYTES)
    if compression is Compression.NONE:
        _write_records(batch, records, deltas, base_timestamp)
    elif records:
        plain = bytearray()
        _write_records(plain, records, deltas, base_timestamp)
        batch += compress(compression, plain, level)
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=len(batch) - LOG_OVERHEAD,
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=last_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=count,
    )
    pack_header(batch, header)
    return batch


def _last_delta(deltas: Sequence[int], base_offset: int, last_offset: int | None) -> int:
    if not deltas and last_offset is None:
        raise ValueError("a batch without records needs a last offset")
    highest = deltas[-1] if deltas else 0
    last_delta = highest if last_offset is None else last_offset - base_offset
    if last_delta < highest or (deltas and deltas[0] < 0):
        raise ValueError(f"offsets {base_offset} to {last_offset} do not hold the records")
    return last_delta


def _write_records(out: bytearray, records: Sequence[Record], deltas: Sequence[int], base_timestamp: int) -> None:
    """Append the records in their wire form."""
    small, limit = SMALL_VARINTS, len(SMALL_VARINTS)
    for record, delta in zip(records, deltas, strict=True):
        _, timestamp, key, value, headers = record
        since = timestamp - base_timestamp
        body = bytearray(b"\x00")
        body += small[since] if 0 <= since < limit else varint(since)
        body += small[delta] if 0 <= delta < limit else varint(delta)
        if key is None:
            body.append(1)
        else:
            length = len(key)
            body += small[length] if length < limit else varint(length)
            body += key
        if value is None:
            body.append(1)
        else:
            length = len(value)
            body += small[length] if length < limit else varint(length)
            body += value
        if headers:
            _write_headers(body, headers)
        else:
            body.append(0)
        length = len(body)
        out += small[length] if length < limit else varint(length)
        out += body


def _write_headers(body: bytearray, headers: Headers) -> None:
    body += varint(len(headers))
    for name, value in headers:
        encoded = name.encode(errors=_NOT_UTF8)
        body += varint(len(encoded))
        body += encoded
        body += varint(-1 if value is None else len(value))
        if value is not None:
            body += value


def control_batch(
    kind: ControlKind,
    *,
    coordinator_epoch: int,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """The marker that ends a transaction in a partition: a control batch of one record."""
    key = _CONTROL_KEY.pack(0, kind)
    value = _END_TXN_VALUE.pack(0, coordinator_epoch)
    return encode_batch(
        [Record(0, timestamp_ms, key, value)],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def decode_control(batch: Buffer) -> Control:
    """What a control batch says. Raises CorruptBatch when it is none, or of a kind that is not known."""
    if not peek(batch).is_control:
        raise CorruptBatch("the batch is not a control batch")
    records = decode_records(batch, _MARKER_LIMITS)
    if len(records) != 1 or len(records[0].key or b"") < _CONTROL_KEY.size:
        raise CorruptBatch("a control batch has one record with a key of at least four bytes")
    _, number = _CONTROL_KEY.unpack_from(records[0].key or b"", 0)
    try:
        kind = ControlKind(number)
    except ValueError as error:
        raise CorruptBatch(f"control record type {number} is not known") from error
    if kind not in (ControlKind.ABORT, ControlKind.COMMIT):
        return Control(kind, NO_LEADER_EPOCH)
    value = records[0].value or b""
    if len(value) < _END_TXN_VALUE.size:
        raise CorruptBatch(f"an end-transaction marker has a value of {len(value)} bytes")
    return Control(kind, _END_TXN_VALUE.unpack_from(value, 0)[1])
