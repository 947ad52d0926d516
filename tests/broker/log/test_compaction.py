"""Compaction keeps the last record of each key, at its offset, whatever crashes in between."""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.log import compaction
from broker.log.config import LogConfig
from broker.log.disk import OsDisk
from broker.log.partition_log import PartitionLog
from broker.wire.batch import iter_batches, verify_crc
from broker.wire.compression import Compression
from broker.wire.records import Record, encode_batch
from tests.broker.clock import ManualClock
from tests.broker.log.crashing import Crashed, CrashingDisk
from tests.broker.log.support import NOW_MS, batch_of, records_in

COMPACTED = frozenset({"compact"})
CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=150, cleanup_policy=COMPACTED, min_cleanable_dirty_ratio=0.0)
FEW = 9
"""Rounds of records in some six segments: there are a dozen places per segment to crash at."""
LONG_KEY = b"a key longer than what is kept of it"


def put(log: PartitionLog, key: bytes, *values: bytes | None, compression: Compression = Compression.NONE) -> int:
    """One batch of one key; the offset of its first record. None is a tombstone."""
    records = [Record(i, NOW_MS, key, value) for i, value in enumerate(values)]
    batch = encode_batch(records, compression=compression)
    return log.append(batch, leader_epoch=0).base_offset


def filled(
    directory: Path, disk: OsDisk | None = None, compression: Compression = Compression.NONE, rounds: int = 24
) -> PartitionLog:
    log = PartitionLog.open(directory, CONFIG, ManualClock(NOW_MS), disk or OsDisk())
    for number in range(rounds):
        for key in (b"a", b"b", LONG_KEY):
            put(log, key, b"%d" % number, b"x" * 20 + b"%d" % number, compression=compression)
    put(log, b"once", b"only")
    return log


def latest(log: PartitionLog) -> dict[bytes | None, tuple[int, bytes | None]]:
    return {record.key: (record.offset, record.value) for record in records_in(log)}


@pytest.mark.parametrize("compression", list(Compression))
def test_the_last_record_of_each_key_stays_at_its_offset(tmp_path: Path, compression: Compression) -> None:
    log = filled(tmp_path, compression=compression)
    before, end, size_bytes = latest(log), log.log_end_offset, log.size_bytes
    active = int(max(tmp_path.glob("*.log")).name[:20])

    assert log.compact()

    assert latest(log) == before
    assert (log.log_end_offset, log.log_start_offset) == (end, 0)
    assert log.size_bytes < size_bytes / 3
    compacted = [record for record in records_in(log) if record.offset < active]
    assert len({record.key for record in compacted}) == len(compacted)
    for buffer in log.read(0, 1 << 20, up_to=end, at_least_one=True).records:
        for _, batch in iter_batches(buffer, strict=True):
            verify_crc(batch)
    assert not log.compact(), "nothing is dirty any more"
    assert put(log, b"a", b"more") == end


@pytest.mark.parametrize("clean", [True, False])
def test_a_compacted_log_opens_again(tmp_path: Path, clean: bool) -> None:
    log = filled(tmp_path)
    log.compact()
    before = records_in(log)
    if clean:
        log.close()
    again = PartitionLog.open(tmp_path, CONFIG, ManualClock(NOW_MS))
    assert records_in(again) == before
    assert not again.compact()
    for offset in range(again.log_end_offset):
        assert records_in(again, offset) == [record for record in before if record.offset >= offset]


def test_small_segments_become_one(tmp_path: Path) -> None:
    log = filled(tmp_path)
    segments = len(list(tmp_path.glob("*.log")))
    log.update_config(replace(CONFIG, segment_bytes=100_000))
    log.compact()
    assert len(list(tmp_path.glob("*.log"))) < segments / 3


def test_it_waits_until_enough_is_dirty_and_stable(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.update_config(replace(CONFIG, cleanup_policy=frozenset({"delete"}), retention_ms=-1))
    assert not log.compact()
    log.update_config(replace(CONFIG, min_compaction_lag_ms=1000))
    assert not log.compact(), "all records are of this second"
    log.update_config(CONFIG)
    log.high_watermark = 1
    assert not log.compact()
    log.high_watermark = log.log_end_offset
    assert log.compact()
    log.update_config(replace(CONFIG, min_cleanable_dirty_ratio=0.99))
    for number in range(6):
        put(log, b"a", b"again%d" % number, b"y" * 100)
    assert not log.compact()


def test_a_tombstone_goes_after_delete_retention_ms(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    config = replace(CONFIG, delete_retention_ms=10_000)
    log = PartitionLog.open(tmp_path, config, clock)

    def fill() -> None:
        for number in range(8):
            put(log, b"a", b"%d" % number, b"x" * 100)

    put(log, b"gone", b"value")
    put(log, b"gone", None)
    fill()
    assert log.compact()
    assert latest(log)[b"gone"] == (1, None)
    clock.advance(10_000)
    fill()
    assert log.compact()
    assert b"gone" in latest(log), "ten seconds are not over"
    clock.advance(1)
    fill()
    assert log.compact()
    assert b"gone" not in latest(log)


def test_aborted_records_go_and_their_markers_stay_as_long_as_readers_need_them(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    log = PartitionLog.open(tmp_path, replace(CONFIG, delete_retention_ms=10_000), clock)

    def transact(value: bytes, sequence: int, *, commit: bool) -> int:
        batch = batch_of(
            value, keys=[b"t"], producer_id=5, producer_epoch=0, base_sequence=sequence, transactional=True
        )
        offset = log.append(batch, leader_epoch=0).base_offset
        log.write_marker(producer_id=5, producer_epoch=0, commit=commit, coordinator_epoch=0, leader_epoch=0)
        return offset

    def fill() -> None:
        for number in range(8):
            put(log, b"a", b"%d" % number, b"x" * 100)

    kept = transact(b"committed", 0, commit=True)
    transact(b"aborted", 1, commit=False)
    fill()
    assert log.compact()
    assert latest(log)[b"t"] == (kept, b"committed"), "an aborted record does not hide a committed one"
    assert log.aborted_transactions(0, log.log_end_offset) == [(5, 2)]
    clock.advance(10_001)
    fill()
    assert log.compact()
    assert latest(log)[b"t"] == (kept, b"committed")
    assert log.aborted_transactions(0, log.log_end_offset) == []
    again = PartitionLog.open(tmp_path, CONFIG, clock)
    assert again.aborted_transactions(0, log.log_end_offset) == []
    assert again.last_stable_offset == again.log_end_offset
    state = again.producer(5)
    assert state is not None
    assert state.last_sequence == 1


def test_more_keys_than_memory_takes_several_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "COMPACTION_KEYS_MAX", 4)
    log = PartitionLog.open(tmp_path, CONFIG, ManualClock(NOW_MS))
    for number in range(40):
        put(log, b"key%d" % (number % 10), b"%d" % number, b"x" * 30)
    before, passes = latest(log), 0
    while log.compact():
        passes += 1
        assert latest(log) == before
    assert passes > 1


def test_a_pass_is_dropped_when_retention_was_faster(tmp_path: Path) -> None:
    log = filled(tmp_path)
    job = log.begin_compaction()
    assert job is not None
    log.delete_records_before(60)
    expected = records_in(log)
    job.run()
    assert not log.finish_compaction(job)
    assert records_in(log) == expected
    assert not list(tmp_path.glob("*.cleaned"))


def test_a_pass_is_dropped_when_the_topic_was_deleted(tmp_path: Path) -> None:
    log = filled(tmp_path / "topic-0")
    job = log.begin_compaction()
    assert job is not None
    job.run()
    shutil.rmtree(log.retire())
    assert not log.finish_compaction(job)
    assert list(tmp_path.iterdir()) == []


def crashes_at_every_change(folder: Path, act: Callable[[PartitionLog], object]) -> list[Path]:
    """What a crash at the 1st, 2nd, ... change that `act` makes to the disk leaves."""
    filled(folder / "before", CrashingDisk(), rounds=FEW)
    found: list[Path] = []
    while True:
        directory = folder / f"crash-{len(found)}"
        shutil.copytree(folder / "before", directory)
        disk = CrashingDisk()
        log = PartitionLog.open(directory, CONFIG, ManualClock(NOW_MS), disk)
        disk.dies_at, disk.changes = len(found) + 1, 0
        try:
            act(log)
        except Crashed:
            found.append(directory)
        else:
            return found


def test_a_crash_at_any_point_loses_no_key(tmp_path: Path) -> None:
    """Nor are the gaps taken for damage where the topic is not compacted any more when the broker starts."""
    reference = filled(tmp_path / "reference", CrashingDisk(), rounds=FEW)
    expected, end = latest(reference), reference.log_end_offset
    crashed = crashes_at_every_change(tmp_path, PartitionLog.compact)
    assert len(crashed) > 60
    kept = replace(CONFIG, cleanup_policy=frozenset({"delete"}))
    for directory in crashed:
        log = PartitionLog.open(directory, kept, ManualClock(NOW_MS), CrashingDisk())
        assert latest(log) == expected
        assert log.log_end_offset == end
        assert not [path.name for path in directory.iterdir() if path.name.endswith((".cleaned", ".swap", ".tmp"))]
        log.update_config(CONFIG)
        log.compact()
        assert latest(log) == expected


VALUE = b"x" * 60
OPERATIONS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from([b"a", b"b", b"c"])),
    st.tuples(st.sampled_from(["compact", "retain", "reopen"]), st.just(b"")),
)


@settings(max_examples=60)
@given(st.lists(OPERATIONS, min_size=10, max_size=60))
def test_only_deletion_moves_the_log_start(operations: list[tuple[str, bytes]]) -> None:
    """A consumer that stands at any offset goes on from there, however much of the log compaction has emptied."""
    with tempfile.TemporaryDirectory() as folder:
        config = replace(CONFIG, segment_bytes=250)
        clock = ManualClock(NOW_MS)
        log = PartitionLog.open(Path(folder) / "t-0", config, clock, CrashingDisk())
        expected: dict[bytes | None, tuple[int, bytes | None]] = {}
        for what, key in operations:
            if what == "put":
                expected[key] = (put(log, key, VALUE), VALUE)
            elif what == "compact":
                log.compact()
            elif what == "retain":
                log.enforce_retention()
            else:
                log.close()
                log = PartitionLog.open(Path(folder) / "t-0", config, clock, CrashingDisk())
            clock.advance(1000)
            assert log.log_start_offset == 0
        assert records_in(log, 0) == records_in(log)
        assert latest(log) == expected
        log.close()


def test_emptied_segments_go_when_records_are_deleted(tmp_path: Path) -> None:
    config = replace(CONFIG, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=-1)
    log = PartitionLog.open(tmp_path, config, ManualClock(NOW_MS))
    for _ in range(24):
        put(log, b"a", b"x" * 60)
    log.compact()
    log.enforce_retention()
    assert log.log_start_offset == 0
    segments = len(list(tmp_path.glob("*.log")))
    log.delete_records_before(log.log_end_offset - 1)
    assert log.log_start_offset == log.log_end_offset - 1
    assert len(list(tmp_path.glob("*.log"))) < segments
