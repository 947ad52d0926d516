"""What a batch costs to look at is bounded by limits and not by what it claims or holds."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from broker.errors import RecordsRefused
from broker.limits import RECORD_ERRORS_MAX
from broker.log.config import LogConfig
from broker.log.partition_log import AppendOrigin, PartitionLog
from broker.log.stored import AT_ONCE
from broker.log.validation import check_batch, check_records
from broker.wire.compression import Compression
from broker.wire.errors import BatchBeyondLimits
from broker.wire.records import OpeningLimits, decode_records
from tests.broker.bombs import NOW_MS, SHAPES, bomb, counted_lines
from tests.broker.clock import ManualClock
from tests.broker.log.support import batch_of, max_timestamp, offset_for_timestamp

FEW_MS_LINES = 100_000
AT_ONCE_PEAK_BYTES = 8 << 20
CONFIGS = {
    "as it comes": LogConfig(max_message_bytes=2**31 - 1),
    "compacted": LogConfig(cleanup_policy=frozenset({"compact"}), max_message_bytes=2**31 - 1),
    "times bounded": LogConfig(message_timestamp_before_max_ms=1, max_message_bytes=2**31 - 1),
    "times from the broker": LogConfig(message_timestamp_type="LogAppendTime", max_message_bytes=2**31 - 1),
}
WRITERS = [*((codec, False) for codec in Compression), (Compression.SNAPPY, True)]


def within(check: Callable[..., object], batch: bytearray, *rest: object) -> bool:
    """False when it is more than the check may look at."""
    try:
        check(memoryview(batch), *rest)
    except BatchBeyondLimits:
        return False
    except RecordsRefused:
        pass
    return True


def hostile(shape: str, writer: tuple[Compression, bool], attributes: int = 0) -> bytearray:
    codec, raw = writer
    records, count = SHAPES[shape]()
    return bomb(codec, records, count, raw=raw, attributes=int(codec) | attributes)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: f"{writer[0].name}{'-raw' * writer[1]}")
def test_what_a_look_in_the_event_loop_costs_is_bounded(shape: str, writer: tuple[Compression, bool]) -> None:
    """Whatever the topic wants to know of its records, and also where they are marked as LogAppendTime."""
    for attributes in (0, 8):
        batch = hostile(shape, writer, attributes)
        came = bytes(batch)
        for config in CONFIGS.values():
            tracemalloc.start()
            try:
                with counted_lines() as lines:
                    looked_at = within(check_batch, batch, config, AppendOrigin.CLIENT, NOW_MS, AT_ONCE)
                _, peak_bytes = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert looked_at or bytes(batch) == came, "it is looked at once more"
            assert lines.count < FEW_MS_LINES
            assert peak_bytes < AT_ONCE_PEAK_BYTES
            batch = bytearray(came)


@pytest.mark.parametrize("codec", Compression)
def test_a_batch_at_the_limits_is_read_and_one_beyond_them_is_not(codec: Compression) -> None:
    limits = OpeningLimits(max_bytes=80_000, max_records=10_000)
    one = SHAPES["many records"]()[0][:8]
    assert len(decode_records(bomb(codec, one * 10_000, 10_000), limits)) == 10_000
    for records, count in ((one * 10_001, 10_001), (SHAPES["many headers in one record"]()[0], 1)):
        with pytest.raises(BatchBeyondLimits):
            decode_records(bomb(codec, records, count), OpeningLimits(2**31, 10_000))
    with pytest.raises(BatchBeyondLimits):
        decode_records(bomb(codec, bytes(80_001), 1), limits)


def test_a_million_wrong_records_are_named_by_the_first() -> None:
    """A batch that stays closed may say that it has any number of records."""
    batch = bomb(Compression.ZSTD, b"", 2**31 - 1, attributes=int(Compression.ZSTD) | 8)
    with pytest.raises(RecordsRefused) as refused:
        check_batch(memoryview(batch), CONFIGS["times from the broker"], AppendOrigin.CLIENT, NOW_MS)
    assert refused.value.record_indexes == tuple(range(RECORD_ERRORS_MAX))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_stored_bomb_stops_neither_times_nor_compaction(tmp_path: Path, shape: str) -> None:
    """An earlier version took it in: it counts as one record, and is kept."""
    config = replace(CONFIGS["compacted"], segment_bytes=300, min_cleanable_dirty_ratio=0)
    log = PartitionLog.open(tmp_path, config, ManualClock(NOW_MS))
    log.append(batch_of(b"before", timestamps=[NOW_MS - 9]), leader_epoch=0)
    records, count = SHAPES[shape]()
    stored = bomb(Compression.ZSTD, records, count, max_timestamp=NOW_MS + 5)
    end = log.append(stored, leader_epoch=0, origin=AppendOrigin.COORDINATOR).last_offset + 1
    log.append(batch_of(b"after", timestamps=[NOW_MS + 9]), leader_epoch=0)
    with counted_lines() as lines, suppress(BatchBeyondLimits):
        log.find_time(lambda lookup: lookup.first_at_or_after(NOW_MS + 1, end))
    assert lines.count < FEW_MS_LINES
    found = [one.first_at_or_after(NOW_MS + 1, end) for one in log.time_lookups_apart(NOW_MS + 1)]
    assert found[0] in ((1, NOW_MS + 5), None), "the bomb itself, or nothing where its records are older"
    assert offset_for_timestamp(log, NOW_MS + 6, up_to=end + 1) == (end, NOW_MS + 9)
    assert max_timestamp(log) == (end, NOW_MS + 9)
    log.append(batch_of(b"after", timestamps=[NOW_MS + 9]), leader_epoch=0)
    log.append(batch_of(b"x" * 300, timestamps=[NOW_MS + 9]), leader_epoch=0)
    job = log.begin_compaction()
    assert job is not None
    job.run()
    assert log.finish_compaction(job)
    log.close()


def test_what_full_validation_costs_is_bounded() -> None:
    for shape in SHAPES:
        batch = hostile(shape, (Compression.ZSTD, False))
        with counted_lines() as lines:
            within(check_records, batch, AT_ONCE)
        assert lines.count < FEW_MS_LINES


def test_a_wide_index_interval_does_not_make_reads_walk_the_log(tmp_path: Path) -> None:
    log = PartitionLog.open(tmp_path, LogConfig(index_interval_bytes=2**31 - 1), ManualClock(NOW_MS))
    for _ in range(5_000):
        log.append(batch_of(b""), leader_epoch=0)
    with counted_lines() as lines:
        log.read(4_900, 100, up_to=log.log_end_offset, at_least_one=True)
    assert lines.count < FEW_MS_LINES / 10
    log.close()
