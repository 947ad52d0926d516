"""What a crash may leave behind, and what must be there after it."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from broker.errors import LogDamaged
from broker.log.config import LogConfig
from broker.log.partition_log import PartitionLog
from tests.broker.clock import ManualClock
from tests.broker.log.support import UnsyncedDisk, batch_of, max_timestamp, records_in

CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=300)

APPENDER = """
import sys
from pathlib import Path
from broker.base.clock import SystemClock
from broker.log.config import LogConfig
from broker.log.partition_log import PartitionLog
from broker.wire.records import Record, encode_batch

log = PartitionLog.open(Path(sys.argv[1]), LogConfig(segment_bytes=200_000), SystemClock())
number = log.log_end_offset
while True:
    records = [Record(i, 1_700_000_000_000, b"k", b"%d" % (number + i)) for i in range(10)]
    batch = encode_batch(records, producer_id=7, producer_epoch=0, base_sequence=number)
    result = log.append(batch, leader_epoch=0)
    number += 10
    sys.stdout.write(f"{result.last_offset}\\n")
    sys.stdout.flush()
"""


def filled(directory: Path, batches: int, config: LogConfig = CONFIG) -> PartitionLog:
    log = PartitionLog.open(directory, config, ManualClock())
    for number in range(batches):
        log.append(batch_of(b"%d" % number, b"y" * 100), leader_epoch=3)
    return log


def newest_segment(directory: Path) -> Path:
    return max(directory.glob("*.log"))


def test_kill_9_loses_no_acknowledged_batch(tmp_path: Path) -> None:
    directory = tmp_path / "topic-0"
    acked = -1
    for _ in range(4):
        process = subprocess.Popen([sys.executable, "-c", APPENDER, str(directory)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for _ in range(400):
            acked = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
        rest = process.stdout.read().splitlines()
        process.wait()
        process.stdout.close()
        acked = max([acked, *(int(line) for line in rest[:-1] if line)])
        log = PartitionLog.open(directory, LogConfig(segment_bytes=200_000), ManualClock())
        assert log.log_end_offset > acked
        values = [record.value for record in records_in(log)]
        assert values == [b"%d" % number for number in range(log.log_end_offset)]
        state = log.producer(7)
        assert state is not None
        assert state.last_sequence == log.log_end_offset - 1
    assert len(list(directory.glob("*.log"))) > 1


@pytest.mark.parametrize("cut", [1, 30, 60, 61, 100])
def test_a_torn_last_batch_is_cut_off(tmp_path: Path, cut: int) -> None:
    log = filled(tmp_path, 40)
    before = records_in(log)
    path = newest_segment(tmp_path)
    os.truncate(path, path.stat().st_size - cut)

    recovered = PartitionLog.open(tmp_path, CONFIG, ManualClock())

    assert records_in(recovered) == before[:-2]
    assert recovered.append(batch_of(b"next"), leader_epoch=3).base_offset == 78


def test_garbage_after_the_last_batch_is_cut_off(tmp_path: Path) -> None:
    before = records_in(filled(tmp_path, 40))
    with newest_segment(tmp_path).open("ab") as file:
        file.write(b"\xff" * 200)
    assert records_in(PartitionLog.open(tmp_path, CONFIG, ManualClock())) == before


def test_the_log_ends_before_a_changed_byte_in_the_tail(tmp_path: Path) -> None:
    log = filled(tmp_path, 40)
    before = records_in(log)
    path = newest_segment(tmp_path)
    first = int(path.name[:20])
    data = bytearray(path.read_bytes())
    data[80] ^= 1
    path.write_bytes(data)

    recovered = PartitionLog.open(tmp_path, CONFIG, ManualClock())

    assert recovered.log_end_offset == first
    assert records_in(recovered) == [record for record in before if record.offset < first]


def test_what_follows_damage_above_the_recovery_point_goes(tmp_path: Path) -> None:
    log = PartitionLog.open(tmp_path, CONFIG, ManualClock(), UnsyncedDisk())
    for number in range(40):
        log.append(batch_of(b"%d" % number, b"y" * 100), leader_epoch=3)
    bases = sorted(tmp_path.glob("*.log"))
    data = bytearray(bases[1].read_bytes())
    data[-1] ^= 1
    bases[1].write_bytes(data)

    recovered = PartitionLog.open(tmp_path, CONFIG, ManualClock())

    assert recovered.log_end_offset < int(bases[2].name[:20])
    assert not bases[2].exists()
    assert [r.offset for r in records_in(recovered)] == list(range(recovered.log_end_offset))


def test_damage_below_the_recovery_point_is_not_hidden(tmp_path: Path) -> None:
    log = filled(tmp_path, 40)
    log.flush()
    oldest = min(tmp_path.glob("*.log"))
    oldest.with_suffix(".index").unlink()
    data = bytearray(oldest.read_bytes())
    data[80] ^= 1
    oldest.write_bytes(data)
    with pytest.raises(LogDamaged):
        PartitionLog.open(tmp_path, CONFIG, ManualClock())
    assert len(list(tmp_path.glob("*.log"))) > 1


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_lost_or_damaged_indexes_are_built_again(tmp_path: Path, suffix: str) -> None:
    log = filled(tmp_path, 40)
    before = records_in(log)
    log.close()
    for number, path in enumerate(sorted(tmp_path.glob(f"*{suffix}"))):
        if number % 2:
            path.unlink()
        else:
            path.write_bytes(b"\xff" * 7)
    recovered = PartitionLog.open(tmp_path, CONFIG, ManualClock())
    assert records_in(recovered) == before
    assert max_timestamp(recovered) == (0, before[0].timestamp)


def test_a_clean_marker_that_tells_of_another_end_is_not_believed(tmp_path: Path) -> None:
    log = filled(tmp_path, 40)
    log.close()
    marker = (tmp_path / "clean-shutdown").read_bytes()
    again = PartitionLog.open(tmp_path, CONFIG, ManualClock())
    again.append(batch_of(b"more"), leader_epoch=3)
    before = records_in(again)
    (tmp_path / "clean-shutdown").write_bytes(marker)
    with newest_segment(tmp_path).open("ab") as file:
        file.write(b"torn")
    assert records_in(PartitionLog.open(tmp_path, CONFIG, ManualClock())) == before


def test_a_log_deleted_and_recreated_is_empty(tmp_path: Path) -> None:
    log = filled(tmp_path / "topic-0", 10)
    shutil.rmtree(log.retire())
    assert list(tmp_path.iterdir()) == []
    assert PartitionLog.open(tmp_path / "topic-0", CONFIG, ManualClock()).log_end_offset == 0


def test_an_empty_log_keeps_its_epoch_to_itself_until_its_first_batch(tmp_path: Path) -> None:
    for epoch in (0, 1):
        log = PartitionLog.open(tmp_path, CONFIG, ManualClock())
        log.begin_leader_epoch(epoch)
        assert log.end_offset_for_epoch(epoch) == (epoch, 0)
        assert not (tmp_path / "leader-epoch-checkpoint").exists()
    log.append(batch_of(b"a"), leader_epoch=1)
    assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == b"0\n1\n1 0\n"
    again = PartitionLog.open(tmp_path, CONFIG, ManualClock())
    again.begin_leader_epoch(2)
    assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == b"0\n2\n1 0\n2 1\n"
    assert again.end_offset_for_epoch(1) == (1, 1)
