"""A disk on which the process dies: at one of its changes, of which a part may have been made."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path

from broker.log.disk import OsDisk
from broker.wire.buffers import Buffer


class Crashed(BaseException):
    """The process is dead: nobody may catch this but the test."""


class CrashingDisk(OsDisk):
    """The real disk. `dies_at` is which change from now on is the last; a write that is the last is torn in the middle.
    Nothing is waited for: a process that dies leaves the page cache as it is.
    """

    def __init__(self) -> None:
        super().__init__()
        self.dies_at: int | None = None
        self.changes = 0

    def _change(self) -> bool:
        """True where the process dies."""
        self.changes += 1
        return self.dies_at is not None and self.changes >= self.dies_at

    def pwrite(self, fd: int, data: Buffer, position: int) -> int:
        if self._change():
            super().pwrite(fd, memoryview(data)[: len(data) // 2], position)
            raise Crashed
        return super().pwrite(fd, data, position)

    def truncate(self, fd: int, size_bytes: int) -> None:
        if self._change():
            raise Crashed
        super().truncate(fd, size_bytes)

    def write_file(self, path: Path, data: bytes, *, durable: bool) -> None:
        if self._change():
            raise Crashed
        super().write_file(path, data, durable=False)

    def unlink(self, path: Path) -> None:
        if self._change():
            raise Crashed
        super().unlink(path)

    def replace(self, source: Path, target: Path) -> None:
        if self._change():
            raise Crashed
        super().replace(source, target)

    def fsync(self, fd: int) -> None:
        pass

    def fsync_directory(self, directory: Path) -> None:
        pass

    def fsync_later(self, paths: list[Path]) -> Future[None]:
        done: Future[None] = Future()
        done.set_result(None)
        return done
