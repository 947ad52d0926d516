"""Frames out of bytes as they arrive: the first buffer of a connection, of either side. No I/O.

A frame is its size (int32) and as many bytes. The head takes sizes and frames that fit it; a larger frame gets a buffer
of its own, into which the rest is received in place.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from broker.wire.errors import MalformedMessage

_SIZE: Final = struct.Struct(">i")


class FrameRefused(MalformedMessage):
    """A frame that is announced with a size out of bounds: `size_bytes`."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(f"a frame of {size_bytes} bytes was announced")
        self.size_bytes = size_bytes


class BegunFrame(NamedTuple):
    """A frame that is larger than the head: all its bytes, and those that came. The view holds until `next_frame`."""

    size_bytes: int
    beginning: memoryview


class FrameHead:
    """Receive into `room()`, say how much by `add`, then call `next_frame` until it has none."""

    __slots__ = ("_buffer", "_filled", "_size_max_bytes", "_size_min_bytes", "_start", "_view")

    def __init__(self, capacity_bytes: int, *, size_min_bytes: int, size_max_bytes: int) -> None:
        self._buffer = bytearray(capacity_bytes)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._filled = 0
        self._size_min_bytes = size_min_bytes
        self._size_max_bytes = size_max_bytes

    def bound(self, size_min_bytes: int, size_max_bytes: int) -> None:
        """From the next frame on they are of these sizes."""
        self._size_min_bytes, self._size_max_bytes = size_min_bytes, size_max_bytes

    @property
    def is_empty(self) -> bool:
        """Whether no frame has begun to come in."""
        return self._filled == self._start

    def room(self) -> memoryview:
        """Where the next bytes go; never empty once `next_frame` has returned None."""
        return self._view[self._filled :]

    def add(self, size_bytes: int) -> None:
        """So many bytes were put into `room()`."""
        self._filled += size_bytes

    def next_frame(self) -> bytearray | BegunFrame | None:
        """The next whole frame (without its size), the beginning of a larger one, or None: more bytes are needed.

        Raises FrameRefused.
        """
        if self._filled - self._start >= _SIZE.size:
            (size_bytes,) = _SIZE.unpack_from(self._buffer, self._start)
            if not self._size_min_bytes <= size_bytes <= self._size_max_bytes:
                raise FrameRefused(size_bytes)
            begin = self._start + _SIZE.size
            end = begin + size_bytes
            if end <= self._filled:
                self._start = end
                return bytearray(self._view[begin:end])
            if _SIZE.size + size_bytes > len(self._buffer):
                self._start = self._filled
                return BegunFrame(size_bytes, self._view[begin : self._filled])
        left = self._filled - self._start
        if self._start:
            self._view[:left] = bytes(self._view[self._start : self._filled])
            self._start, self._filled = 0, left
        return None
