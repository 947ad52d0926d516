"""The codecs of record batches, with bounded output."""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Final

import cramjam

from broker.wire.buffers import Buffer
from broker.wire.errors import BatchBeyondLimits, CorruptBatch
from broker.wire.limits import DECOMPRESSION_FIRST_GUESS_BYTES, DECOMPRESSION_GROWTH_FACTOR

DEFAULT_GZIP_LEVEL: Final = 6
DEFAULT_LZ4_LEVEL: Final = 1
"""The fast compressor; Kafka's own client calls its fast compressor whatever the level says, up to 3.7."""
DEFAULT_ZSTD_LEVEL: Final = 3

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_SNAPPY_RATIO_MAX: Final = 64
"""Three bytes of snappy stand for 64 at most: a larger claim is not worth its memory."""
_BUFFER_FULL: Final = "failed to write whole buffer"
"""What every codec says when the output does not fit."""
_INT32 = struct.Struct(">i")


class Compression(IntEnum):
    """Codec numbers as they stand in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """Compress as Kafka's clients do: gzip, xerial-framed snappy, an lz4 frame of independent blocks, zstd.

    `level` is the codec's own scale, None its default; snappy and none have no levels.
    """
    if codec is Compression.GZIP:
        return bytes(cramjam.gzip.compress(data, DEFAULT_GZIP_LEVEL if level is None else level))
    if codec is Compression.SNAPPY:
        return _compress_xerial(data)
    if codec is Compression.LZ4:
        chosen = DEFAULT_LZ4_LEVEL if level is None else level
        # Java refuses frames whose blocks refer to earlier ones ("Dependent block stream is unsupported").
        frame = cramjam.lz4.Compressor(chosen, False, False)
        frame.compress(bytes(data))
        return bytes(frame.finish())
    if codec is Compression.ZSTD:
        return bytes(cramjam.zstd.compress(data, DEFAULT_ZSTD_LEVEL if level is None else level))
    return bytes(data)


def decompress(codec: Compression, data: Buffer, max_bytes: int) -> bytes:
    """The bytes before compression. Raises CorruptBatch when they cannot be had, BatchBeyondLimits when they are more
    than `max_bytes`. The interpreter is free for other threads while a codec works.
    """
    if codec is Compression.NONE:
        if len(data) > max_bytes:
            raise BatchBeyondLimits(f"{len(data)} bytes of records, at most {max_bytes} are allowed")
        return bytes(data)
    try:
        if codec is Compression.GZIP:
            return _decompress_bounded(cramjam.gzip.decompress_into, data, max_bytes)
        if codec is Compression.SNAPPY:
            return _decompress_snappy(data, max_bytes)
        if codec is Compression.LZ4:
            return _decompress_bounded(cramjam.lz4.decompress_into, data, max_bytes)
        return _decompress_bounded(cramjam.zstd.decompress_into, data, max_bytes)
    except cramjam.DecompressionError as error:
        if str(error) == _BUFFER_FULL:
            raise BatchBeyondLimits(
                f"{codec.name.lower()} data of {len(data)} bytes holds more than the {max_bytes} that are allowed"
            ) from error
        raise CorruptBatch(f"{codec.name.lower()} data of {len(data)} bytes cannot be decompressed: {error}") from error


def _decompress_bounded(into: Callable[[Buffer, bytearray], int], data: Buffer, max_bytes: int) -> bytes:
    """Decompress into a buffer of a guessed size and try again with a larger one, never larger than allowed.

    The streams of Kafka's clients do not say how long they are, and the codecs write either into a buffer of fixed
    size or without any bound.
    """
    size = min(max(len(data) * DECOMPRESSION_GROWTH_FACTOR, DECOMPRESSION_FIRST_GUESS_BYTES), max_bytes)
    while True:
        out = bytearray(size)
        try:
            written = into(data, out)
        except cramjam.DecompressionError as error:
            if size >= max_bytes or str(error) != _BUFFER_FULL:
                raise
            size = min(size * DECOMPRESSION_GROWTH_FACTOR, max_bytes)
        else:
            return bytes(memoryview(out)[:written])


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES])
        out += _INT32.pack(len(block))
        out += block
    return bytes(out)


def _decompress_snappy(data: Buffer, max_bytes: int) -> bytes:
    """Xerial's chunks (what Java writes), or one plain block (what some other clients write)."""
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_block(view, max_bytes)
    out = bytearray()
    position = len(_XERIAL_HEADER)
    while position < len(view):
        if position + _INT32.size > len(view):
            raise CorruptBatch("snappy data ends inside of a chunk's length")
        (length,) = _INT32.unpack_from(view, position)
        position += _INT32.size
        if not 0 <= length <= len(view) - position:
            raise CorruptBatch(f"a snappy chunk claims {length} bytes, more than there are")
        out += _decompress_block(view[position : position + length], max_bytes - len(out))
        position += length
    return bytes(out)


def _decompress_block(block: memoryview, max_bytes: int) -> bytes:
    length = cramjam.snappy.decompress_raw_len(block)
    if length > max_bytes:
        raise BatchBeyondLimits(f"a snappy block claims {length} bytes, at most {max_bytes} are allowed")
    if length > len(block) * _SNAPPY_RATIO_MAX:
        raise CorruptBatch(f"a snappy block of {len(block)} bytes claims {length}, more than it can hold")
    out = bytearray(length)
    written = cramjam.snappy.decompress_raw_into(block, out)
    return bytes(memoryview(out)[:written])
