"""A disk that refuses its n-th call, whichever that is."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from broker.log.disk import OsDisk
from broker.wire.buffers import Buffer


class FailingDisk(OsDisk):
    """The real disk. `fails_at` is which call from now on fails, with `code`; `for_good`: and all after it. A write
    that fails is torn, a descriptor whose close fails is closed, a file that a failing call was to open is there.
    """

    def __init__(self, code: int = errno.EIO) -> None:
        super().__init__()
        self.code = code
        self.fails_at: int | None = None
        self.for_good = False
        self.calls = 0
        self.read_bytes = 0
        self.unsynced = False
        """Whether a late fsync failed: what is not known to be on the disk is not said to be so later."""

    def failing(self, fails_at: int | None, *, for_good: bool = False) -> None:
        self.fails_at, self.for_good, self.calls = fails_at, for_good, 0

    def _call(self, otherwise: Callable[[], object] = lambda: None) -> None:
        """`otherwise` is what is done all the same."""
        self.calls += 1
        if self.fails_at is not None and (
            self.calls == self.fails_at or (self.for_good and self.calls > self.fails_at)
        ):
            otherwise()
            raise OSError(self.code, os.strerror(self.code))

    def open(self, path: Path) -> int:
        self._call(path.touch)
        return super().open(path)

    def close(self, fd: int) -> None:
        self._call(lambda: os.close(fd))
        super().close(fd)

    def size(self, fd: int) -> int:
        self._call()
        return super().size(fd)

    def pread(self, fd: int, size_bytes: int, position: int) -> bytes:
        self._call()
        self.read_bytes += size_bytes
        return super().pread(fd, size_bytes, position)

    def pwrite(self, fd: int, data: Buffer, position: int) -> int:
        self._call(lambda: os.pwrite(fd, memoryview(data)[: len(data) * 2 // 3], position))
        return super().pwrite(fd, data, position)

    def truncate(self, fd: int, size_bytes: int) -> None:
        self._call()
        super().truncate(fd, size_bytes)

    def fsync(self, fd: int) -> None:
        self._call()

    def fsync_later(self, paths: list[Path]) -> Future[None]:
        done: Future[None] = Future()
        try:
            self._call()
        except OSError as error:
            self.unsynced = True
            done.set_exception(error)
        else:
            done.set_result(None)
        return done

    def read_file(self, path: Path) -> bytes:
        self._call()
        return super().read_file(path)

    def write_file(self, path: Path, data: bytes, *, durable: bool) -> None:
        self._call()
        super().write_file(path, data, durable=False)
        if durable:
            self._call()

    def replace(self, source: Path, target: Path) -> None:
        self._call()
        super().replace(source, target)

    def unlink(self, path: Path) -> None:
        self._call()
        super().unlink(path)

    def fsync_directory(self, directory: Path) -> None:
        self._call()

    def modified_ms(self, path: Path) -> int:
        self._call()
        return super().modified_ms(path)

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        self._call()
        super().set_modified_ms(path, modified_ms)
