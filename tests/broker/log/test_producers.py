"""Idempotence, transactions and the marker's fence, on a real log, also over a restart."""

from dataclasses import replace
from pathlib import Path

import pytest

from broker.errors import CoordinatorFenced, InvalidTransactionState, OutOfOrderSequence, ProducerRefused
from broker.limits import PRODUCER_ID_EXPIRATION_MS
from broker.log.config import LogConfig
from broker.log.partition_log import PartitionLog
from broker.log.results import AppendResult
from broker.wire.compression import Compression
from broker.wire.errors import ErrorCode
from tests.broker.clock import ManualClock
from tests.broker.log.support import NOW_MS, batch_of, records_in

CONFIG = LogConfig(segment_bytes=1000)


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    return PartitionLog.open(tmp_path, CONFIG, ManualClock(NOW_MS))


def send(
    log: PartitionLog,
    sequence: int,
    *,
    epoch: int = 0,
    records: int = 1,
    pid: int = 7,
    transactional: bool = False,
    value: bytes = b"v",
) -> AppendResult:
    batch = batch_of(
        *[value] * records,
        producer_id=pid,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    return log.append(batch, leader_epoch=0)


def marker(log: PartitionLog, *, pid: int = 7, epoch: int = 0, commit: bool = False, coordinator_epoch: int = 0) -> int:
    return log.write_marker(
        producer_id=pid,
        producer_epoch=epoch,
        commit=commit,
        coordinator_epoch=coordinator_epoch,
        leader_epoch=0,
    )


def reopened(log: PartitionLog, *, clean: bool) -> PartitionLog:
    if clean:
        log.close()
    return PartitionLog.open(log.directory, CONFIG, ManualClock(NOW_MS))


def test_a_repeat_of_the_last_five_batches_is_a_success_with_its_first_offsets(log: PartitionLog) -> None:
    for number in range(7):
        send(log, number * 2, records=2)
    end = log.log_end_offset
    for number in range(2, 7):
        result = send(log, number * 2, records=2)
        assert (result.base_offset, result.last_offset, result.duplicate) == (number * 2, number * 2 + 1, True)
    assert log.log_end_offset == end
    with pytest.raises(OutOfOrderSequence):
        send(log, 2, records=2)


def test_a_gap_is_refused_and_nothing_written(log: PartitionLog) -> None:
    send(log, 0)
    with pytest.raises(OutOfOrderSequence) as refused:
        send(log, 2)
    assert refused.value.error_code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 1


def test_a_repeat_with_another_count_is_no_repeat(log: PartitionLog) -> None:
    send(log, 0, records=2)
    with pytest.raises(OutOfOrderSequence):
        send(log, 0, records=3)


def test_other_records_under_a_sequence_are_no_repeat(log: PartitionLog) -> None:
    """librdkafka gives a batch's sequence to other records, when it thinks that the broker did not keep the first."""
    send(log, 0)
    with pytest.raises(OutOfOrderSequence, match="offset 0"):
        send(log, 0, value=b"w")
    assert send(log, 0).duplicate
    assert log.log_end_offset == 1


@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize("restart", [None, True, False])
def test_the_same_records_in_a_later_transaction_are_no_repeat(
    log: PartitionLog, commit: bool, restart: bool | None
) -> None:
    """Sent anew after an abort, under the sequence of a batch of which the client knew nothing: mostly the same."""
    send(log, 0, transactional=True)
    assert send(log, 0, transactional=True).duplicate
    marker(log, commit=commit)
    if restart is not None:
        log = reopened(log, clean=restart)
    with pytest.raises(OutOfOrderSequence, match="transaction has ended"):
        send(log, 0, transactional=True)
    assert send(log, 1, transactional=True).base_offset == 2
    with pytest.raises(OutOfOrderSequence, match="transaction has ended"):
        send(log, 0, transactional=True)
    assert send(log, 1, transactional=True).duplicate


def test_the_same_records_with_other_times_are_a_repeat(log: PartitionLog) -> None:
    """KafkaJS takes the time at each encoding; a broker sets its own; a codec is chosen anew."""
    for shift_ms, compression in ((0, Compression.NONE), (300, Compression.NONE), (0, Compression.GZIP)):
        batch = batch_of(
            b"v",
            timestamps=[NOW_MS + shift_ms],
            compression=compression,
            producer_id=7,
            producer_epoch=0,
            base_sequence=0,
        )
        assert log.append(batch, leader_epoch=0).base_offset == 0
    log.update_config(replace(CONFIG, message_timestamp_type="LogAppendTime"))
    send(log, 1)
    assert send(log, 1).duplicate
    with pytest.raises(OutOfOrderSequence, match="offset 1"):
        send(log, 1, value=b"w")


def test_where_the_log_cannot_tell_what_was_sent_it_is_a_repeat(log: PartitionLog) -> None:
    send(log, 0)
    log.high_watermark = 1
    log.delete_records_before(1)
    assert send(log, 0, value=b"w").duplicate


def test_sequences_wrap_to_zero(log: PartitionLog) -> None:
    send(log, 2**31 - 2, records=3)
    with pytest.raises(OutOfOrderSequence):
        send(log, 0)
    assert send(log, 1).base_offset == 3
    assert send(log, 2**31 - 2, records=3).duplicate


def test_an_id_without_state_may_start_anywhere(log: PartitionLog) -> None:
    assert send(log, 41).base_offset == 0


def test_a_new_epoch_starts_at_zero_and_fences_the_old(log: PartitionLog) -> None:
    send(log, 0)
    with pytest.raises(OutOfOrderSequence):
        send(log, 1, epoch=1)
    send(log, 0, epoch=1)
    with pytest.raises(ProducerRefused) as refused:
        send(log, 1, epoch=0)
    assert refused.value.error_code is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("clean", [True, False])
def test_what_is_known_of_producers_survives_a_restart(log: PartitionLog, clean: bool) -> None:
    for number in range(30):
        send(log, number, records=1)
    send(log, 0, pid=8, transactional=True)
    marker(log, pid=9, epoch=4)
    before = {state.producer_id: state for state in log.producers}

    again = reopened(log, clean=clean)

    assert {state.producer_id: state for state in again.producers} == before
    assert send(again, 26).duplicate
    with pytest.raises(OutOfOrderSequence):
        send(again, 31)
    assert again.last_stable_offset == 30
    with pytest.raises(ProducerRefused):
        send(again, 0, pid=9, epoch=3)


def test_a_damaged_snapshot_costs_a_longer_replay_not_the_state(log: PartitionLog) -> None:
    for number in range(30):
        send(log, number)
    before = {state.producer_id: state for state in log.producers}
    log.close()
    newest = max(log.directory.glob("*.snapshot"))
    newest.write_bytes(newest.read_bytes()[:-3])
    again = PartitionLog.open(log.directory, CONFIG, ManualClock(NOW_MS))
    assert {state.producer_id: state for state in again.producers} == before


def test_the_marker_fences_a_producer_that_never_wrote_here(log: PartitionLog) -> None:
    assert marker(log, epoch=5) == 0
    with pytest.raises(ProducerRefused) as refused:
        send(log, 0, epoch=4)
    assert refused.value.error_code is ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(OutOfOrderSequence):
        send(log, 3, epoch=5)
    with pytest.raises(OutOfOrderSequence):
        send(log, 3, epoch=6)
    assert send(log, 0, epoch=6).base_offset == 1


def test_after_a_marker_of_the_same_epoch_sequences_go_on(log: PartitionLog) -> None:
    send(log, 0, transactional=True)
    marker(log, commit=True)
    assert send(log, 1, transactional=True).base_offset == 2


def test_a_marker_from_the_past_is_refused(log: PartitionLog) -> None:
    marker(log, epoch=5, coordinator_epoch=3)
    with pytest.raises(ProducerRefused):
        marker(log, epoch=4, coordinator_epoch=3)
    with pytest.raises(CoordinatorFenced) as refused:
        marker(log, epoch=5, coordinator_epoch=2)
    assert refused.value.error_code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert log.log_end_offset == 1


def test_an_open_transaction_holds_the_last_stable_offset(log: PartitionLog) -> None:
    send(log, 0, pid=1)
    send(log, 0, pid=7, transactional=True, records=2)
    send(log, 0, pid=8, transactional=True)
    send(log, 1, pid=1)
    assert (log.last_stable_offset, log.high_watermark) == (1, 5)
    with pytest.raises(InvalidTransactionState):
        send(log, 2, pid=7)
    marker(log, pid=7)
    assert log.last_stable_offset == 3
    marker(log, pid=8, commit=True)
    assert log.last_stable_offset == log.log_end_offset == 7


@pytest.mark.parametrize("clean", [True, False, None])
def test_aborted_transactions_are_told_for_the_range_they_overlap(log: PartitionLog, clean: bool | None) -> None:
    send(log, 0, pid=7, transactional=True)  # 0
    send(log, 0, pid=8, transactional=True)  # 1
    marker(log, pid=7)  # 2
    for number in range(20):
        send(log, number, pid=1)  # 3..22
    marker(log, pid=8)  # 23
    send(log, 1, pid=7, transactional=True)  # 24
    marker(log, pid=7, commit=True)  # 25
    if clean is not None:
        log = reopened(log, clean=clean)
    assert len(list(log.directory.glob("*.log"))) > 1
    assert log.aborted_transactions(0, 26) == [(7, 0), (8, 1)]
    assert log.aborted_transactions(0, 1) == [(7, 0)]
    assert log.aborted_transactions(3, 10) == [(8, 1)]
    assert log.aborted_transactions(24, 26) == []


def test_ids_are_forgotten_a_day_after_their_last_write(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    log = PartitionLog.open(tmp_path, LogConfig(retention_ms=-1), clock)
    send(log, 0, pid=7)
    send(log, 0, pid=8, transactional=True)
    clock.advance(PRODUCER_ID_EXPIRATION_MS)
    log.enforce_retention()
    assert log.producer(7) is not None
    clock.advance(1)
    log.enforce_retention()
    assert log.producer(7) is None
    assert log.producer(8) is not None, "a transaction is open"
    assert send(log, 99, pid=7).base_offset == 2


def test_truncation_takes_producers_back(log: PartitionLog) -> None:
    for number in range(20):
        send(log, number)
    log.truncate_to(12)
    assert send(log, 12).base_offset == 12
    assert [record.offset for record in records_in(log)] == list(range(13))


@pytest.mark.parametrize("clean", [True, False])
def test_a_producer_of_old_records_is_not_forgotten_before_its_day_is_over(tmp_path: Path, clean: bool) -> None:
    """A copy keeps its records' old timestamps: the expiration counts from the append, or the fence would be gone."""
    clock = ManualClock(NOW_MS)
    log = PartitionLog.open(tmp_path, CONFIG, clock)
    marker(log, epoch=1)
    old_ms = NOW_MS - 10 * PRODUCER_ID_EXPIRATION_MS
    log.append(batch_of(b"v", timestamps=[old_ms], producer_id=7, producer_epoch=1, base_sequence=0), leader_epoch=0)
    log.enforce_retention()
    log = reopened(log, clean=clean)
    with pytest.raises(ProducerRefused):
        send(log, 0, epoch=0)
