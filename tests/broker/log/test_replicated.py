"""A follower's log: it has what the leader has, byte by byte, and a crash at any moment leaves a prefix."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from broker.errors import CorruptRecords
from broker.log.config import LogConfig
from broker.log.disk import OS_DISK
from broker.log.partition_log import PartitionLog
from broker.wire.batch import patch_leader_epoch
from tests.broker.clock import ManualClock
from tests.broker.log.crashing import Crashed, CrashingDisk
from tests.broker.log.support import batch_of, records_in

CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=300)


def leader_log(path: Path, batches: int = 40) -> PartitionLog:
    """Two records a batch, in epochs 2, 5 and 6, of a producer and of a transaction that is aborted."""
    log = PartitionLog.open(path, CONFIG, ManualClock())
    for number in range(batches):
        epoch = 2 if number < 10 else 5 if number < 25 else 6
        values = (b"%d" % number, b"y" * 50)
        log.append(batch_of(*values, producer_id=7, producer_epoch=0, base_sequence=2 * number), leader_epoch=epoch)
        if number == 12:
            opens = batch_of(b"t", producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
            log.append(opens, leader_epoch=epoch)
        if number == 20:
            log.write_marker(producer_id=9, producer_epoch=0, commit=False, coordinator_epoch=3, leader_epoch=epoch)
    return log


def fetched(log: PartitionLog, offset: int, max_bytes: int = 1500) -> bytes:
    part = log.read(offset, max_bytes, up_to=log.log_end_offset, at_least_one=True)
    return b"".join(part.records)


def catch_up(follower: PartitionLog, leader: PartitionLog, max_bytes: int = 1500) -> None:
    while follower.log_end_offset < leader.log_end_offset:
        follower.append_as_follower(fetched(leader, follower.log_end_offset, max_bytes), leader_epoch=9)


def whole(log: PartitionLog) -> bytes:
    return fetched(log, log.log_start_offset, 1 << 20)


@pytest.mark.parametrize("max_bytes", [1, 700, 1500, 1 << 20])
def test_a_follower_has_what_its_leader_has(tmp_path: Path, max_bytes: int) -> None:
    leader = leader_log(tmp_path / "leader")
    follower = PartitionLog.open(tmp_path / "follower", CONFIG, ManualClock())
    catch_up(follower, leader, max_bytes)
    for log in (follower, PartitionLog.open(tmp_path / "follower", CONFIG, ManualClock())):
        assert whole(log) == whole(leader)
        assert [log.end_offset_for_epoch(epoch) for epoch in range(8)] == [
            leader.end_offset_for_epoch(epoch) for epoch in range(8)
        ]
        state, theirs = log.producer(7), leader.producer(7)
        assert state is not None
        assert theirs is not None
        assert state.last_sequence == theirs.last_sequence
        assert log.aborted_transactions(0, 80) == leader.aborted_transactions(0, 80) != []
    segments = [path.name for path in sorted(follower.directory.glob("*.log"))]
    assert segments == [path.name for path in sorted(leader.directory.glob("*.log"))]
    assert len(segments) > 2


def test_what_it_has_already_is_left_out(tmp_path: Path) -> None:
    leader = leader_log(tmp_path / "leader")
    follower = PartitionLog.open(tmp_path / "follower", CONFIG, ManualClock())
    follower.append_as_follower(fetched(leader, 0), leader_epoch=9)
    follower.append_as_follower(fetched(leader, 0, 3000), leader_epoch=9)
    assert whole(follower) == whole(leader)[: len(whole(follower))]


@pytest.mark.parametrize("what", ["byte", "order", "old epoch", "epoch of the future"])
def test_what_cannot_be_the_leaders_is_refused_whole(tmp_path: Path, what: str) -> None:
    leader = leader_log(tmp_path / "leader")
    follower = PartitionLog.open(tmp_path / "follower", CONFIG, ManualClock())
    catch_up(follower, leader)
    end = follower.log_end_offset
    leader.append(batch_of(b"a"), leader_epoch=6)
    leader.append(batch_of(b"b"), leader_epoch=6)
    records = bytearray(fetched(leader, end))
    half = len(records) // 2
    if what == "byte":
        records[-1] ^= 1
    elif what == "order":
        records = records[half:] + records[:half]
    else:
        patch_leader_epoch(memoryview(records)[half:], 5 if what == "old epoch" else 10)
    with pytest.raises(CorruptRecords):
        follower.append_as_follower(records, leader_epoch=9)
    assert follower.log_end_offset == end


def test_gaps_of_a_compacted_leader_are_no_damage_at_the_next_start(tmp_path: Path) -> None:
    config = replace(CONFIG, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0)
    leader = PartitionLog.open(tmp_path / "leader", config, ManualClock())
    for number in range(60):
        leader.append(batch_of(b"y" * 90, keys=[b"%d" % (number % 3)]), leader_epoch=2)
    assert leader.compact()
    follower = PartitionLog.open(tmp_path / "follower", CONFIG, ManualClock())
    catch_up(follower, leader)
    follower.append_as_follower(b"", leader_epoch=9)
    again = PartitionLog.open(tmp_path / "follower", CONFIG, ManualClock())
    assert records_in(again) == records_in(leader)
    assert whole(again) == whole(leader)


def test_a_leaders_log_may_start_inside_of_its_first_batch(tmp_path: Path) -> None:
    leader = leader_log(tmp_path / "leader")
    leader.delete_records_before(13)
    follower = PartitionLog.open(tmp_path / "follower", CONFIG, ManualClock())
    follower.start_anew(leader.log_start_offset)
    catch_up(follower, leader)
    follower.high_watermark = leader.log_end_offset
    follower.follow_log_start(leader.log_start_offset)
    assert follower.log_start_offset == 13
    assert records_in(follower) == records_in(leader)


def test_what_a_leader_has_before_its_start_replaces_what_else_was_there(tmp_path: Path) -> None:
    """It cannot be compared: where the leader's log starts inside of a batch, ours may end inside of that batch."""
    leader = PartitionLog.open(tmp_path / "leader", CONFIG, ManualClock())
    other = PartitionLog.open(tmp_path / "other", CONFIG, ManualClock())
    for log, values in ((leader, (b"a", b"b")), (other, (b"x",))):
        log.append(batch_of(b"same"), leader_epoch=1)
        log.append(batch_of(*values), leader_epoch=2 if log is leader else 1)
    leader.delete_records_before(2)
    other.append_as_follower(fetched(leader, 2), leader_epoch=3)
    assert whole(other)[-len(whole(leader)) :] == whole(leader)
    assert [record.value for record in records_in(other)] == [b"same", b"a", b"b"]


def test_an_epoch_that_wrote_nothing_is_forgotten_where_the_log_ends(tmp_path: Path) -> None:
    log = leader_log(tmp_path)
    end = log.log_end_offset
    log.begin_leader_epoch(8)
    assert log.leader_epoch == 8
    log.truncate_to(end)
    assert log.leader_epoch == 6
    assert PartitionLog.open(tmp_path, CONFIG, ManualClock()).leader_epoch == 6


def test_starting_anew_forgets_all(tmp_path: Path) -> None:
    log = leader_log(tmp_path)
    log.high_watermark = 50
    log.start_anew(500)
    for one in (log, PartitionLog.open(tmp_path, CONFIG, ManualClock())):
        assert (one.log_start_offset, one.log_end_offset, one.high_watermark) == (500, 500, 500)
        assert (one.leader_epoch, list(one.producers)) == (-1, [])
    log.start_anew(20)
    assert (log.log_start_offset, log.log_end_offset) == (20, 20)


Change = Callable[[PartitionLog, PartitionLog], object]
CHANGES: dict[str, Change] = {
    "append": lambda log, leader: log.append_as_follower(fetched(leader, log.log_end_offset, 4000), leader_epoch=9),
    "truncate": lambda log, leader: log.truncate_to(9),
    "truncate within a segment": lambda log, leader: log.truncate_to(log.log_end_offset - 3),
    "start anew above": lambda log, leader: log.start_anew(900),
    "start anew below": lambda log, leader: log.start_anew(0),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_crash_at_any_moment_leaves_a_prefix(tmp_path: Path, change: str) -> None:
    leader = leader_log(tmp_path / "leader", 60)
    before = PartitionLog.open(tmp_path / "before", CONFIG, ManualClock())
    while before.log_end_offset < 80:
        before.append_as_follower(fetched(leader, before.log_end_offset), leader_epoch=9)
    end, all_of_it = before.log_end_offset, whole(leader)
    crashes = 0
    while True:
        path = tmp_path / f"crash-{crashes}"
        shutil.copytree(tmp_path / "before", path)
        disk = CrashingDisk()
        log = PartitionLog.open(path, CONFIG, ManualClock(), disk)
        disk.dies_at, disk.changes = crashes + 1, 0
        try:
            CHANGES[change](log, leader)
        except Crashed:
            crashes += 1
        else:
            break
        again = PartitionLog.open(path, CONFIG, ManualClock(), OS_DISK)
        if again.is_empty:
            assert again.log_end_offset in (0, 900)
        else:
            content = whole(again)
            assert content == all_of_it[: len(content)]
            assert again.log_end_offset >= {"append": end, "truncate within a segment": end - 4}.get(change, 0)
        epochs = [leader.end_offset_for_epoch(epoch)[0] for epoch in range(again.leader_epoch + 1)]
        assert [
            again.end_offset_for_epoch(epoch)[0] for epoch in range(again.leader_epoch + 1)
        ] == epochs or again.is_empty
        again.append_as_follower(fetched(leader, again.log_end_offset), leader_epoch=9) if not again.is_empty else None
        again.close()
    assert crashes >= 1
