"""Reading by offset, by time and by leader epoch."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import OffsetOutOfRange
from broker.log.config import LogConfig
from broker.log.disk import OsDisk
from broker.log.epochs import LeaderEpochs
from broker.log.partition_log import AppendOrigin, PartitionLog
from broker.wire.batch import HEADER_BYTES, iter_batches, renew_crc
from tests.broker.clock import ManualClock
from tests.broker.log.support import NOW_MS, batch_of, max_timestamp, offset_for_timestamp

pytestmark = pytest.mark.usefixtures("closed_logs")
CONFIG = LogConfig(segment_bytes=800, index_interval_bytes=150, retention_ms=-1)


@settings(max_examples=60)
@given(
    batches=st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=4), min_size=1, max_size=40),
    wanted=st.lists(st.integers(0, 61), min_size=1, max_size=5),
    start=st.integers(0, 20),
    reopen=st.booleans(),
)
def test_a_time_finds_the_first_record_at_or_after_it(
    batches: list[list[int]], wanted: list[int], start: int, reopen: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = PartitionLog.open(Path(folder), CONFIG, ManualClock(NOW_MS))
        for times in batches:
            log.append(batch_of(*[b"v"] * len(times), timestamps=times), leader_epoch=0)
        start = log.delete_records_before(min(start, log.log_end_offset))
        if reopen:
            log.close()
            log = PartitionLog.open(Path(folder), CONFIG, ManualClock(NOW_MS))
        times = [time for batch in batches for time in batch]
        live = list(enumerate(times))[start:]
        for timestamp_ms in wanted:
            for up_to in (log.log_end_offset, log.log_end_offset // 2):
                expected = next((pair for pair in live if pair[1] >= timestamp_ms), None)
                if expected is not None and expected[0] >= up_to:
                    expected = None
                assert offset_for_timestamp(log, timestamp_ms, up_to=up_to) == expected
        largest = max(live, key=lambda pair: (pair[1], -pair[0]), default=None)
        assert max_timestamp(log) == largest
        log.close()


def test_the_log_start_inside_of_a_batch_hides_its_largest_timestamp(tmp_path: Path) -> None:
    log = PartitionLog.open(tmp_path, CONFIG, ManualClock(NOW_MS))
    log.append(batch_of(b"a", b"b", timestamps=[9, 1]), leader_epoch=0)
    log.append(batch_of(b"c", timestamps=[5]), leader_epoch=0)
    log.delete_records_before(1)
    assert max_timestamp(log) == (2, 5)


def test_a_batch_whose_records_cannot_be_read_is_found_whole(tmp_path: Path) -> None:
    log = PartitionLog.open(tmp_path, CONFIG, ManualClock(NOW_MS))
    unreadable = batch_of(b"a", b"b", timestamps=[5, 6])
    unreadable[HEADER_BYTES:] = b"\xff" * (len(unreadable) - HEADER_BYTES)
    renew_crc(unreadable)
    # As a client cannot any more, and as earlier versions took it in.
    log.append(unreadable, leader_epoch=0, origin=AppendOrigin.COORDINATOR)
    log.append(batch_of(b"c", timestamps=[9]), leader_epoch=0)
    assert offset_for_timestamp(log, 5, up_to=3) == (0, 6)
    assert offset_for_timestamp(log, 7, up_to=3) == (2, 9)


def filled(directory: Path, batches: int = 30) -> PartitionLog:
    log = PartitionLog.open(directory, CONFIG, ManualClock(NOW_MS))
    for number in range(batches):
        log.append(batch_of(b"%d" % number, b"z" * 40), leader_epoch=number // 10)
    return log


def test_the_first_batch_contains_the_offset(tmp_path: Path) -> None:
    log = filled(tmp_path)
    for offset in range(log.log_end_offset):
        part = log.read(offset, 300, up_to=log.log_end_offset, at_least_one=True)
        header, _ = next(iter_batches(part.records[0]))
        assert header.base_offset <= offset <= header.last_offset


def test_one_batch_comes_whatever_its_size(tmp_path: Path) -> None:
    log = filled(tmp_path)
    part = log.read(3, 1, up_to=log.log_end_offset, at_least_one=True)
    assert [header.base_offset for header, _ in iter_batches(part.records[0])] == [2]
    assert part.next_offset == 4
    assert log.read(3, 1, up_to=log.log_end_offset, at_least_one=False).records == []


def test_an_answer_that_is_full_reads_no_further(tmp_path: Path) -> None:
    class Counted(OsDisk):
        reads = 0

        def pread(self, fd: int, size_bytes: int, offset: int) -> bytes:
            self.reads += 1
            return super().pread(fd, size_bytes, offset)

    disk = Counted()
    filled(tmp_path).close()
    log = PartitionLog.open(tmp_path, CONFIG, ManualClock(NOW_MS), disk)
    first, second = sorted(tmp_path.glob("*.log"))[:2]
    disk.reads = 0
    part = log.read(0, first.stat().st_size, up_to=log.log_end_offset, at_least_one=True)
    assert (part.next_offset, disk.reads) == (int(second.stem), 1)


def test_nothing_at_or_beyond_the_bound(tmp_path: Path) -> None:
    log = filled(tmp_path)
    for bound in range(0, log.log_end_offset + 1, 2):
        part = log.read(0, 1 << 20, up_to=bound, at_least_one=True)
        bases = [header.base_offset for buffer in part.records for header, _ in iter_batches(buffer)]
        assert bases == list(range(0, bound, 2))
        assert part.next_offset == bound
    log.high_watermark = 10
    assert (log.high_watermark, log.last_stable_offset) == (10, 10)


def test_offsets_outside_are_refused(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.delete_records_before(7)
    end = log.log_end_offset
    assert log.read(end, 100, up_to=end, at_least_one=True).records == []
    for offset in (6, -1, end + 1):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, 100, up_to=end, at_least_one=True)
    with pytest.raises(OffsetOutOfRange):
        log.delete_records_before(end + 1)


@pytest.mark.parametrize("clean", [True, False])
def test_where_a_leader_epoch_ends(tmp_path: Path, clean: bool) -> None:
    log = filled(tmp_path)
    log.begin_leader_epoch(7)
    assert log.end_offset_for_epoch(7) == (7, 60)
    if clean:
        log.close()
    log = PartitionLog.open(tmp_path, CONFIG, ManualClock(NOW_MS))
    assert [log.end_offset_for_epoch(epoch) for epoch in (0, 1, 2)] == [(0, 20), (1, 40), (2, 60)]
    assert log.end_offset_for_epoch(9) == (-1, -1)
    log.append(batch_of(b"v"), leader_epoch=8)
    assert [log.end_offset_for_epoch(epoch) for epoch in (2, 5, 8)] == [(2, 60), (2, 60), (8, 61)]


@pytest.mark.parametrize("damage", [b"", b"0\n9\n1 1\n", None])
def test_epochs_are_read_from_the_batches_when_their_checkpoint_is_gone(tmp_path: Path, damage: bytes | None) -> None:
    filled(tmp_path).close()
    path = tmp_path / "leader-epoch-checkpoint"
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage)
    log = PartitionLog.open(tmp_path, CONFIG, ManualClock(NOW_MS))
    assert [log.end_offset_for_epoch(epoch) for epoch in (0, 1, 2)] == [(0, 20), (1, 40), (2, 60)]


def test_epochs_follow_both_ends_of_the_log() -> None:
    epochs = LeaderEpochs()
    for epoch, start in ((1, 0), (2, 10), (4, 10), (5, 30)):
        assert epochs.assign(epoch, start)
    assert not epochs.assign(4, 40)
    assert epochs.entries == ((1, 0), (4, 10), (5, 30))
    assert epochs.end_offset_for(0, 50) == (0, 0)
    assert epochs.end_offset_for(3, 50) == (1, 10)
    assert epochs.truncate_from_start(15)
    assert list(epochs.entries) == [(4, 15), (5, 30)]
    assert epochs.truncate_from_end(30)
    assert list(epochs.entries) == [(4, 15)]
    assert LeaderEpochs.parse(epochs.text()).entries == epochs.entries
