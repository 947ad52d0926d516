"""The buffer types that messages and frames are made of, and buffers to receive into."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

Records: TypeAlias = bytes | bytearray | memoryview | Sequence[bytes | bytearray | memoryview]
"""A records field: one buffer, or several that follow each other on the wire. Decoding gives one `memoryview`."""

# Prototypes of our own: those at `ctypes.pythonapi` are shared with every other user of ctypes.
_new: Any = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t)(
    ("PyByteArray_FromStringAndSize", ctypes.pythonapi)
)
_resize: Any = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_ssize_t)(
    ("PyByteArray_Resize", ctypes.pythonapi)
)


def receive_buffer(size_bytes: int) -> bytearray:
    """A bytearray of unset bytes: only for what is wholly received into before anything reads it.

    `bytearray(size)` first writes a zero into every byte, a ninth of what a mirror's CPU did.
    """
    buffer: bytearray = _new(None, size_bytes)
    return buffer


def grow_buffer(buffer: bytearray, size_bytes: int) -> None:
    """Lengthen by `size_bytes` unset bytes, where possible in place. BufferError while a view of it exists."""
    _resize(buffer, len(buffer) + size_bytes)


_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_MMAP_THRESHOLD_MAX_BYTES = 32 * 1024 * 1024


def keep_freed_memory(size_bytes: int) -> None:
    """For this process: the allocator keeps up to `size_bytes` of freed memory instead of giving it to the system.

    Frames of a MB come and go thousands of times a second; each that goes back costs a page fault per 4 KiB when the
    next one comes. Only glibc has these settings; elsewhere nothing happens.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, min(size_bytes, _MMAP_THRESHOLD_MAX_BYTES))
        mallopt(_M_TRIM_THRESHOLD, size_bytes)
