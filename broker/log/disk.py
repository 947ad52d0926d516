"""The disk, passed in so that tests can fill it, tear a write or fail an fsync."""

import errno
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn, Protocol, cast

from broker import descriptors
from broker.wire.buffers import Buffer


class Disk(Protocol):
    """Every method raises OSError as the call it names."""

    def open(self, path: Path) -> int:
        """A descriptor for reading and writing; the file is created when missing."""
        ...

    def has_few_files_left(self) -> bool:
        """Whether one more that stays open would take the last that this process may have."""
        ...

    def close(self, fd: int) -> None: ...
    def size(self, fd: int) -> int: ...
    def pread(self, fd: int, size_bytes: int, position: int) -> bytes: ...
    def pwrite(self, fd: int, data: Buffer, position: int) -> int:
        """Bytes written, which may be fewer than given."""
        ...

    def truncate(self, fd: int, size_bytes: int) -> None: ...
    def fsync(self, fd: int) -> None: ...
    def fsync_later(self, paths: list[Path]) -> "Future[None]":
        """Starts making the files durable without waiting; they may be closed or removed meanwhile."""
        ...

    def read_file(self, path: Path) -> bytes: ...
    def write_file(self, path: Path, data: bytes, *, durable: bool) -> None:
        """Replaces the file whole: a reader, and a start after a crash, sees the old or the new content."""
        ...

    def replace(self, source: Path, target: Path) -> None: ...
    def unlink(self, path: Path) -> None:
        """Removes the file; a missing one is no error."""
        ...

    def fsync_directory(self, directory: Path) -> None: ...
    def sync_all(self) -> None:
        """Waits until all that was written to any file is durable: cheaper than many single waits."""
        ...

    def modified_ms(self, path: Path) -> int: ...
    def set_modified_ms(self, path: Path, modified_ms: int) -> None: ...


class OsDisk:
    """The operating system's disk. One thread does the late fsyncs: a full segment may take seconds, and produce goes
    on.
    """

    def __init__(self) -> None:
        self._flusher = ThreadPoolExecutor(max_workers=1, thread_name_prefix="log-flush")

    def open(self, path: Path) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def has_few_files_left(self) -> bool:
        return descriptors.few_are_left()

    def close(self, fd: int) -> None:
        os.close(fd)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def pread(self, fd: int, size_bytes: int, position: int) -> bytes:
        return os.pread(fd, size_bytes, position)

    def pwrite(self, fd: int, data: Buffer, position: int) -> int:
        return os.pwrite(fd, data, position)

    def truncate(self, fd: int, size_bytes: int) -> None:
        os.ftruncate(fd, size_bytes)

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def fsync_later(self, paths: list[Path]) -> "Future[None]":
        return self._flusher.submit(_fsync_paths, paths)

    def read_file(self, path: Path) -> bytes:
        return path.read_bytes()

    def write_file(self, path: Path, data: bytes, *, durable: bool) -> None:
        temporary = path.with_name(path.name + ".tmp")
        # The metadata have keys of users; and a crash may have left it with other rights.
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(fd, 0o600)
            write_all(lambda view, position: os.pwrite(fd, view, position), data, 0)
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, path)
        if durable:
            self.fsync_directory(path.parent)

    def replace(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def unlink(self, path: Path) -> None:
        with suppress(FileNotFoundError):
            os.unlink(path)

    def fsync_directory(self, directory: Path) -> None:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_all(self) -> None:
        os.sync()

    def modified_ms(self, path: Path) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))


# Shared by all logs of a process, so that there is one flush thread and not one per partition.
OS_DISK = OsDisk()


class _ClosedDisk:
    def __getattr__(self, name: str) -> NoReturn:
        raise OSError(errno.EBADF, "the log is closed")


CLOSED_DISK: Final = cast(Disk, _ClosedDisk())
"""What takes the place of the disk in files that were let go of: the numbers of their descriptors are given to the next
files that are opened, and their names may be those of a log that was opened since. Any use of it raises OSError.
"""


def write_all(pwrite: Callable[[memoryview, int], int], data: Buffer, position: int) -> None:
    """Writes all of `data` at `position`, going on after short writes. Raises OSError; the file may then hold a torn
    tail.
    """
    view = memoryview(data)
    written = pwrite(view, position)
    while written < len(view):
        view = view[written:]
        position += written
        written = pwrite(view, position)
        if written == 0:
            raise OSError(f"the disk took 0 of {len(view)} bytes")


def _fsync_paths(paths: list[Path]) -> None:
    """An fsync covers what any descriptor of the file has written. A file that retention has removed needs none."""
    for path in paths:
        with suppress(FileNotFoundError):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
