"""What a follower asks, and what an answer does: session, pauses, truncation, one partition beside the others."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from uuid import UUID

import pytest

from broker.cluster.metadata import PartitionState
from broker.limits import BYTES_PER_TURN
from broker.log.config import LogConfig
from broker.log.disk import OsDisk
from broker.log.partition_log import PartitionLog
from broker.replication.following import Following
from broker.replication.throttling import ReplicationQuota
from broker.topics.partition import Partition
from broker.wire.errors import ErrorCode
from broker.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from tests.broker.clock import ManualClock
from tests.broker.log.crashing import Crashed, CrashingDisk
from tests.broker.log.failing import FailingDisk
from tests.broker.log.support import FaultyDisk, batch_of

TOPIC_ID = UUID(int=5)
STATE = PartitionState(2, 4, (1, 2), (1, 2))
PAUSE_MS = 100.0


def follower(path: Path, index: int, disk: OsDisk | None = None) -> Partition:
    log = PartitionLog.open(path / f"t-{index}", LogConfig(), ManualClock(), disk or FaultyDisk())
    partition = Partition("t", index, log, STATE)
    partition.follow(STATE)
    return partition


def followed(*partitions: Partition, quota: ReplicationQuota | None = None) -> Following:
    following = Following(lambda: ReplicaState(1, 9), lambda failures: PAUSE_MS * failures, quota or ReplicationQuota())
    for partition in partitions:
        following.follow(TOPIC_ID, partition)
    return following


def batches(path: Path, *epochs: int, since: int = 0) -> bytes:
    """As a leader's log has them, one record each; those before offset `since` are left out."""
    log = PartitionLog.open(path, LogConfig(), ManualClock())
    for epoch in epochs:
        log.append(batch_of(b"v"), leader_epoch=epoch)
    return b"".join(log.read(since, 1 << 20, up_to=log.log_end_offset, at_least_one=True).records)


def asked(request: FetchRequest | None) -> dict[int, tuple[int, int, int]]:
    """Partition -> (leader epoch, offset, last epoch)."""
    assert request is not None
    return {
        one.partition: (one.current_leader_epoch, one.fetch_offset, one.last_fetched_epoch)
        for topic in request.topics
        for one in topic.partitions
    }


def answer(*data: PartitionData, session_id: int = 77, error: int = 0) -> FetchResponse:
    topics = [FetchableTopicResponse(partitions=list(data), topic_id=TOPIC_ID)]
    return FetchResponse(error_code=error, session_id=session_id, responses=topics)


def exchange(following: Following, *data: PartitionData, now_ms: float = 0.0) -> FetchRequest:
    request = following.next_request(now_ms)
    assert request is not None
    list(following.take(request, answer(*data), now_ms))
    return request


def test_a_session_names_only_what_changed(tmp_path: Path) -> None:
    one, two = follower(tmp_path, 0), follower(tmp_path, 1)
    following = followed(one, two)
    first = exchange(following, PartitionData(0, 0, 1, records=batches(tmp_path / "l", 3)))
    assert asked(first) == {0: (4, 0, -1), 1: (4, 0, -1)}
    assert (first.session_id, first.session_epoch) == (0, 0)
    assert first.replica_state is not None
    assert first.replica_state.replica_id == 1
    second = exchange(following)
    assert asked(second) == {0: (4, 1, 3)}
    assert (second.session_id, second.session_epoch) == (77, 1)
    following.forget(TOPIC_ID, 1)
    third = exchange(following)
    assert asked(third) == {}
    assert [gone.partitions for gone in third.forgotten_topics_data] == [[1]]
    request = following.next_request(0)
    assert request is not None
    list(following.take(request, answer(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND), 0))
    assert asked(following.next_request(0)) == {0: (4, 1, 3)}, "the session begins anew"


def test_without_a_session_each_partition_has_its_turn_under_the_leaders_limit(tmp_path: Path) -> None:
    """A leader that has no room for a session goes by the order of the request, and its answer is full after one."""
    partitions = [follower(tmp_path, index) for index in range(4)]
    following = followed(*partitions)
    records = batches(tmp_path / "l", 3, 3, 3, 3)
    for _ in partitions:
        request = following.next_request(0)
        first = next(iter(asked(request)))
        assert request is not None
        list(following.take(request, answer(PartitionData(first, 0, 4, records=records), session_id=0), 0))
    assert [partition.log.log_end_offset for partition in partitions] == [4, 4, 4, 4]


def test_a_failing_partition_pauses_and_the_others_go_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = FaultyDisk()
    full, other = follower(tmp_path, 0, disk), follower(tmp_path, 1)
    following = followed(full, other)
    disk.room_bytes = 0
    records = batches(tmp_path / "l", 3)
    with caplog.at_level(logging.CRITICAL):
        exchange(following, PartitionData(0, 0, 1, records=records), PartitionData(1, 0, 1, records=records))
    assert (full.log.log_end_offset, other.log.log_end_offset) == (0, 1)
    request = exchange(following, now_ms=PAUSE_MS - 1)
    assert asked(request) == {1: (4, 1, 3)}
    assert request.forgotten_topics_data[0].partitions == [0]
    disk.room_bytes = None
    again = exchange(following, PartitionData(0, 0, 1, records=records), now_ms=PAUSE_MS)
    assert asked(again) == {0: (4, 0, -1)}
    assert full.log.log_end_offset == 1


def test_it_takes_over_the_high_watermark_and_the_log_start(tmp_path: Path) -> None:
    partition = follower(tmp_path, 0)
    following = followed(partition)
    data = PartitionData(0, 0, 2, log_start_offset=1, records=batches(tmp_path / "l", 3, 3, 3))
    exchange(following, data)
    assert (partition.log.high_watermark, partition.log.log_start_offset) == (2, 1)
    exchange(following, PartitionData(0, 0, 1, log_start_offset=1, records=b""))
    assert partition.log.high_watermark == 2, "a new leader may know less"


@pytest.mark.parametrize(
    ("ours", "diverging", "end"),
    [
        ((1, 1, 2, 2), EpochEndOffset(2, 3), 3),
        ((1, 1, 2, 2), EpochEndOffset(1, 4), 2),
        ((1, 1, 3, 3), EpochEndOffset(2, 3), 2),
        ((5, 5, 5), EpochEndOffset(2, 1), 0),
    ],
    ids=["their end", "our end", "an epoch that we lack", "all"],
)
def test_the_log_is_cut_where_it_parts_from_the_leaders(
    tmp_path: Path, ours: tuple[int, ...], diverging: EpochEndOffset, end: int
) -> None:
    partition = follower(tmp_path, 0)
    partition.log.append_as_follower(batches(tmp_path / "l", *ours), leader_epoch=5)
    exchange(followed(partition), PartitionData(0, 0, 0, diverging_epoch=diverging))
    assert partition.log.log_end_offset == end


@pytest.mark.parametrize(("leader_start", "end"), [(0, 1), (2, 2)], ids=["cut", "begun anew"])
def test_what_is_cut_below_the_high_watermark_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, leader_start: int, end: int
) -> None:
    """Nothing else says that acknowledged records are gone."""
    partition, other = follower(tmp_path, 0), follower(tmp_path, 1)
    for one in (partition, other):
        one.log.append_as_follower(batches(tmp_path / f"l{one.index}", 1, 1, 1, 1), leader_epoch=4)
    partition.follow_high_watermark(3)
    other.follow_high_watermark(1)
    parts = EpochEndOffset(1, 1)
    cut = PartitionData(0, 0, 1, log_start_offset=leader_start, diverging_epoch=parts)
    exchange(followed(partition, other), cut, PartitionData(1, 0, 1, diverging_epoch=parts))
    assert (partition.log.log_end_offset, other.log.log_end_offset) == (end, 1)
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert f"t-0 is cut from offset 4 to {end}, below its high watermark 3, " in line
    assert "broker 2, which leads in epoch 4: acknowledged records are not there" in line


def test_where_the_leader_has_nothing_to_compare_with_any_more_nothing_stays(tmp_path: Path) -> None:
    """Its records of our epoch are deleted: what it says of their end is where its log begins, and ours before that may
    be others.
    """
    partition = follower(tmp_path, 0)
    partition.log.append_as_follower(batches(tmp_path / "l", 1, 1, 1), leader_epoch=4)
    data = PartitionData(0, 0, 2, log_start_offset=2, diverging_epoch=EpochEndOffset(1, 2))
    exchange(followed(partition), data)
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (2, 2)


def test_where_the_leaders_log_begins_above_ours_it_begins_anew(tmp_path: Path) -> None:
    partition = follower(tmp_path, 0)
    following = followed(partition)
    partition.log.append_as_follower(batches(tmp_path / "l", 1, 1), leader_epoch=4)
    exchange(following, PartitionData(0, ErrorCode.OFFSET_OUT_OF_RANGE, -1, log_start_offset=1))
    assert partition.log.log_end_offset == 2, "its records reach into the leader's log: they stay"
    data = PartitionData(0, ErrorCode.OFFSET_OUT_OF_RANGE, -1, log_start_offset=40)
    exchange(following, data, now_ms=PAUSE_MS)
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (40, 40)


@pytest.mark.parametrize("change", ["epoch", "end", "forgotten", "lost", "leads"])
def test_an_answer_counts_only_for_the_log_it_was_asked_for(tmp_path: Path, change: str) -> None:
    partition = follower(tmp_path, 0)
    following = followed(partition)
    request = following.next_request(0)
    assert request is not None
    records = batches(tmp_path / "l", 3)
    if change == "epoch":
        partition.follow(PartitionState(2, 6, (1, 2), (1, 2)))
        following.follow(TOPIC_ID, partition)
    elif change == "end":
        partition.log.start_anew(1)
    elif change == "forgotten":
        following.forget(TOPIC_ID, 0)
    elif change == "lost":
        following.lost()
    else:
        partition.lead(PartitionState(1, 4, (1, 2), (1, 2)), 0)
    end = partition.log.log_end_offset
    list(following.take(request, answer(PartitionData(0, 0, 1, records=records)), 0))
    assert partition.log.log_end_offset == end


THROTTLED = LogConfig(follower_replication_throttled_replicas=frozenset({"0:1"}))


def test_what_is_held_back_is_left_out_while_the_rate_is_exceeded(tmp_path: Path) -> None:
    behind = PartitionState(2, 4, (1, 2), (2,))
    held, other = follower(tmp_path, 0), follower(tmp_path, 1)
    for partition in (held, other):
        partition.log.update_config(THROTTLED)
        partition.follow(behind)
    quota, records = ReplicationQuota(), batches(tmp_path / "l", 3)
    quota.limit(len(records), 0)
    following = followed(held, other, quota=quota)
    exchange(following, *(PartitionData(i, 0, 9, records=records) for i in (0, 1)), now_ms=1000)
    assert not quota.is_exceeded(1000), "that of the other one does not count"
    quota.record(len(records) // 2, 1000)
    following.lost()
    assert asked(following.next_request(1000)) == {1: (4, 1, 3)}
    assert following.due_ms(1000) == 0, "the other one may be asked for"
    following.forget(TOPIC_ID, 1)
    due_ms = following.due_ms(1000)
    assert due_ms == 1500
    assert following.next_request(due_ms - 1) is None
    assert asked(following.next_request(due_ms)) == {0: (4, 1, 3)}


def test_who_has_all_that_is_acknowledged_is_not_held_back(tmp_path: Path) -> None:
    partition = follower(tmp_path, 0)
    partition.log.update_config(THROTTLED)
    quota = ReplicationQuota()
    quota.limit(1, 0)
    quota.record(1000, 0)
    following = followed(partition, quota=quota)
    assert asked(following.next_request(0)) == {0: (4, 0, -1)}, "it is in the ISR"
    following.lost()
    exchange(following, PartitionData(0, 0, 2, records=batches(tmp_path / "l", 3)))
    assert following.next_request(0) is None, "others have acknowledged more"
    assert following.due_ms(0) == 1000, "the rate is looked at again"
    quota.limit(1 << 30, 1)
    exchange(following, PartitionData(0, 0, 2, records=batches(tmp_path / "l2", 3, 3, since=1)), now_ms=2)
    quota.limit(1, 2)
    quota.record(1000, 2)
    assert asked(following.next_request(2)) == {0: (4, 2, 3)}


def test_who_dies_amid_an_answer_has_nothing_under_the_leaders_start_before_what_is_the_leaders(tmp_path: Path) -> None:
    """Of what the leader has no more nothing was compared: here it is another batch than the leader had."""
    records = batches(tmp_path / "l", 3, 3, 3, 3, since=3)
    for dies_at in range(1, 20):
        path, disk = tmp_path / str(dies_at), CrashingDisk()
        log = PartitionLog.open(path, LogConfig(), ManualClock(), disk)
        log.append(batch_of(b"a", b"b", b"c"), leader_epoch=2)
        partition = Partition("t", 0, log, STATE)
        partition.follow(STATE)
        following, died = followed(partition), False
        disk.dies_at = disk.changes + dies_at
        try:
            exchange(following, PartitionData(0, 0, 4, log_start_offset=3, records=records))
        except Crashed:
            died = True
        log._store.release()
        again = PartitionLog.open(path, LogConfig(), ManualClock())
        assert again.log_end_offset == 3 or again.log_start_offset == 3
        if not died:
            assert (again.log_start_offset, again.log_end_offset) == (3, 4)
            return
    pytest.fail("it always dies")


def test_each_log_that_is_cut_gives_up_the_event_loop(tmp_path: Path) -> None:
    partitions = [follower(tmp_path, index) for index in range(3)]
    for index, partition in enumerate(partitions):
        partition.log.append_as_follower(batches(tmp_path / f"l{index}", 1, 1, 2), leader_epoch=4)
    following = followed(*partitions)
    request = following.next_request(0)
    assert request is not None
    cuts = [PartitionData(index, 0, 0, diverging_epoch=EpochEndOffset(1, 2)) for index in range(3)]
    ends = []
    for cost_bytes in following.take(request, answer(*cuts), 0):
        assert cost_bytes >= BYTES_PER_TURN
        ends.append([partition.log.log_end_offset for partition in partitions])
    assert ends == [[2, 3, 3], [2, 2, 3], [2, 2, 2]]


def test_a_log_that_cannot_be_cut_whole_is_offline_and_the_others_go_on(tmp_path: Path) -> None:
    disk = FailingDisk(errno.ENOSPC)
    one, other = follower(tmp_path, 0, disk), follower(tmp_path, 1)
    for index, partition in enumerate((one, other)):
        partition.log.append_as_follower(batches(tmp_path / f"l{index}", 1, 1, 2), leader_epoch=4)
    told: list[str] = []
    one.offline_listeners = [lambda: told.append("offline")]
    following = followed(one, other)
    cuts = [PartitionData(index, 0, 0, diverging_epoch=EpochEndOffset(1, 2)) for index in range(2)]
    now_ms, fails_at = 0.0, 0
    while one.offline is None:
        fails_at += 1
        disk.failing(fails_at)
        exchange(following, *cuts, now_ms=now_ms)
        now_ms += PAUSE_MS * fails_at
        assert fails_at < 50
        assert one.offline is not None or one.log.log_end_offset == 3, "as it was"
    assert (told, one.offline.may_pass) == (["offline"], True)
    assert other.log.log_end_offset == 2
    assert asked(following.next_request(now_ms)).keys() <= {1}
