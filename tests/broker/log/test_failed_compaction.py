"""The disk refuses a call amid a compaction: no key is lost or comes twice, now or after a restart, nor comes back."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from broker.errors import LogDamaged, LogStorageError
from broker.log.disk import OS_DISK
from broker.log.partition_log import PartitionLog
from tests.broker.clock import ManualClock
from tests.broker.log.failing import FailingDisk
from tests.broker.log.support import NOW_MS, batch_of, records_in
from tests.broker.log.test_compaction import CONFIG, latest, put


def _opened(path: Path, disk: FailingDisk | None = None) -> PartitionLog:
    """With room for several of its segments in one."""
    log = PartitionLog.open(path, replace(CONFIG, segment_bytes=1200), ManualClock(NOW_MS), disk or OS_DISK)
    log.high_watermark = log.log_end_offset
    return log


def _left_over(path: Path) -> list[str]:
    return [one.name for one in path.iterdir() if one.name.endswith((".cleaned", ".swap", ".tmp"))]


class _Case:
    """A log of many segments, which a pass makes into a few, in several groups."""

    def __init__(self, path: Path) -> None:
        self.path = path
        log = PartitionLog.open(path / "before", replace(CONFIG, segment_bytes=300), ManualClock(NOW_MS))
        for number in range(10):
            put(log, b"a", b"%d" % number, b"x" * 20)
            put(log, b"key %d" % number, b"y" * 40)
        log.flush()
        self.before, self.end = records_in(log), log.log_end_offset
        self.latest = latest(log)
        shutil.copytree(path / "before", path / "after")
        after = _opened(path / "after")
        assert after.compact()
        self.after = records_in(after)
        assert len(self.after) < len(self.before)

    def check(self, log: PartitionLog) -> None:
        found = records_in(log)
        offsets = [record.offset for record in found]
        assert offsets == sorted(set(offsets))
        assert [record for record in self.before if record.offset in set(offsets)] == found
        assert (latest(log), log.log_start_offset, log.log_end_offset) == (self.latest, 0, self.end)

    def fail(self, fails_at: int, *, for_good: bool) -> tuple[bool, bool, bool]:
        """Whether the call was reached, was told of, and ended the log."""
        path = self.path / f"failed-{fails_at}"
        shutil.copytree(self.path / "before", path)
        disk = FailingDisk()
        log = _opened(path, disk)
        damages: list[LogDamaged] = []
        log.damage_listeners.append(damages.append)
        disk.failing(fails_at, for_good=for_good)
        told = False
        try:
            log.compact()
        except LogStorageError:
            told = True
        reached = disk.calls >= fails_at
        disk.failing(None)
        if damages:
            assert log._store.closed
            with pytest.raises(LogStorageError):
                log.append(batch_of(b"never"), leader_epoch=0)
            log = _opened(path)
        self.check(log)
        crashed = self.path / f"crashed-{fails_at}"
        shutil.copytree(path, crashed)
        again = _opened(crashed)
        self.check(again)
        self._goes_on(log)
        for one in (log, again):
            one._store.release()
        shutil.rmtree(path)
        shutil.rmtree(crashed)
        return reached, told, bool(damages)

    def _goes_on(self, log: PartitionLog) -> None:
        """The pass that failed is done now."""
        log.compact()
        assert records_in(log) == self.after
        again = _opened(log.directory)
        assert records_in(again) == self.after
        assert _left_over(log.directory) == []
        again._store.release()


@pytest.mark.parametrize("for_good", [False, True], ids=["one", "and all after it"])
def test_a_call_that_fails_amid_a_compaction_loses_no_key(tmp_path: Path, *, for_good: bool) -> None:
    case = _Case(tmp_path)
    found: list[tuple[bool, bool, bool]] = []
    while not found or found[-1][0]:
        found.append(case.fail(len(found) + 1, for_good=for_good))
    assert any(told and not ended for _, told, ended in found)
    assert any(ended for _, _, ended in found)


@pytest.mark.parametrize("what", ["truncate", "start anew", "delete records"])
def test_what_is_removed_after_a_failed_compaction_stays_removed(tmp_path: Path, what: str) -> None:
    case = _Case(tmp_path)
    fails_at, reached = 0, True
    while reached:
        fails_at += 1
        path = tmp_path / f"failed-{fails_at}"
        shutil.copytree(tmp_path / "before", path)
        disk = FailingDisk()
        log = _opened(path, disk)
        disk.failing(fails_at)
        try:
            log.compact()
        except LogStorageError:
            if log._store.closed:
                log = _opened(path)
        reached = disk.calls >= fails_at
        disk.failing(None)
        if what == "truncate":
            log.truncate_to(case.end - 5)
        elif what == "start anew":
            log.start_anew(7)
        else:
            log.delete_records_before(case.end - 4)
        put(log, b"later", b"z")
        again = _opened(path)
        assert records_in(again) == records_in(log)
        assert (again.log_start_offset, again.log_end_offset) == (log.log_start_offset, log.log_end_offset)
        for one in (log, again):
            one._store.release()
        shutil.rmtree(path)
