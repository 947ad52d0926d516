"""The codecs of record batches, with bounded output."""

from __future__ import annotations

from enum import IntEnum


class Compression(IntEnum):
    """Codec numbers as they stand in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4
