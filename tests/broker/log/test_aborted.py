"""Which transactions a log says were aborted: the same after every start, whatever happened before it."""

import struct
import tempfile
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker.log.config import LogConfig
from broker.log.disk import OsDisk
from broker.log.partition_log import AppendOrigin, PartitionLog
from broker.wire.buffers import Buffer
from tests.broker.clock import ManualClock
from tests.broker.log.support import NOW_MS, UnsyncedDisk, batch_of

CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=150, retention_ms=-1)
T = TypeVar("T")


class Crashed(BaseException):
    """The process ends here; not an Exception, so that no code goes on from it."""


class MortalDisk(OsDisk):
    """The real disk under a process that is killed at its operation number `dies_at`; what was written before stays.

    `syncs` says whether late fsyncs end at once, or when `sync_all` is called.
    """

    def __init__(self) -> None:
        super().__init__()
        self.dies_at: int | None = None
        self.syncs = True
        self.operations = 0
        self.late: list[Future[None]] = []
        self.descriptors: set[int] = set()

    def _count(self) -> None:
        self.operations += 1
        if self.dies_at is not None and self.operations > self.dies_at:
            raise Crashed

    def open(self, path: Path) -> int:
        self._count()
        fd = super().open(path)
        self.descriptors.add(fd)
        return fd

    def close(self, fd: int) -> None:
        if fd in self.descriptors:  # what the kernel has closed is another file's number by now
            self.descriptors.discard(fd)
            super().close(fd)

    def release(self) -> None:
        """What the kernel does for a dead process."""
        for fd in list(self.descriptors):
            self.close(fd)

    def pwrite(self, fd: int, data: Buffer, position: int) -> int:
        try:
            self._count()
        except Crashed:
            super().pwrite(fd, memoryview(data)[: len(data) // 2], position)
            raise
        return super().pwrite(fd, data, position)

    def truncate(self, fd: int, size_bytes: int) -> None:
        self._count()
        super().truncate(fd, size_bytes)

    def fsync_later(self, paths: list[Path]) -> "Future[None]":
        self._count()
        done: Future[None] = Future()
        self.late.append(done)
        if self.syncs:
            self.sync_all()
        return done

    def sync_all(self) -> None:
        self.syncs = True
        for done in self.late:
            done.set_result(None)
        self.late.clear()

    def write_file(self, path: Path, data: bytes, *, durable: bool) -> None:
        self._count()
        super().write_file(path, data, durable=durable)
        self._count()

    def replace(self, source: Path, target: Path) -> None:
        self._count()
        super().replace(source, target)

    def unlink(self, path: Path) -> None:
        self._count()
        super().unlink(path)


class AbortedMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.directory = Path(self.folder.name) / "topic-0"
        self.disk = MortalDisk()
        self.end = 0
        self.open: dict[int, int] = {}
        self.aborted: list[tuple[int, int, int]] = []
        self.log = self.start()

    def teardown(self) -> None:
        self.disk.release()
        self.folder.cleanup()

    def start(self) -> PartitionLog:
        return PartitionLog.open(self.directory, CONFIG, ManualClock(NOW_MS), self.disk)

    def die(self) -> None:
        self.disk.release()
        self.disk = MortalDisk()

    def surviving(self, step: Callable[[], T], crash_at: int | None) -> bool:
        """Does `step` with a crash at its disk operation `crash_at`; True when the log's end moved."""
        if crash_at is not None:
            self.disk.dies_at = self.disk.operations + crash_at
        try:
            step()
        except Crashed:
            self.die()
            self.log = self.start()
        self.disk.dies_at = None
        assert self.log.log_end_offset in (self.end, self.end + 1)
        moved = self.log.log_end_offset > self.end
        self.end = self.log.log_end_offset
        return moved

    crash_points = st.one_of(st.none(), st.integers(0, 12))

    @rule(producer=st.integers(1, 3), size=st.integers(1, 200), crash_at=crash_points)
    def write(self, producer: int, size: int, crash_at: int | None) -> None:
        offset = self.end
        if self.surviving(lambda: append_in_transaction(self.log, producer, b"x" * size), crash_at):
            self.open.setdefault(producer, offset)

    @rule(size=st.integers(1, 200), crash_at=crash_points)
    def write_plain(self, size: int, crash_at: int | None) -> None:
        self.surviving(lambda: self.log.append(batch_of(b"x" * size), leader_epoch=0), crash_at)

    @rule(producer=st.integers(1, 3), commit=st.booleans(), crash_at=crash_points)
    def mark(self, producer: int, commit: bool, crash_at: int | None) -> None:
        offset = self.end

        def step() -> None:
            self.log.write_marker(
                producer_id=producer, producer_epoch=0, commit=commit, coordinator_epoch=0, leader_epoch=0
            )

        if self.surviving(step, crash_at):
            first = self.open.pop(producer, None)
            if first is not None and not commit:
                self.aborted.append((producer, first, offset))

    @rule(syncs=st.booleans())
    def flush_thread(self, syncs: bool) -> None:
        if syncs:
            self.disk.sync_all()
        else:
            self.disk.syncs = False

    @rule(crash_at=crash_points)
    def upkeep(self, crash_at: int | None) -> None:
        self.surviving(self.log.enforce_retention, crash_at)

    @rule(crash_at=crash_points, damage=st.sampled_from(["", "lost", "odd", "empty", "garbage"]), data=st.data())
    def restart(self, crash_at: int | None, damage: str, data: st.DataObject) -> None:
        """A stop, clean or cut short, damage to one index, and a start that may be cut short itself."""
        self.disk.sync_all()
        self.surviving(self.log.close, crash_at)
        self.die()
        indexes = sorted(self.directory.glob("*.txnindex"))
        if damage and indexes:
            spoil(data.draw(st.sampled_from(indexes)), damage)
        again_at = data.draw(self.crash_points)
        self.disk.dies_at = again_at
        try:
            self.log = self.start()
        except Crashed:
            self.die()
            self.log = self.start()
        self.disk.dies_at = None
        assert self.log.log_end_offset == self.end

    @invariant()
    def says_what_was_aborted(self) -> None:
        for start in range(self.end + 1):
            expected = sorted((first, producer) for producer, first, last in self.aborted if last >= start)
            assert self.log.aborted_transactions(start, self.end) == [(p, first) for first, p in expected], start
        unstable = min(self.open.values(), default=self.end)
        assert self.log.last_stable_offset == unstable


def append_in_transaction(log: PartitionLog, producer: int, value: bytes) -> None:
    batch = batch_of(value, producer_id=producer, producer_epoch=0, transactional=True)
    # A coordinator's batches have no sequence, which is not what is looked at here.
    log.append(batch, leader_epoch=0, origin=AppendOrigin.COORDINATOR)


def spoil(index: Path, damage: str) -> None:
    if damage == "lost":
        index.unlink()
    elif damage == "odd":
        index.write_bytes(index.read_bytes()[:-1] if index.stat().st_size else b"\x00" * 7)
    elif damage == "empty":
        index.write_bytes(b"")
    else:
        index.write_bytes(b"\xff" * 34)


TestAbortedMachine = AbortedMachine.TestCase
TestAbortedMachine.settings = settings(max_examples=60, stateful_step_count=30)


def with_an_abort(directory: Path) -> tuple[PartitionLog, list[tuple[int, int]]]:
    """A log of several segments whose first holds an aborted transaction; every segment is above the recovery point."""
    log = PartitionLog.open(directory, CONFIG, ManualClock(NOW_MS), UnsyncedDisk())
    append_in_transaction(log, 7, b"gone")
    log.write_marker(producer_id=7, producer_epoch=0, commit=False, coordinator_epoch=0, leader_epoch=0)
    for _ in range(6):
        log.append(batch_of(b"y" * 200), leader_epoch=0)
    return log, log.aborted_transactions(0, log.log_end_offset)


def test_an_abort_is_known_after_a_crash_and_two_starts(tmp_path: Path) -> None:
    """The index of a recovered segment was written before it was filled, and believed ever after."""
    _, before = with_an_abort(tmp_path)
    assert before == [(7, 0)]
    recovered = PartitionLog.open(tmp_path, CONFIG, ManualClock(NOW_MS))
    assert recovered.aborted_transactions(0, 100) == before
    recovered.close()
    again = PartitionLog.open(tmp_path, CONFIG, ManualClock(NOW_MS))
    assert again.aborted_transactions(0, 100) == before


@pytest.mark.parametrize("of_kafka", [b"", struct.pack(">hqqqq", 0, 9, 0, 1, 2)])
def test_an_index_that_cannot_vouch_for_itself_is_built_again_once(tmp_path: Path, of_kafka: bytes) -> None:
    """What earlier versions wrote has Kafka's bare form: an empty one may be right or wrong, the log tells."""
    _, before = with_an_abort(tmp_path)
    PartitionLog.open(tmp_path, CONFIG, ManualClock(NOW_MS)).close()
    for index in tmp_path.glob("*.txnindex"):
        index.write_bytes(of_kafka)
    again = PartitionLog.open(tmp_path, CONFIG, ManualClock(NOW_MS))
    assert again.aborted_transactions(0, 100) == before
    healed = {index: index.stat().st_mtime_ns for index in tmp_path.glob("*.txnindex")}
    again.close()
    third = PartitionLog.open(tmp_path, CONFIG, ManualClock(NOW_MS))
    assert third.aborted_transactions(0, 100) == before
    sealed = sorted(healed)[:-1]
    assert {index: index.stat().st_mtime_ns for index in sealed} == {index: healed[index] for index in sealed}


def test_a_rebuilt_index_knows_transactions_that_began_before_its_segment(tmp_path: Path) -> None:
    log = PartitionLog.open(tmp_path, CONFIG, ManualClock(NOW_MS))
    append_in_transaction(log, 7, b"gone")
    for _ in range(6):
        log.append(batch_of(b"y" * 200), leader_epoch=0)
    log.write_marker(producer_id=7, producer_epoch=0, commit=False, coordinator_epoch=0, leader_epoch=0)
    for _ in range(6):
        log.append(batch_of(b"y" * 200), leader_epoch=0)
    before = log.aborted_transactions(0, 100)
    log.close()
    for index in tmp_path.glob("*.txnindex"):
        index.write_bytes(b"odd")
    again = PartitionLog.open(tmp_path, CONFIG, ManualClock(NOW_MS))
    assert again.aborted_transactions(0, 100) == before == [(7, 0)]
