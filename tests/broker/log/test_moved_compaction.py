"""What a compaction counts on goes or comes back while it runs, or between two of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.errors import LogDamaged, LogStorageError
from broker.log.partition_log import PartitionLog
from tests.broker.clock import ManualClock
from tests.broker.log.support import NOW_MS, batch_of, records_in
from tests.broker.log.test_compaction import CONFIG, latest, put

LATER_MS = 10 * NOW_MS


def _opened(path: Path, now_ms: int = NOW_MS) -> PartitionLog:
    log = PartitionLog.open(path, CONFIG, ManualClock(now_ms))
    log.high_watermark = log.log_end_offset
    return log


def _filled(log: PartitionLog, end_offset: int) -> None:
    number = 0
    while log.log_end_offset < end_offset:
        put(log, b"filler %d" % (number % 3), b"x" * 60)
        number += 1
    log.high_watermark = log.log_end_offset


@pytest.mark.parametrize("restarts", [False, True])
def test_what_was_written_behind_a_cut_was_not_compacted_yet(tmp_path: Path, *, restarts: bool) -> None:
    """Its tombstones would go while what they delete is there."""
    log = _opened(tmp_path)
    put(log, b"k", b"deleted later")
    _filled(log, 60)
    log.flush()
    assert log.compact()
    cleaned_to = log._store.first_dirty_offset
    assert cleaned_to > 40
    log.truncate_to(10)
    put(log, b"k", None)
    _filled(log, cleaned_to + 30)
    if restarts:
        log.close()
        log = _opened(tmp_path, LATER_MS)
    log.compact()
    assert latest(log).get(b"k", (None, None))[1] is None
    log.close()


@pytest.mark.parametrize("what", ["retire", "delete records"])
def test_a_log_that_loses_segments_under_a_compaction_has_no_failed_disk(tmp_path: Path, what: str) -> None:
    """Else its leader would give it up, until the broker is started again."""
    log = _opened(tmp_path / "t-0")
    _filled(log, 60)
    log.flush()
    assert log.compact()
    _filled(log, 100)
    log.flush()
    failures: list[OSError] = []
    damages: list[LogDamaged] = []
    log.failure_listeners.append(failures.append)
    log.damage_listeners.append(damages.append)
    job = log.begin_compaction()
    assert job is not None
    apart = log.reading_apart()
    if what == "retire":
        log.retire()
    else:
        log.delete_records_before(90)
    with pytest.raises(LogStorageError), apart:
        job.run()
    assert (failures, damages) == ([], [])


def test_a_kill_behind_a_compaction_forgets_no_producer(tmp_path: Path) -> None:
    """What it repeats would be taken for news, and come behind what has replaced it."""
    log = _opened(tmp_path)
    batch = batch_of(b"old", keys=[b"filler 1"], producer_id=7, producer_epoch=0, base_sequence=0)
    assert not log.append(bytearray(batch), leader_epoch=0).duplicate
    _filled(log, 60)
    assert log.compact()
    assert all(record.value != b"old" for record in records_in(log))
    assert log.append(bytearray(batch), leader_epoch=0).duplicate
    killed = _opened(tmp_path)
    assert killed.append(bytearray(batch), leader_epoch=0).duplicate
    for one in (log, killed):
        one._store.release()
