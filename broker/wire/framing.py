"""What can be told of a batch's records without opening them: that they lie in it as its header says.

A record begins with its length. From length to length, an uncompressed batch shows how many records it has and whether
anything lies behind the last. A compressed one stays closed: its first bytes tell whether the codec is the header's.
"""

from __future__ import annotations

from typing import Final

from broker.wire.batch import HEADER_BYTES, BatchHeader
from broker.wire.buffers import Buffer
from broker.wire.compression import Compression, decompress
from broker.wire.errors import CorruptBatch
from broker.wire.limits import MAX_DECOMPRESSED_BATCH_BYTES, MIN_RECORD_BYTES
from broker.wire.varint import read_varint

_XERIAL: Final = b"\x82SNAPPY\x00"
_MAGIC: Final = {
    Compression.GZIP: b"\x1f\x8b",
    Compression.LZ4: b"\x04\x22\x4d\x18",
    Compression.ZSTD: b"\x28\xb5\x2f\xfd",
}


def check_framing(batch: Buffer, header: BatchHeader, max_bytes: int = MAX_DECOMPRESSED_BATCH_BYTES) -> None:
    """Raises CorruptBatch for records that are not there, are cut short, or have something behind them, and for bytes
    that another codec than the header's wrote; BatchBeyondLimits for more records' bytes than `max_bytes`, where the
    codec does not hide them. The CRC is not looked at.
    """
    codec = header.compression
    records = memoryview(batch)[HEADER_BYTES : header.size_bytes]
    first = bytes(records[: len(_XERIAL)])
    if codec is Compression.NONE or (codec is Compression.SNAPPY and first != _XERIAL):
        # A plain snappy block begins with any number: what it is shows only when it is opened.
        _check_lengths(decompress(codec, records, max_bytes), header.record_count)
    elif codec is not Compression.SNAPPY and not first.startswith(_MAGIC[codec]):
        raise CorruptBatch(f"the header says {codec.name.lower()}, the records begin with {first.hex() or 'nothing'}")


def _check_lengths(data: bytes, record_count: int) -> None:
    position, size, count = 0, len(data), 0
    try:
        while position < size:
            # Lengths of up to three bytes are read inline: nearly all are.
            byte = data[position]
            if byte < 128:
                length, position = byte >> 1, position + 1
            elif (second := data[position + 1]) < 128:
                length, position = (byte & 127 | second << 7) >> 1, position + 2
            elif (third := data[position + 2]) < 128:
                length, position = (byte & 127 | (second & 127) << 7 | third << 14) >> 1, position + 3
            else:
                length, position = read_varint(data, position)
            if length < MIN_RECORD_BYTES - 1 or byte & 1:
                raise CorruptBatch(f"a record has the length {length}")
            position += length
            count += 1
            if count > record_count:
                raise CorruptBatch(f"the header says {record_count} records, there are more")
    except IndexError as error:
        raise CorruptBatch("the records end inside of a length") from error
    if position != size or count != record_count:
        over = f", the last one {position - size} bytes too long" if position != size else ""
        raise CorruptBatch(f"the header says {record_count} records, there are {count}{over}")
