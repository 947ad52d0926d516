"""Damage that no CRC shows: the log is then what lies before it, the rest is kept aside, and the log says where."""

import logging
import os
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from broker.errors import LogDamaged
from broker.log.config import LogConfig
from broker.log.disk import OsDisk
from broker.log.epochs import LeaderEpochs
from broker.log.partition_log import PartitionLog
from broker.log.segment import Segment
from broker.wire.batch import iter_batches
from broker.wire.records import Record
from broker.wire.vocabulary import NO_TIMESTAMP
from tests.broker.clock import ManualClock
from tests.broker.log.support import NOW_MS, UnsyncedDisk, batch_of, records_in

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=200, retention_ms=-1)
COMPACTED = LogConfig(segment_bytes=700, index_interval_bytes=200, cleanup_policy=frozenset({"compact"}))
BATCHES = 24


def filled(directory: Path, config: LogConfig = CONFIG, disk: OsDisk | None = None) -> list[Record]:
    """A log as kill -9 leaves it, of two records per batch, with epochs that rise; without `disk` all is below the
    recovery point but the last segment.
    """
    log = PartitionLog.open(directory, config, ManualClock(NOW_MS), disk or UnsyncedDisk())
    for number in range(BATCHES):
        log.append(batch_of(b"%d" % number, b"y" * 100), leader_epoch=number // 5)
    return records_in(log)


def places(directory: Path) -> list[tuple[Path, int]]:
    """(file, position) of every batch, in order."""
    found = []
    for path in sorted(directory.glob("*.log")):
        position = 0
        for header, _ in iter_batches(path.read_bytes(), strict=True):
            found.append((path, position))
            position += header.size_bytes
    return found


def reopened(directory: Path, config: LogConfig = CONFIG) -> PartitionLog:
    return PartitionLog.open(directory, config, ManualClock(NOW_MS))


def bytes_kept(directory: Path) -> int:
    return sum(path.stat().st_size for path in [*directory.glob("*.log"), *directory.glob("*.damaged")])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(number=st.integers(0, BATCHES - 1), bit=st.integers(0, 95), compacted=st.booleans())
@example(number=21, bit=88, compacted=False)
@example(number=16, bit=88, compacted=True)
def test_a_flipped_base_offset_or_epoch_ends_the_log_before_it(
    tmp_path_factory: pytest.TempPathFactory, number: int, bit: int, compacted: bool
) -> None:
    directory = tmp_path_factory.mktemp("flip")
    config = COMPACTED if compacted else CONFIG
    before = filled(directory, config)
    path, position = places(directory)[number]
    data = bytearray(path.read_bytes())
    where = position + (bit // 8 if bit < 64 else 12 + (bit - 64) // 8)
    data[where] ^= 1 << bit % 8
    path.write_bytes(data)
    size_bytes = bytes_kept(directory)

    log = reopened(directory, config)

    found = records_in(log)
    # In the newest epoch one that is a little newer is possible; behind it, a lower one would give it away. One that is
    # lower than that before it, and not than those before both, may as well speak against the one before it.
    accused = (before[: 2 * number - 2],) if bit >= 64 and number else ()
    assert found in (before[: 2 * number], before, *accused), f"no prefix: {[record.offset for record in found]}"
    if found == before:
        assert bit >= 88
        assert number >= BATCHES - 1 - (BATCHES - 1) % 5
    else:
        assert bytes_kept(directory) == size_bytes
    assert log.log_end_offset == len(found)
    assert log.append(batch_of(b"next"), leader_epoch=9).base_offset == len(found)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(number=st.integers(0, BATCHES - 1), bit=st.integers(0, 31), compacted=st.booleans(), one_segment=st.booleans())
def test_a_flipped_length_ends_the_log_before_it_and_loses_nothing(
    tmp_path_factory: pytest.TempPathFactory,
    caplog: pytest.LogCaptureFixture,
    number: int,
    bit: int,
    compacted: bool,
    one_segment: bool,
) -> None:
    caplog.clear()
    directory = tmp_path_factory.mktemp("flip")
    config = replace(COMPACTED if compacted else CONFIG, segment_bytes=1 << 20 if one_segment else 700)
    before = filled(directory, config)
    path, position = places(directory)[number]
    data = bytearray(path.read_bytes())
    data[position + 8 + bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    size_bytes = bytes_kept(directory)

    with caplog.at_level(logging.WARNING):
        log = reopened(directory, config)

    assert records_in(log) == before[: 2 * number]
    assert bytes_kept(directory) == size_bytes, "nothing was deleted"
    assert f"ends at offset {2 * number}" in caplog.text
    assert log.append(batch_of(b"next"), leader_epoch=9).base_offset == 2 * number


def test_a_torn_record_full_of_headers_ends_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each looks like a batch up to the end of the file: to read them all would take for ever."""
    monkeypatch.setattr("broker.log.recovery.LOG_SEARCH_CRC_BYTES_MAX", 1 << 20)
    config = LogConfig()
    log = PartitionLog.open(tmp_path, config, ManualClock(NOW_MS), UnsyncedDisk())
    log.append(batch_of(b"whole"), leader_epoch=0)
    false_header = bytearray(batch_of(b"")[:61])
    false_header[7], false_header[17:21] = 9, b"none"
    log.append(batch_of(bytes(false_header) * 2000), leader_epoch=0)
    path, position = places(tmp_path)[-1]
    os.truncate(path, path.stat().st_size - 1)
    assert len(records_in(reopened(tmp_path, config))) == 1
    assert path.stat().st_size == position


@pytest.mark.parametrize("piece_bytes", [16, 100, 1 << 20])
def test_damage_is_told_apart_from_a_torn_end_whatever_the_pieces_that_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, piece_bytes: int
) -> None:
    """Also where a batch is longer than what is read at once, and where a piece begins with what is looked for."""
    monkeypatch.setattr("broker.log.segment.LOG_SCAN_BYTES", max(61, piece_bytes))
    monkeypatch.setattr("broker.log.recovery.LOG_SCAN_BYTES", piece_bytes)
    before = filled(tmp_path)
    assert records_in(reopened(tmp_path)) == before
    (tmp_path / "recovery-point-offset-checkpoint").write_bytes(b"0\n")
    path, position = places(tmp_path)[-1]
    whole = path.read_bytes()
    data = bytearray(whole)
    data[position + 9] ^= 1  # its length: it goes on behind the end of the file now
    path.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        assert records_in(reopened(tmp_path)) == before[:-2]
    assert f"ends at offset {len(before) - 2}" in caplog.text
    (kept,) = tmp_path.glob("*.damaged")
    assert kept.read_bytes() == data[position:]
    caplog.clear()
    path.write_bytes(whole[:-1])
    assert records_in(reopened(tmp_path)) == before[:-2]
    assert not caplog.records


class _Journal(OsDisk):
    """Says in which order the calls came that make damage safe."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self._damaged_fd = -1

    def open(self, path: Path) -> int:
        fd = super().open(path)
        if path.name.endswith(".damaged"):
            self._damaged_fd = fd
        return fd

    def fsync(self, fd: int) -> None:
        super().fsync(fd)
        if fd == self._damaged_fd:
            self.calls.append("file")

    def fsync_directory(self, directory: Path) -> None:
        super().fsync_directory(directory)
        self.calls.append("folder")

    def truncate(self, fd: int, size_bytes: int) -> None:
        super().truncate(fd, size_bytes)
        self.calls.append("cut")


def test_what_is_cut_off_is_safe_before_it_is_cut_and_older_damage_stays(tmp_path: Path) -> None:
    kept: list[bytes] = []
    disk = _Journal()
    for values in ((b"a long first batch" * 9, b"second"), (b"short",)):
        log = PartitionLog.open(tmp_path, CONFIG, ManualClock(NOW_MS), UnsyncedDisk())
        for value in values:
            log.append(batch_of(value), leader_epoch=0)
        path = max(tmp_path.glob("*.log"))
        data = bytearray(path.read_bytes())
        data[50] ^= 1
        path.write_bytes(data)
        kept.append(bytes(data))
        disk.calls.clear()
        assert PartitionLog.open(tmp_path, CONFIG, ManualClock(NOW_MS), disk).log_end_offset == 0
        assert disk.calls[:3] == ["file", "folder", "cut"]
    assert sorted(path.read_bytes() for path in tmp_path.glob("*.damaged")) == sorted(kept)


@pytest.mark.parametrize("damage", ["emptied", "missing", "cut at a batch"])
@pytest.mark.parametrize("close", ["clean", "flushed", "killed"])
def test_a_hole_ends_the_log_before_it(
    tmp_path: Path, damage: str, close: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = filled(tmp_path)
    if close != "killed":
        log = reopened(tmp_path)
        log.flush() if close == "flushed" else log.close()
    middle = sorted(tmp_path.glob("*.log"))[2]
    batches_of_it = [position for path, position in places(tmp_path) if path == middle]
    kept_batches = 0
    if damage == "missing":
        middle.unlink()
    elif damage == "emptied":
        os.truncate(middle, 0)
    else:
        kept_batches = len(batches_of_it) - 1
        os.truncate(middle, batches_of_it[-1])
    size_bytes = bytes_kept(tmp_path)

    with caplog.at_level(logging.WARNING):
        log = reopened(tmp_path)

    end = int(middle.name[:20]) + 2 * kept_batches
    assert records_in(log) == [record for record in before if record.offset < end]
    assert log.log_end_offset == end
    assert bytes_kept(tmp_path) == size_bytes, "nothing was deleted"
    assert str(tmp_path) in caplog.text
    assert f"ends at offset {end}" in caplog.text
    log.append(batch_of(b"next"), leader_epoch=9)
    log.close()
    assert records_in(reopened(tmp_path))[-1].value == b"next"


def test_compaction_leaves_gaps_that_are_no_damage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = PartitionLog.open(tmp_path, COMPACTED, ManualClock(NOW_MS))
    for number in range(BATCHES):
        log.append(batch_of(b"%d" % number, keys=[b"k%d" % (number % 7)]), leader_epoch=number // 5)
    assert log.compact()
    before = records_in(log)
    log.update_config(CONFIG)
    for config in (COMPACTED, CONFIG):
        (tmp_path / "recovery-point-offset-checkpoint").write_bytes(b"0\n")
        again = reopened(tmp_path, config)
        assert records_in(again) == before
    assert not caplog.records


def test_a_torn_end_goes_without_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = filled(tmp_path)
    newest = max(tmp_path.glob("*.log"))
    with newest.open("ab") as file:
        file.write(newest.read_bytes()[:100])
    assert records_in(reopened(tmp_path)) == before
    assert not caplog.records
    assert not list(tmp_path.glob("*.damaged"))


def test_epochs_that_a_power_cut_took_from_the_checkpoint_are_believed(tmp_path: Path) -> None:
    before = filled(tmp_path)
    (tmp_path / "leader-epoch-checkpoint").write_bytes(LeaderEpochs([(0, 0), (1, 10)]).text())
    log = reopened(tmp_path)
    assert records_in(log) == before
    assert log.leader_epoch == (BATCHES - 1) // 5


def test_an_older_epoch_than_the_logs_is_not_written(tmp_path: Path) -> None:
    """The metadata was restored from an older copy."""
    log = PartitionLog.open(tmp_path, CONFIG, ManualClock(NOW_MS))
    log.append(batch_of(b"a"), leader_epoch=7)
    log.append(batch_of(b"b"), leader_epoch=3)
    epochs: list[int] = []
    for buffer in log.read(0, 1 << 20, up_to=2, at_least_one=True).records:
        epochs += [header.partition_leader_epoch for header, _ in iter_batches(buffer)]
    assert epochs == [7, 7]


@pytest.mark.parametrize("gives_up_its_end", [True, False])
def test_what_a_thread_misses_in_a_log_that_was_cut_meanwhile_is_no_damage(
    tmp_path: Path, gives_up_its_end: bool
) -> None:
    filled(tmp_path)
    log = reopened(tmp_path)
    ended: list[LogDamaged] = []
    log.damage_listeners.append(ended.append)
    (lookup,) = log.time_lookups_apart(NO_TIMESTAMP)
    reading = log.reading_apart()
    if gives_up_its_end:
        log.truncate_to(1)
    else:
        os.truncate(lookup.segments[0].path(".log"), 1)
    with pytest.raises(LogDamaged), reading:
        lookup.latest()
    lookup.close()
    assert bool(ended) is not gives_up_its_end
    if gives_up_its_end:
        log.append(batch_of(b"more"), leader_epoch=9)
        log.close()


@pytest.mark.parametrize("max_bytes", [1 << 20, 700, 100])
@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize(
    ("at", "put"),
    [(8, -5), (8, 0), (8, 1 << 30), (0, -1), (0, 1 << 30), (23, -1000), (23, 1 << 20)],
    ids=["negative length", "no length", "too long", "negative base", "later base", "no records", "too many records"],
)
def test_a_reader_that_comes_back_to_a_header_that_is_not_what_was_written_finds_it(
    tmp_path: Path, at: int, put: int, indexed: bool, max_bytes: int
) -> None:
    """While the log is open: it does not get the same bytes, of which it can make nothing, again and again."""
    log = PartitionLog.open(tmp_path, replace(CONFIG, segment_bytes=1 << 20), ManualClock(NOW_MS), UnsyncedDisk())
    for number in range(BATCHES):
        log.append(batch_of(b"%d" % number, b"y" * 100), leader_epoch=number // 5)
    (segment,) = log._store.segments
    with_entry = {log_offset for log_offset in range(0, 2 * BATCHES, 2) if _is_indexed(segment, log_offset)}
    number = next(each for each in range(8, BATCHES) if (2 * each in with_entry) == indexed)
    path, position = places(tmp_path)[number]
    with path.open("r+b") as file:
        file.seek(position + at)
        file.write(struct.pack(">q" if at == 0 else ">i", put))
    damaged: list[LogDamaged] = []
    log.damage_listeners.append(damaged.append)
    with pytest.raises(LogDamaged):
        log.read(2 * number, max_bytes, up_to=2 * BATCHES, at_least_one=True)
    assert len(damaged) == 1


def _is_indexed(segment: Segment, offset: int) -> bool:
    return segment.offset_index.at_or_before_offset(offset)[0] == offset
