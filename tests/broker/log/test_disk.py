"""What the disk is asked to do: what must be durable is, and nothing is written twice."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from broker.log import layout
from broker.log.config import LogConfig
from broker.log.disk import OsDisk
from broker.log.partition_log import PartitionLog
from broker.log.retention import is_full
from broker.wire.batch import peek
from tests.broker.clock import ManualClock
from tests.broker.log.support import NOW_MS, batch_of


@pytest.mark.parametrize("durable", [True, False])
def test_a_durable_file_and_its_name_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool) -> None:
    synced: list[int] = []
    fsync = os.fsync

    def seen(fd: int) -> None:
        if threading.current_thread() is threading.main_thread():  # logs of other tests are flushed in another
            synced.append(os.fstat(fd).st_ino)
        fsync(fd)

    monkeypatch.setattr(os, "fsync", seen)
    OsDisk().write_file(tmp_path / "state", b"content", durable=durable)
    assert (tmp_path / "state").read_bytes() == b"content"
    assert synced == ([(tmp_path / "state").stat().st_ino, tmp_path.stat().st_ino] if durable else [])


class NotingDisk(OsDisk):
    """Notes which files are written whole."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[str] = []

    def write_file(self, path: Path, data: bytes, *, durable: bool) -> None:
        self.written.append(path.name)
        super().write_file(path, data, durable=durable)


def test_an_epoch_is_noted_once_and_before_its_first_batch(tmp_path: Path) -> None:
    disk = NotingDisk()
    log = PartitionLog.open(tmp_path, LogConfig(), ManualClock(NOW_MS), disk)
    noted = []
    for epoch in (3, 3, 4, 3, 4):
        log.append(batch_of(b"value"), leader_epoch=epoch)
        noted.append(disk.written.count(layout.LEADER_EPOCHS))
    assert noted == [1, 1, 2, 2, 2]
    log.close()


def test_an_empty_segment_takes_a_batch_that_is_larger_than_a_segment() -> None:
    """Otherwise a second one would begin at the same offset, in the same files."""
    header = peek(batch_of(b"x" * 1_000))
    for size_bytes, full in ((0, False), (1, True)):
        assert full is is_full(
            LogConfig(segment_bytes=500),
            size_bytes=size_bytes,
            base_offset=0,
            first_timestamp_ms=-1,
            batch=header,
            log_end_offset=0,
        )
