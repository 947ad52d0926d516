"""A host's clock, which somebody may set, and its disk, which may be full, or die with the process amid a write."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from broker.wire.buffers import Buffer
from tests.broker.log.crashing import CrashingDisk
from tests.mirror.simulation.loop import SimulatedClock


class NodeClock(SimulatedClock):
    """Of one host: somebody may set its wall clock."""

    wrong_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.wrong_ms


class SimDisk(CrashingDisk):
    """That of one life. `died` is called when it dies with the process; `is_full` says whether it takes nothing."""

    def __init__(self, died: Callable[[], None], is_full: Callable[[], bool]) -> None:
        super().__init__()
        self._died = died
        self._is_full = is_full

    def pwrite(self, fd: int, data: Buffer, position: int) -> int:
        self._check_room()
        return super().pwrite(fd, data, position)

    def write_file(self, path: Path, data: bytes, *, durable: bool) -> None:
        self._check_room()
        super().write_file(path, data, durable=durable)

    def _check_room(self) -> None:
        if self._is_full():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _change(self) -> bool:
        dies = super()._change()
        if dies:
            self._died()
        return dies

    def sync_all(self) -> None:
        """As `fsync`."""
