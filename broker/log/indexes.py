"""A segment's sparse indexes, in memory, and their files, which have Kafka's form.

They are written when a segment is sealed, flushed or closed, never per append: after a crash the tail is scanned
anyway, and the scan rebuilds them.

The index of aborted transactions ends with a footer of our own: the size of the log file that it describes and a
CRC32C. Nothing in the log contradicts an index that lacks an entry, so one without a footer (an earlier version wrote
them before they were filled) or with a wrong one is not believed.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right

from crc32c import crc32c

from broker.log.producers import AbortedTransaction

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_TXN_ENTRY = struct.Struct(">hqqqq")
_TXN_VERSION = 0
_TXN_FOOTER = struct.Struct(">4sqI")
_TXN_FOOTER_MARK = b"FSTX"


class OffsetIndex:
    """(offset of a batch, position of its first byte), both strictly ascending. Every position is the start of a
    batch.
    """

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._offsets = array("q")
        self._positions = array("q")

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def last_position(self) -> int:
        return self._positions[-1] if self._positions else 0

    def append(self, offset: int, position: int) -> None:
        self._offsets.append(offset)
        self._positions.append(position)

    def at_or_before_offset(self, offset: int) -> tuple[int, int]:
        """(base offset, position) of the last indexed batch that begins at or before `offset`; else the segment's
        start.
        """
        entry = bisect_right(self._offsets, offset)
        return (self._offsets[entry - 1], self._positions[entry - 1]) if entry else (self.base_offset, 0)

    def at_or_before_position(self, position: int) -> tuple[int, int] | None:
        """(base offset, position) of the last indexed batch that begins at or before `position`."""
        entry = bisect_right(self._positions, position)
        return (self._offsets[entry - 1], self._positions[entry - 1]) if entry else None

    def copy(self) -> "OffsetIndex":
        twin = OffsetIndex(self.base_offset)
        twin._offsets, twin._positions = self._offsets[:], self._positions[:]
        return twin

    def truncate(self, size_bytes: int) -> None:
        """Forgets batches at or after `size_bytes`."""
        keep = bisect_left(self._positions, size_bytes)
        del self._offsets[keep:]
        del self._positions[keep:]

    def encode(self) -> bytes:
        pairs = zip(self._offsets, self._positions, strict=True)
        return b"".join(_OFFSET_ENTRY.pack(offset - self.base_offset, position) for offset, position in pairs)

    @classmethod
    def decode(cls, base_offset: int, data: bytes, size_bytes: int) -> "OffsetIndex":
        """Raises ValueError for what cannot be the index of a segment of `size_bytes`."""
        if len(data) % _OFFSET_ENTRY.size:
            raise ValueError("offset index is cut short")
        index = cls(base_offset)
        before = (-1, -1)
        for entry in _OFFSET_ENTRY.iter_unpack(data):
            if entry[0] <= before[0] or entry[1] <= before[1] or entry[1] >= size_bytes:
                raise ValueError(f"offset index entry {entry} after {before} in a segment of {size_bytes} bytes")
            index.append(base_offset + entry[0], entry[1])
            before = entry
        return index


class TimeIndex:
    """(largest timestamp so far, base offset of the batch that reached it), both strictly ascending.

    Every record before an entry's batch has a timestamp at or below the entry's: a search for a later one may begin
    there.
    """

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._timestamps = array("q")
        self._offsets = array("q")

    def __len__(self) -> int:
        return len(self._timestamps)

    @property
    def last(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry, (-1, base offset) when there is none."""
        return (self._timestamps[-1], self._offsets[-1]) if self._timestamps else (-1, self.base_offset)

    def append(self, timestamp_ms: int, offset: int) -> None:
        """Takes the entry where it says something new, and leaves it where not."""
        if timestamp_ms > self.last[0]:
            self._timestamps.append(timestamp_ms)
            self._offsets.append(offset)

    def search_from(self, timestamp_ms: int) -> int:
        """An offset before which every timestamp is below `timestamp_ms`."""
        entry = bisect_left(self._timestamps, timestamp_ms)
        return self._offsets[entry - 1] if entry else self.base_offset

    def copy(self) -> "TimeIndex":
        twin = TimeIndex(self.base_offset)
        twin._timestamps, twin._offsets = self._timestamps[:], self._offsets[:]
        return twin

    def truncate(self, end_offset: int) -> None:
        keep = bisect_left(self._offsets, end_offset)
        del self._timestamps[keep:]
        del self._offsets[keep:]

    def encode(self) -> bytes:
        pairs = zip(self._timestamps, self._offsets, strict=True)
        return b"".join(_TIME_ENTRY.pack(timestamp, offset - self.base_offset) for timestamp, offset in pairs)

    @classmethod
    def decode(cls, base_offset: int, data: bytes) -> "TimeIndex":
        """Raises ValueError for what cannot be a time index."""
        if len(data) % _TIME_ENTRY.size:
            raise ValueError("time index is cut short")
        index = cls(base_offset)
        before = (-1, -1)
        for entry in _TIME_ENTRY.iter_unpack(data):
            if entry[0] <= before[0] or entry[1] <= before[1]:
                raise ValueError(f"time index entry {entry} after {before}")
            index.append(entry[0], base_offset + entry[1])
            before = entry
        return index


def encode_aborted(entries: list[AbortedTransaction], size_bytes: int) -> bytes:
    """The index of a segment whose log file has `size_bytes`."""
    body = b"".join(_TXN_ENTRY.pack(_TXN_VERSION, *entry) for entry in entries)
    return body + _TXN_FOOTER.pack(_TXN_FOOTER_MARK, size_bytes, _crc(body, size_bytes))


def decode_aborted(data: bytes, size_bytes: int) -> list[AbortedTransaction]:
    """Raises ValueError for what is not known to be the whole index of a segment of `size_bytes`."""
    body, footer = data[: -_TXN_FOOTER.size], data[-_TXN_FOOTER.size :]
    if footer != _TXN_FOOTER.pack(_TXN_FOOTER_MARK, size_bytes, _crc(body, size_bytes)):
        raise ValueError("aborted-transaction index without a footer that fits")
    return [AbortedTransaction(*entry[1:]) for entry in _TXN_ENTRY.iter_unpack(body)]


def _crc(body: bytes, size_bytes: int) -> int:
    checksum: int = crc32c(body, size_bytes & 0xFFFFFFFF)
    return checksum
