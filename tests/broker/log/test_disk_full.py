"""A full disk: the producer is told, nothing half-written stays, and the log goes on once there is room."""

import logging
from pathlib import Path

import pytest

from broker.errors import LogStorageError, OutOfOrderSequence
from broker.log.config import LogConfig
from broker.log.partition_log import PartitionLog
from broker.wire.errors import ErrorCode
from tests.broker.clock import ManualClock
from tests.broker.log.support import FaultyDisk, batch_of, records_in

CONFIG = LogConfig(segment_bytes=1000)


@pytest.mark.parametrize("room_bytes", [0, 1, 61, 150])
def test_a_write_that_does_not_fit_leaves_no_trace(tmp_path: Path, room_bytes: int) -> None:
    disk = FaultyDisk()
    log = PartitionLog.open(tmp_path, CONFIG, ManualClock(), disk)
    log.append(batch_of(b"a" * 100, producer_id=4, producer_epoch=0, base_sequence=0), leader_epoch=0)
    before = records_in(log)
    disk.room_bytes = room_bytes

    with pytest.raises(LogStorageError) as refused:
        log.append(batch_of(b"b" * 100, producer_id=4, producer_epoch=0, base_sequence=1), leader_epoch=0)

    assert refused.value.error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert refused.value.retriable
    assert str(refused.value) == f"{tmp_path}: [Errno 28] No space left on device"
    assert records_in(log) == before
    assert max(tmp_path.glob("*.log")).stat().st_size == log.size_bytes
    disk.room_bytes = None
    retried = batch_of(b"b" * 100, producer_id=4, producer_epoch=0, base_sequence=1)
    assert log.append(retried, leader_epoch=0).base_offset == 1
    assert records_in(PartitionLog.open(tmp_path, CONFIG, ManualClock())) == records_in(log)


def test_a_roll_that_does_not_fit_is_tried_again(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = PartitionLog.open(tmp_path, CONFIG, ManualClock(), disk)
    for _ in range(3):
        log.append(batch_of(b"a" * 200), leader_epoch=0)
    disk.room_bytes = 0
    for _ in range(3):
        with pytest.raises(LogStorageError):
            log.append(batch_of(b"b" * 200), leader_epoch=0)
    disk.room_bytes = None
    for _ in range(6):
        log.append(batch_of(b"c" * 200), leader_epoch=0)
    assert [record.value[:1] for record in records_in(log) if record.value] == [b"a"] * 3 + [b"c"] * 6
    assert records_in(PartitionLog.open(tmp_path, CONFIG, ManualClock())) == records_in(log)


def test_short_writes_are_gone_on_with(tmp_path: Path) -> None:
    class StutteringDisk(FaultyDisk):
        def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
            return super().pwrite(fd, memoryview(data)[:40], position)

    log = PartitionLog.open(tmp_path, CONFIG, ManualClock(), StutteringDisk())
    log.append(batch_of(b"a" * 300, b"b" * 200), leader_epoch=0)
    assert [record.value for record in records_in(log)] == [b"a" * 300, b"b" * 200]


def test_a_full_disk_is_said_once_and_its_end_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = FaultyDisk()
    directory = tmp_path / "flights-3"
    log = PartitionLog.open(directory, CONFIG, ManualClock(), disk)
    for _ in range(2):
        caplog.clear()
        disk.room_bytes = 0
        for _ in range(3):
            with pytest.raises(LogStorageError):
                log.append(batch_of(b"a"), leader_epoch=0)
        (line,) = caplog.records
        assert line.levelno == logging.ERROR
        assert str(directory) in line.getMessage()
        assert "No space left" in line.getMessage()
        assert "partition flights-3" in line.getMessage()
        disk.room_bytes = None
        caplog.clear()
        for _ in range(2):
            log.append(batch_of(b"a"), leader_epoch=0)
        assert [record.getMessage() for record in caplog.records] == [f"{directory}: the disk takes records again"]


def test_what_follows_a_batch_that_did_not_fit_is_to_be_sent_again_as_that_one_is(tmp_path: Path) -> None:
    """Out of sequence, said of a batch whose predecessor is to be sent again, has librdkafka begin a new epoch of the
    producer, and send in it what other partitions took already.
    """
    disk = FaultyDisk()
    log = PartitionLog.open(tmp_path, CONFIG, ManualClock(), disk)

    def sent(sequence: int, value: bytes = b"a", epoch: int = 0) -> int:
        batch = batch_of(value, producer_id=4, producer_epoch=epoch, base_sequence=sequence)
        return log.append(batch, leader_epoch=0).base_offset

    sent(0)
    disk.room_bytes = 100
    with pytest.raises(LogStorageError):
        sent(1, b"large" * 100)
    disk.room_bytes = None
    log.append(batch_of(b"of somebody else"), leader_epoch=0)
    with pytest.raises(LogStorageError) as refused:
        sent(2)
    assert refused.value.retriable
    assert [sent(1, b"large" * 100), sent(2)] == [2, 3]
    with pytest.raises(OutOfOrderSequence):
        sent(4)

    disk.room_bytes = 0
    with pytest.raises(LogStorageError):
        sent(3)
    disk.room_bytes = None
    assert sent(0, epoch=1) == 4, "a producer that gave up begins anew"
    with pytest.raises(OutOfOrderSequence):
        sent(2, epoch=1)
