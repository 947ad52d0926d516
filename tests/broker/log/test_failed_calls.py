"""The disk refuses a call in the middle of an operation: the log is whole or has ended, and others are not touched."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from broker.errors import LogDamaged, LogStorageError
from broker.log.partition_log import PartitionLog
from broker.wire.records import Record
from tests.broker.clock import ManualClock
from tests.broker.log.failing import FailingDisk
from tests.broker.log.support import batch_of, records_in
from tests.broker.log.test_replicated import CONFIG, fetched, leader_log, whole

Change = Callable[[PartitionLog, PartitionLog], object]
END: Final = 78


def _produce(log: PartitionLog, _: PartitionLog) -> None:
    while (end := log.log_end_offset) < 110:
        log.append(batch_of(b"p%d" % end, b"z" * (40 + end % 7)), leader_epoch=9)


def _append(log: PartitionLog, leader: PartitionLog) -> None:
    while (end := log.log_end_offset) < leader.log_end_offset:
        log.append_as_follower(fetched(leader, end, 4000), leader_epoch=9)


def _retain_nothing(log: PartitionLog, _: PartitionLog) -> None:
    log.update_config(replace(CONFIG, retention_bytes=0))
    log.enforce_retention()


def _truncate_all_that_is_read(log: PartitionLog, _: PartitionLog) -> None:
    """The log starts in the middle of a batch."""
    log.delete_records_before(40)
    assert log.truncate_to(40) == 40


CHANGES: Final[dict[str, Change]] = {
    "produce": _produce,
    "lead": lambda log, _: log.begin_leader_epoch(9),
    "append": _append,
    "truncate": lambda log, _: log.truncate_to(9),
    "truncate all": lambda log, _: log.truncate_to(0),
    "truncate to a segment": lambda log, _: log.truncate_to(log._store.segments[-1].base_offset),
    "truncate within a segment": lambda log, _: log.truncate_to(END - 3),
    "truncate all that is read": _truncate_all_that_is_read,
    "start anew above": lambda log, _: log.start_anew(900),
    "start anew below": lambda log, _: log.start_anew(0),
    "delete records": lambda log, _: log.delete_records_before(55),
    "follow the log start": lambda log, _: log.follow_log_start(41),
    "retain nothing": _retain_nothing,
    "flush": lambda log, _: log.flush(),
    "close": lambda log, _: log.close(),
}


class _Others:
    """Other logs of the process: one that was open before, and more that take the descriptors that were let go of."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._logs = [self._another(0)]
        self._were: list[bytes] = []

    def _another(self, number: int) -> PartitionLog:
        log = PartitionLog.open(self._path / f"other-{number}", CONFIG, ManualClock())
        for count in range(6):
            log.append(batch_of(b"acknowledged %d by %d" % (count, number), b"o" * 70), leader_epoch=0)
        return log

    def open_more(self) -> None:
        self._logs += [self._another(number) for number in range(1, 4)]
        self._were = [whole(log) for log in self._logs]

    def check(self) -> None:
        for log, was in zip(self._logs, self._were, strict=True):
            assert whole(log) == was, "another log was written to"
            assert whole(PartitionLog.open(log.directory, CONFIG, ManualClock())) == was
            log.close()


def _opened(path: Path, disk: FailingDisk) -> PartitionLog:
    log = PartitionLog.open(path, CONFIG, ManualClock(), disk)
    log.high_watermark = log.log_end_offset
    return log


def _in_order(log: PartitionLog) -> dict[int, Record]:
    return {record.offset: record for record in records_in(log)}


class _Case:
    """One log before a change, and what it is after it."""

    def __init__(self, path: Path, change: str) -> None:
        self.path = path
        self._logs: list[PartitionLog] = []
        self.change = CHANGES[change]
        self.leader = leader_log(path / "leader", 60)
        log = PartitionLog.open(path / "before", CONFIG, ManualClock())
        while log.log_end_offset < END:
            log.append_as_follower(fetched(self.leader, log.log_end_offset, 1), leader_epoch=9)
        shutil.copytree(path / "before", path / "after")
        after = _opened(path / "after", FailingDisk())
        self.change(after, self.leader)
        after = PartitionLog.open(path / "after", CONFIG, ManualClock())
        self.after = _in_order(after)
        self.starts = (log.log_start_offset, after.log_start_offset)
        # Where it is to begin anew, what there is goes from its end on.
        self.ends = (log.log_end_offset, after.log_end_offset, *((0,) if change.startswith("start anew") else ()))
        self.truth = _in_order(log) | self.after

    def check_whole(self, log: PartitionLog) -> None:
        """It begins and ends where it did, where it is to, or between; and has all that is there."""
        start, end = log.log_start_offset, log.log_end_offset
        assert min(self.starts) <= start <= max(self.starts)
        assert min(self.ends) <= end <= max(self.ends)
        assert _in_order(log) == {o: record for o, record in self.truth.items() if start <= o < end}

    def check_again(self, log: PartitionLog) -> None:
        """What failed is done now, and a start finds what was there and what was appended then."""
        self.change(log, self.leader)
        if log._store.closed:
            log = self._open(log.directory)
        assert _in_order(log) == self.after
        log.begin_leader_epoch(10)
        log.append(batch_of(b"led again", b"z" * 99), leader_epoch=10)
        again = self._open(log.directory)
        assert (whole(again), again.leader_epochs) == (whole(log), log.leader_epochs)

    def _open(self, path: Path, disk: FailingDisk | None = None) -> PartitionLog:
        log = _opened(path, disk or FailingDisk())
        self._logs.append(log)
        return log

    def _close(self) -> None:
        """What was logged of a failure holds its frames, and they the log, until the test is over."""
        while self._logs:
            self._logs.pop()._store.release()

    def fail(self, fails_at: int, *, for_good: bool) -> tuple[bool, bool, bool]:
        """Whether the call was reached, was told of, and ended the log."""
        path = self.path / f"failed-{fails_at}"
        shutil.copytree(self.path / "before", path)
        disk = FailingDisk()
        log = self._open(path, disk)
        others = _Others(self.path / f"others-{fails_at}")
        damages: list[LogDamaged] = []
        log.damage_listeners.append(damages.append)
        disk.failing(fails_at, for_good=for_good)
        told = False
        try:
            self.change(log, self.leader)
        except LogStorageError:
            told = True
        reached = disk.calls >= fails_at
        disk.failing(None)
        others.open_more()
        if damages or log._store.closed:
            with pytest.raises(LogStorageError):
                log.append(batch_of(b"never"), leader_epoch=10)
            for segment in log._store.segments:
                with pytest.raises(OSError, match="closed"):
                    segment.pread(0, 1)
        if damages or log._store.closed or disk.unsynced:
            log = self._open(path, disk)
        self.check_whole(log)
        self.check_again(log)
        others.check()
        self._close()
        shutil.rmtree(path)
        return reached, told, bool(damages)


@pytest.mark.parametrize("for_good", [False, True], ids=["one", "and all after it"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_call_that_fails_leaves_the_log_whole_or_ends_it(tmp_path: Path, change: str, *, for_good: bool) -> None:
    case = _Case(tmp_path, change)
    found: list[tuple[bool, bool, bool]] = []
    fails_at = 0
    while not found or found[-1][0]:
        fails_at += 1
        found.append(case.fail(fails_at, for_good=for_good))
    assert any(told for _, told, _ in found)
    if any(ended for _, _, ended in found):
        assert change.startswith(("truncate", "start", "produce", "append", "retain"))
