"""Which batches are refused, with which error, and that a refused batch leaves no trace."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from broker.errors import BrokerError
from broker.log.config import LogConfig
from broker.log.partition_log import AppendOrigin, PartitionLog
from broker.wire.batch import CRC_OFFSET, LOG_APPEND_TIME_MASK, iter_batches, pack_header, patch_log_append_time, peek
from broker.wire.compression import Compression
from broker.wire.errors import ErrorCode
from broker.wire.records import ControlKind, control_batch, decode_records
from tests.broker.clock import ManualClock
from tests.broker.log.support import NOW_MS, batch_of, records_in

HOUR_MS = 3_600_000


def wrong_crc() -> bytearray:
    batch = batch_of(b"v")
    batch[CRC_OFFSET] ^= 1
    return batch


def header_with(**changes: int) -> bytearray:
    batch = batch_of(b"a", b"b", producer_id=changes.pop("pid", -1))
    pack_header(batch, peek(batch)._replace(**changes))
    return batch


def old_magic() -> bytearray:
    batch = batch_of(b"v")
    batch[16] = 1
    return batch


def control() -> bytearray:
    return control_batch(ControlKind.ABORT, coordinator_epoch=0, producer_id=1, producer_epoch=0, timestamp_ms=NOW_MS)


REFUSED: list[tuple[str, Callable[[], bytearray], ErrorCode]] = [
    ("wrong crc", wrong_crc, ErrorCode.CORRUPT_MESSAGE),
    ("cut short", lambda: batch_of(b"v")[:-1], ErrorCode.CORRUPT_MESSAGE),
    ("shorter than a header", lambda: batch_of(b"v")[:30], ErrorCode.CORRUPT_MESSAGE),
    ("nothing", bytearray, ErrorCode.INVALID_RECORD),
    ("two batches", lambda: batch_of(b"v") + batch_of(b"w"), ErrorCode.INVALID_RECORD),
    ("old format", old_magic, ErrorCode.INVALID_RECORD),
    ("count too high", lambda: header_with(record_count=3), ErrorCode.INVALID_RECORD),
    ("no records", lambda: header_with(record_count=0, last_offset_delta=-1), ErrorCode.INVALID_RECORD),
    ("control", control, ErrorCode.INVALID_RECORD),
    ("id without sequence", lambda: header_with(pid=5, producer_epoch=0), ErrorCode.INVALID_RECORD),
    ("transactional without id", lambda: header_with(attributes=0x10), ErrorCode.INVALID_RECORD),
    ("unknown codec", lambda: header_with(attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ("too large", lambda: batch_of(b"x" * 2000), ErrorCode.MESSAGE_TOO_LARGE),
    ("from the future", lambda: batch_of(b"v", timestamps=[NOW_MS + HOUR_MS + 1]), ErrorCode.INVALID_TIMESTAMP),
]


@pytest.mark.parametrize(("make", "code"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_refused(tmp_path: Path, make: Callable[[], bytearray], code: ErrorCode) -> None:
    log = PartitionLog.open(tmp_path, LogConfig(max_message_bytes=1000), ManualClock(NOW_MS))
    log.append(batch_of(b"before"), leader_epoch=0)
    with pytest.raises(BrokerError) as refused:
        log.append(make(), leader_epoch=0)
    assert refused.value.error_code is code
    assert refused.value.hint
    assert [record.value for record in records_in(log)] == [b"before"]


@pytest.mark.parametrize("compression", list(Compression))
def test_a_batch_is_kept_as_it_came(tmp_path: Path, compression: Compression) -> None:
    log = PartitionLog.open(tmp_path, LogConfig(), ManualClock(NOW_MS))
    log.append(batch_of(b"before"), leader_epoch=2)
    sent = bytes(batch_of(b"a" * 500, b"b" * 500, compression=compression))
    log.append(bytearray(sent), leader_epoch=2)
    kept = b"".join(bytes(part) for part in log.read(1, 10_000, up_to=3, at_least_one=True).records)
    assert kept[8:12] + kept[16:] == sent[8:12] + sent[16:]
    assert (peek(kept).base_offset, peek(kept).partition_leader_epoch) == (1, 2)


def test_a_compacted_topic_needs_keys(tmp_path: Path) -> None:
    log = PartitionLog.open(tmp_path, LogConfig(cleanup_policy=frozenset({"compact"})), ManualClock(NOW_MS))
    with pytest.raises(BrokerError) as refused:
        log.append(batch_of(b"a", b"b", b"c", keys=[b"k", None, None]), leader_epoch=0)
    assert refused.value.error_code is ErrorCode.INVALID_RECORD
    assert getattr(refused.value, "record_indexes", ()) == (1, 2)


def test_records_too_old_are_named(tmp_path: Path) -> None:
    config = LogConfig(message_timestamp_before_max_ms=HOUR_MS)
    log = PartitionLog.open(tmp_path, config, ManualClock(NOW_MS))
    with pytest.raises(BrokerError) as refused:
        log.append(batch_of(b"a", b"b", timestamps=[NOW_MS, NOW_MS - HOUR_MS - 1]), leader_epoch=0)
    assert refused.value.error_code is ErrorCode.INVALID_TIMESTAMP
    assert getattr(refused.value, "record_indexes", ()) == (1,)
    log.append(batch_of(b"a", b"b", timestamps=[-1, NOW_MS - HOUR_MS]), leader_epoch=0)


def test_log_append_time_is_the_brokers(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    log = PartitionLog.open(tmp_path, LogConfig(message_timestamp_type="LogAppendTime"), clock)
    clock.advance(50)
    sent = batch_of(b"a", b"b", timestamps=[5, 6], producer_id=1, producer_epoch=0, base_sequence=0)
    result = log.append(bytearray(sent), leader_epoch=0)
    assert result.log_append_time_ms == NOW_MS + 50
    assert [record.timestamp for record in records_in(log)] == [NOW_MS + 50] * 2
    clock.advance(50)
    assert log.append(bytearray(sent), leader_epoch=0).log_append_time_ms == NOW_MS + 50, "a repeat keeps its time"
    marked = batch_of(b"c")
    patch_log_append_time(marked, NOW_MS)
    with pytest.raises(BrokerError) as refused:
        log.append(marked, leader_epoch=0)
    assert refused.value.error_code is ErrorCode.INVALID_TIMESTAMP


def test_a_batch_marked_log_append_time_shows_its_creation_times_in_a_create_time_topic(tmp_path: Path) -> None:
    log = PartitionLog.open(tmp_path, LogConfig(), ManualClock(NOW_MS))
    marked = batch_of(b"a", b"b", b"c", timestamps=[5, 90, 6])
    patch_log_append_time(marked, NOW_MS)
    log.append(marked, leader_epoch=0)
    ((header, batch),) = iter_batches(log.read(0, 1000, up_to=3, at_least_one=True).records[0])
    assert not header.attributes & LOG_APPEND_TIME_MASK
    assert header.max_timestamp == 90
    assert [record.timestamp for record in decode_records(batch)] == [5, 90, 6]
    assert PartitionLog.open(tmp_path, LogConfig(), ManualClock(NOW_MS)).log_end_offset == 3, "its CRC is right"


def test_the_brokers_own_batches_need_no_key_or_sequence(tmp_path: Path) -> None:
    config = replace(LogConfig(), cleanup_policy=frozenset({"compact"}))
    log = PartitionLog.open(tmp_path, config, ManualClock(NOW_MS))
    batch = batch_of(b"offset", producer_id=3, producer_epoch=0, transactional=True)
    log.append(batch, leader_epoch=0, origin=AppendOrigin.COORDINATOR)
    assert (log.log_end_offset, log.last_stable_offset) == (1, 0)
