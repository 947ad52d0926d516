"""stdout and stderr that nobody may read any more: a command goes on to its own end, and to its own exit code.

Who reads them may leave at any time (`| head -1`, a terminal that is gone). What a command changes does not hang on
that, nor does the word of how it ended: from then on what is printed is dropped. So is what stderr cannot take for any
other reason; an answer on stdout that a full disk cuts off is an error.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_STDERR: Final = 2
_GONE: Final = frozenset({errno.EPIPE, errno.ECONNRESET, errno.EIO, errno.ENXIO})
"""Of a pipe, a socket, a terminal. Of a file they are a fault of its disk, and an error."""


class Unread(io.FileIO):
    """A standard stream's own end, which counts as written what nobody reads."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        self.is_gone = False

    def write(self, data: ReadableBuffer, /) -> int:
        """Raises OSError, once, where a file cannot take what is printed on stdout."""
        if not self.is_gone:
            try:
                return super().write(data)
            except BlockingIOError:
                raise
            except OSError as error:
                self.is_gone = True
                if self.fileno() != _STDERR and (self._is_file or error.errno not in _GONE):
                    raise
        return memoryview(data).nbytes


def outlive_readers() -> None:
    """Of this process, before it opens anything: what a closed stream leaves free would be the next socket's."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        pass
    os.close(descriptor)
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115  # as long as the process
    sys.stdout, sys.stderr = _outliving(sys.stdout), _outliving(sys.stderr)


def is_gone(stream: TextIO) -> bool:
    """Whether it is known that nobody reads it any more."""
    return bool(getattr(getattr(getattr(stream, "buffer", None), "raw", None), "is_gone", False))


def _outliving(stream: TextIO | None) -> TextIO:
    if stream is None:
        return open(os.devnull, "w")  # as long as the process
    stream.flush()
    buffer = io.BufferedWriter(Unread(stream.fileno()))
    line_buffering = getattr(stream, "line_buffering", False)
    return io.TextIOWrapper(buffer, stream.encoding, stream.errors, line_buffering=line_buffering)
