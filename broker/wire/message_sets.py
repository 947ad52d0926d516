"""Message sets: what logs held before record batches. Formats 0 and 1 are read, and converted to batches of magic 2.

A message, big-endian, position: offset int64 0, size int32 8 (of what follows it), CRC32 uint32 12 (of what follows it;
not CRC32C), magic int8 16, attributes int8 17, in format 1 a timestamp int64 18, then key and value, each an int32
length (-1: null) and its bytes. Attributes: codec in bits 0 to 2, in format 1 LogAppendTime in bit 3.

A compressed message's value is a message set. Its offsets are absolute in format 0; in format 1 they are relative, and
the outer offset is that of the last one (KIP-31). With LogAppendTime the outer timestamp holds for all inside of it;
format 0 has no timestamps (KIP-32). LZ4 frames in format 0 have a header checksum over too much (KIP-57).

Sources: Kafka's protocol guide ("Message sets"), and the KIPs named above.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from broker.wire.batch import LOG_OVERHEAD, MAGIC, MAGIC_OFFSET, BatchHeader, is_partial, peek
from broker.wire.buffers import Buffer
from broker.wire.compression import Compression, decompress
from broker.wire.errors import CorruptBatch
from broker.wire.limits import CONVERTED_BATCH_MAX_BYTES, MAX_DECOMPRESSED_BATCH_BYTES
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import NO_TIMESTAMP
from broker.wire.xxhash import xxhash32

_OVERHEAD = struct.Struct(">qi")
_HEAD = struct.Struct(">Ibb")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_CRC_BYTES: Final = 4
_CODEC_MASK: Final = 0x07
_LOG_APPEND_TIME_MASK: Final = 0x08
_LZ4_CONTENT_SIZE_MASK: Final = 0x08
_LZ4_MAGIC_BYTES: Final = 4


class _Message(NamedTuple):
    """One message as it stands, its CRC checked. `end` is the position behind it."""

    offset: int
    magic: int
    codec: Compression
    is_log_append_time: bool
    timestamp: int
    key: bytes | None
    value: bytes | None
    end: int


def iter_fetched(buf: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """As `iter_batches`, for what a broker answers: messages of formats 0 and 1 come as new batches of magic 2.

    The log of a cluster that was upgraded in place may have all three formats. Offsets, keys, values and timestamps
    are kept (-1 where there was none, the append time where that held). A compressed message becomes one batch, and so
    do uncompressed ones that follow each other. Raises CorruptBatch, with `next_offset` where the damage has an offset.
    """
    view = memoryview(buf)
    position, size = 0, len(view)
    while position < size:
        if size - position > MAGIC_OFFSET and view[position + MAGIC_OFFSET] < MAGIC:
            message = _read_message(view, position)
            if message is None:
                return
            if message.codec is Compression.NONE:
                batch, position = _convert_run(view, message)
            else:
                batch, position = _convert_compressed(message), message.end
            yield peek(batch), batch
            continue
        if is_partial(view, position, size):
            return
        header = peek(view, position)
        end = position + header.size_bytes
        yield header, view[position:end]
        position = end


def _read_message(view: memoryview, position: int) -> _Message | None:
    """The message at `position`; None when the buffer ends inside of it. Raises CorruptBatch."""
    if len(view) - position <= MAGIC_OFFSET:
        return None
    offset, length = _OVERHEAD.unpack_from(view, position)
    end = position + LOG_OVERHEAD + length
    fixed = _HEAD.size + (_INT64.size if view[position + MAGIC_OFFSET] else 0)
    if length < fixed + 2 * _INT32.size:
        raise _corrupt(offset, f"claims {length} bytes")
    if end > len(view):
        return None
    body = position + LOG_OVERHEAD
    crc, magic, attributes = _HEAD.unpack_from(view, body)
    if magic not in (0, 1):
        raise _corrupt(offset, f"has magic {magic}")
    if zlib.crc32(view[body + _CRC_BYTES : end]) != crc:
        raise _corrupt(offset, "does not have the CRC that it says")
    codec = attributes & _CODEC_MASK
    if codec > Compression.LZ4:
        raise _corrupt(offset, f"is compressed by codec {codec}, which format {magic} does not have")
    timestamp = _INT64.unpack_from(view, body + _HEAD.size)[0] if magic else NO_TIMESTAMP
    key, at = _read_bytes(view, body + fixed, end, offset)
    value, at = _read_bytes(view, at, end, offset)
    if at != end:
        raise _corrupt(offset, f"has {end - at} bytes behind its value")
    by_append = bool(magic and attributes & _LOG_APPEND_TIME_MASK)
    return _Message(offset, magic, Compression(codec), by_append, timestamp, key, value, end)


def _read_bytes(view: memoryview, position: int, end: int, offset: int) -> tuple[bytes | None, int]:
    """A length and so many bytes, None for -1 -> (bytes, position behind them)."""
    if position + _INT32.size > end:
        raise _corrupt(offset, "ends inside of a length")
    (length,) = _INT32.unpack_from(view, position)
    position += _INT32.size
    if length == -1:
        return None, position
    if not 0 <= length <= end - position:
        raise _corrupt(offset, f"has a key or value of {length} bytes, more than it holds")
    return bytes(view[position : position + length]), position + length


def _convert_run(view: memoryview, first: _Message) -> tuple[memoryview, int]:
    """`first` and the uncompressed messages of its format behind it -> (one batch, the position behind them).

    Damage behind a good message is left for the next look, so that what is before it is not lost with it.
    """
    records, start, position = [_record(first)], first.end, first.end
    while position - start < CONVERTED_BATCH_MAX_BYTES:
        try:
            message = _read_message(view, position) if _is_message(view, position, first.magic) else None
        except CorruptBatch:
            break
        if message is None or message.codec is not Compression.NONE or message.offset <= records[-1].offset:
            break
        records.append(_record(message))
        position = message.end
    return _encode(records, records[-1].offset, Compression.NONE), position


def _is_message(view: memoryview, position: int, magic: int) -> bool:
    return len(view) - position > MAGIC_OFFSET and view[position + MAGIC_OFFSET] == magic


def _convert_compressed(outer: _Message) -> memoryview:
    """The message set inside of a compressed message, as one batch of the same codec. Raises CorruptBatch."""
    try:
        inner = _inner(outer)
    except CorruptBatch as error:
        raise _corrupt(outer.offset, f"holds a message set that cannot be read: {error}") from error
    base = outer.offset - inner[-1].offset if outer.magic else 0
    timestamp = outer.timestamp if outer.is_log_append_time else None
    records = [Record(base + m.offset, m.timestamp if timestamp is None else timestamp, m.key, m.value) for m in inner]
    if any(after.offset <= before.offset for before, after in pairwise(records)):
        raise _corrupt(outer.offset, "holds messages that are not in the order of their offsets")
    if records[0].offset < 0 or records[-1].offset > outer.offset:
        raise _corrupt(outer.offset, f"holds messages up to offset {records[-1].offset}")
    return _encode(records, outer.offset, outer.codec)


def _inner(outer: _Message) -> Sequence[_Message]:
    """The messages of a compressed message, with the offsets that they have there; at least one."""
    if outer.value is None:
        raise CorruptBatch("the value is null")
    data = outer.value
    if outer.codec is Compression.LZ4 and outer.magic == 0:
        data = _with_right_checksum(data)
    view = memoryview(decompress(outer.codec, data, MAX_DECOMPRESSED_BATCH_BYTES))
    messages: list[_Message] = []
    position = 0
    while position < len(view):
        message = _read_message(view, position)
        if message is None:
            raise CorruptBatch("it ends inside of a message")
        if message.magic != outer.magic or message.codec is not Compression.NONE:
            raise CorruptBatch(f"it holds a message of format {message.magic}, compressed by {message.codec.name}")
        messages.append(message)
        position = message.end
    if not messages:
        raise CorruptBatch("it is empty")
    return messages


def _with_right_checksum(frame: bytes) -> bytes:
    """An LZ4 frame whose header checksum is over the descriptor alone, without the frame's magic before it.

    The descriptor: flags, block size, and where the flags say so a content size of eight bytes; one byte of checksum.
    """
    if len(frame) <= _LZ4_MAGIC_BYTES:
        return frame
    descriptor_bytes = 2 + (8 if frame[_LZ4_MAGIC_BYTES] & _LZ4_CONTENT_SIZE_MASK else 0)
    at = _LZ4_MAGIC_BYTES + descriptor_bytes
    checksum = xxhash32(frame[_LZ4_MAGIC_BYTES:at]) >> 8 & 0xFF
    return frame[:at] + bytes([checksum]) + frame[at + 1 :]


def _record(message: _Message) -> Record:
    return Record(message.offset, message.timestamp, message.key, message.value)


def _encode(records: Sequence[Record], last_offset: int, codec: Compression) -> memoryview:
    base_offset = records[0].offset
    return memoryview(
        encode_batch(records, compression=codec, base_offset=base_offset, last_offset=last_offset, dense=False)
    )


def _corrupt(offset: int, what: str) -> CorruptBatch:
    error = CorruptBatch(f"the message at offset {offset} {what}")
    error.next_offset = offset + 1
    return error
