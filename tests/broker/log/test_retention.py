"""What retention deletes, what it keeps, and that offsets never go back."""

import errno
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest

from broker.errors import LogStorageError
from broker.log.config import LogConfig
from broker.log.disk import OS_DISK, Disk
from broker.log.partition_log import PartitionLog
from tests.broker.clock import ManualClock
from tests.broker.log.support import NOW_MS, FaultyDisk, batch_of, records_in

pytestmark = pytest.mark.usefixtures("closed_logs")
KEEP = LogConfig(segment_bytes=500, retention_ms=-1)


class LateDisk(FaultyDisk):
    """Late fsyncs wait for `sync`; from then on they are done at once."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Future[None]] = []
        self.is_quick = False

    def fsync_later(self, paths: list[Path]) -> "Future[None]":
        asked: Future[None] = Future()
        if self.is_quick:
            asked.set_result(None)
        else:
            self.waiting.append(asked)
        return asked

    def sync(self) -> None:
        self.is_quick = True
        for asked in self.waiting:
            if not asked.done():
                asked.set_result(None)


def filled(directory: Path, clock: ManualClock, config: LogConfig = KEEP, disk: Disk = OS_DISK) -> PartitionLog:
    """20 batches of 1 record, a second apart, the first at NOW_MS."""
    log = PartitionLog.open(directory, config, clock, disk)
    for number in range(20):
        log.append(batch_of(b"x" * 100, timestamps=[NOW_MS + number * 1000]), leader_epoch=0)
    return log


def test_by_time_goes_what_is_wholly_too_old(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    log = filled(tmp_path, clock)
    log.update_config(replace(KEEP, retention_ms=15_000))
    clock.advance(25_000)
    assert log.enforce_retention() > 0
    kept = records_in(log)
    assert kept[0].offset == log.log_start_offset
    assert any(record.timestamp >= NOW_MS + 10_000 for record in kept[:4]), "the oldest segment has a live record"
    assert [record.offset for record in kept] == list(range(log.log_start_offset, 20))


def test_when_everything_is_too_old_offsets_go_on(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    log = filled(tmp_path, clock)
    log.update_config(replace(KEEP, retention_ms=1))
    clock.advance(100_000)
    log.enforce_retention()
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (20, 20, 0)
    assert log.enforce_retention() == 0
    again = PartitionLog.open(tmp_path, KEEP, clock)
    assert again.append(batch_of(b"next"), leader_epoch=0).base_offset == 20


def test_by_size_the_newest_stay(tmp_path: Path) -> None:
    log = filled(tmp_path, ManualClock(NOW_MS))
    log.update_config(replace(KEEP, retention_bytes=1200))
    log.enforce_retention()
    assert 1200 <= log.size_bytes < 1200 + 500
    assert records_in(log)[-1].offset == 19


def test_without_the_delete_policy_time_and_size_delete_nothing(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    log = filled(tmp_path, clock)
    compacted = frozenset({"compact"})
    log.update_config(replace(KEEP, retention_ms=1, retention_bytes=1, cleanup_policy=compacted))
    clock.advance(100_000)
    assert log.enforce_retention() == 0
    assert log.delete_records_before(10) == 10
    assert records_in(log)[0].offset == 10


def test_nothing_above_the_high_watermark_goes(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    log = filled(tmp_path, clock)
    log.high_watermark = 5
    log.update_config(replace(KEEP, retention_ms=1))
    clock.advance(100_000)
    log.enforce_retention()
    assert log.log_start_offset <= 5
    assert log.log_end_offset == 20


def test_deleted_records_stay_deleted_after_a_crash(tmp_path: Path) -> None:
    log = filled(tmp_path, ManualClock(NOW_MS))
    segments = len(list(tmp_path.glob("*.log")))
    assert log.delete_records_before(11) == 11
    assert log.delete_records_before(3) == 11
    assert len(list(tmp_path.glob("*.log"))) < segments
    again = PartitionLog.open(tmp_path, KEEP, ManualClock(NOW_MS))
    assert again.log_start_offset == 11
    assert [record.offset for record in records_in(again)] == list(range(11, 20))


def test_deleting_records_is_not_yet_retention_by_time_or_size(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    log = filled(tmp_path, clock)
    log.update_config(replace(KEEP, retention_ms=1, retention_bytes=1))
    clock.advance(100_000)
    assert log.delete_records_before(7) == 7
    assert [record.offset for record in records_in(log)] == list(range(7, 20))
    assert log.enforce_retention() > 0
    assert log.log_start_offset == 20


def test_a_log_whose_files_end_before_its_start_goes_on_at_its_start(tmp_path: Path) -> None:
    log = filled(tmp_path, ManualClock(NOW_MS))
    log.delete_records_before(20)
    for path in tmp_path.glob("*.log"):
        path.write_bytes(b"")
    again = PartitionLog.open(tmp_path, KEEP, ManualClock(NOW_MS))
    assert (again.log_start_offset, again.log_end_offset) == (20, 20)


def test_a_segment_is_closed_after_the_time_its_records_span(tmp_path: Path) -> None:
    filled(tmp_path, ManualClock(NOW_MS), LogConfig(segment_ms=4_500, retention_ms=-1))
    assert [int(path.name[:20]) for path in sorted(tmp_path.glob("*.log"))] == [0, 5, 10, 15]


@pytest.mark.parametrize("age_ms", [25_000, 100_000], ids=["some", "all"])
def test_a_full_disk_does_not_keep_retention_from_making_room(tmp_path: Path, age_ms: int) -> None:
    """Where a segment has just become durable there is a checkpoint to be written, which does not fit."""
    clock, disk = ManualClock(NOW_MS), LateDisk()
    log = filled(tmp_path, clock, disk=disk)
    log.update_config(replace(KEEP, retention_ms=15_000))
    clock.advance(age_ms)
    disk.sync()
    disk.room_bytes = 0
    files = len(list(tmp_path.glob("*.log")))
    with pytest.raises(LogStorageError):
        log.enforce_retention()
    assert log.log_start_offset > 0
    assert len(list(tmp_path.glob("*.log"))) < files
    disk.room_bytes = None
    log.enforce_retention()
    kept = records_in(log)
    again = PartitionLog.open(tmp_path, KEEP, clock)
    assert (again.log_start_offset, records_in(again)) == (log.log_start_offset, kept)


def test_a_segment_that_could_not_be_made_durable_is_not_kept_for_ever(tmp_path: Path) -> None:
    clock, disk = ManualClock(NOW_MS), LateDisk()
    log = filled(tmp_path, clock, disk=disk)
    log.update_config(replace(KEEP, retention_ms=15_000))
    clock.advance(25_000)
    disk.waiting[0].set_exception(OSError(errno.EIO, "the disk lost it"))
    disk.sync()
    assert log.enforce_retention() > 0
    assert records_in(log)[0].offset == log.log_start_offset > 0
