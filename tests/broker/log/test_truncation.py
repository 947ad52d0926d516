"""A log that was cut while it was open knows what a start finds in its files."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from broker.errors import LogStorageError
from broker.log.config import LogConfig
from broker.log.guard import may_pass
from broker.log.partition_log import PartitionLog
from tests.broker.clock import ManualClock
from tests.broker.log.failing import FailingDisk
from tests.broker.log.support import NOW_MS, batch_of, max_timestamp, offset_for_timestamp, records_in

CONFIG = LogConfig(segment_bytes=2500, index_interval_bytes=300)
BATCHES = 60


def _filled(path: Path) -> PartitionLog:
    """Two records a batch, their times in no order, of epochs, of a producer, of transactions that are aborted."""
    log = PartitionLog.open(path, CONFIG, ManualClock())
    for number in range(BATCHES):
        times = [NOW_MS + number * 7919 % 1000, NOW_MS + number * 104729 % 1000]
        batch = batch_of(
            *(b"%d" % number, b"y" * 60), timestamps=times, producer_id=7, producer_epoch=0, base_sequence=2 * number
        )
        log.append(batch, leader_epoch=number // 9)
        if number % 8 == 3:
            opens = batch_of(b"t", producer_id=9, producer_epoch=0, base_sequence=number // 8, transactional=True)
            log.append(opens, leader_epoch=number // 9)
        if number % 8 == 6:
            epoch = {"producer_epoch": 0, "coordinator_epoch": 3, "leader_epoch": number // 9}
            log.write_marker(producer_id=9, commit=number % 16 == 6, **epoch)
    return log


def _known(log: PartitionLog) -> dict[str, object]:
    last = log._store.segments[-1]
    end = log.log_end_offset
    return {
        "records": records_in(log),
        "offsets": (log.log_start_offset, end),
        "epochs": log.leader_epochs,
        "segments": [(s.base_offset, s.size_bytes, s.next_offset) for s in log._store.segments],
        "index": (last.offset_index.encode(), last._unindexed_bytes),
        "times": (last.max_timestamp_ms, last.max_timestamp_offset, last.first_timestamp_ms, max_timestamp(log)),
        "lookups": [offset_for_timestamp(log, NOW_MS + after, up_to=end) for after in range(0, 1000, 50)],
        "aborted": log.aborted_transactions(0, end),
        "producers": sorted((p.producer_id, p.transaction_first_offset, *p.batches) for p in log.producers),
        "open": log._store.producers.first_unstable_offset,
    }


@pytest.mark.parametrize("part", range(4))
def test_what_is_left_is_known_as_a_start_finds_it(tmp_path: Path, part: int) -> None:
    end = _filled(tmp_path / "before").log_end_offset
    for offset in range(part, end + 1, 4):
        path = tmp_path / f"{offset}"
        shutil.copytree(tmp_path / "before", path)
        log = PartitionLog.open(path, CONFIG, ManualClock())
        if offset > 50:
            log.delete_records_before(50)
        cut_at = log.truncate_to(offset)
        assert offset - 1 <= cut_at <= offset
        assert _known(log) == _known(PartitionLog.open(path, CONFIG, ManualClock()))
        log.append(batch_of(b"behind the cut", b"z" * 80), leader_epoch=9)
        assert _known(log) == _known(PartitionLog.open(path, CONFIG, ManualClock()))
        shutil.rmtree(path)


def test_of_the_segment_only_what_lies_around_the_cut_is_read(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = PartitionLog.open(tmp_path, LogConfig(), ManualClock(), disk)
    for _ in range(20_000):
        log.append(batch_of(b"v" * 200), leader_epoch=0)
    before = records_in(log, 19_990)
    disk.read_bytes = 0
    disk.failing(None)

    assert log.truncate_to(19_999) == 19_999

    assert disk.read_bytes < 100_000 < log.size_bytes / 50
    assert disk.calls < 20
    assert records_in(log, 19_990) == before[:-1]


@pytest.mark.parametrize(("code", "retriable"), [(errno.ENOSPC, True), (errno.EIO, False)])
def test_a_log_that_ended_half_cut_says_whether_it_may_be_opened_again(
    tmp_path: Path, code: int, *, retriable: bool
) -> None:
    _filled(tmp_path)
    disk = FailingDisk(code)
    log = PartitionLog.open(tmp_path, CONFIG, ManualClock(), disk)
    told: list[bool] = []
    log.damage_listeners.append(lambda damage: told.append(may_pass(damage)))
    fails_at = 0
    while not told:
        fails_at += 1
        disk.failing(fails_at)
        with pytest.raises(LogStorageError):
            log.truncate_to(30)
    assert told == [retriable]
