"""Lag from what was seen. Pure."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.client.site import Site
from broker.wire.batch import BatchHeader, iter_batches, patch_base_offset
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from mirror.lag import Ends, PartitionLag, Unmirrored, measure_lag
from mirror.link import Link

LINK = Link("l", Site("east", "e:1"), Site("west", "w:1"), (".*",))
WHERE = TopicPartition("t", 0)
NOW_MS = 1_000_000


def headers(start: int, sizes: list[int], timestamp_ms: int = NOW_MS - 5_000) -> tuple[BatchHeader, ...]:
    log = bytearray()
    offset = start
    for size in sizes:
        batch = encode_batch([Record(i, timestamp_ms + offset + i, b"k", b"v" * 10) for i in range(size)])
        patch_base_offset(batch, offset)
        log += batch
        offset += size
    return tuple(header for header, _ in iter_batches(log))


def measure(start: int, end: int, sample: Unmirrored | None) -> PartitionLag:
    return measure_lag(LINK, WHERE, Ends(start, end, start, None), sample, NOW_MS)


def test_nothing_unmirrored_is_exactly_zero() -> None:
    lag = measure(10, 10, None)
    assert (lag.lag_offsets, lag.lag_records, lag.lag_bytes, lag.lag_seconds) == (0, 0, 0, 0.0)
    assert not lag.lag_records_estimated
    assert not lag.lag_bytes_estimated


@given(st.integers(0, 50), st.lists(st.integers(1, 9), min_size=1, max_size=8))
def test_a_whole_sample_is_exact(start: int, sizes: list[int]) -> None:
    found = headers(start, sizes)
    end = start + sum(sizes)
    lag = measure(start, end, Unmirrored(found, True, found[-1].max_timestamp))
    assert lag.lag_records == sum(sizes) == lag.lag_offsets
    assert lag.lag_bytes == sum(header.size_bytes for header in found)
    assert not lag.lag_records_estimated
    assert not lag.lag_bytes_estimated
    assert lag.lag_seconds == (5_000 - start) / 1000
    assert lag.lag_span_seconds == (sum(sizes) - 1) / 1000


def test_compacted_records_are_not_counted_when_all_is_seen() -> None:
    found = (*headers(0, [5]), *headers(100, [5]))
    lag = measure(0, 105, Unmirrored(found, True, None))
    assert lag.lag_offsets == 105
    assert lag.lag_records == 10


def test_a_part_of_the_tail_gives_an_estimate_that_says_so() -> None:
    found = headers(0, [10, 10])
    lag = measure(0, 1000, Unmirrored(found, False, NOW_MS))
    assert lag.lag_records == 1000
    assert lag.lag_records_estimated
    assert lag.lag_bytes_estimated
    assert lag.lag_bytes == round(sum(header.size_bytes for header in found) / 20 * 1000)
    assert lag.lag_span_seconds == 5.0


def test_without_a_look_the_offsets_are_told_as_an_estimate() -> None:
    lag = measure(0, 7, None)
    assert lag.lag_records == 7
    assert lag.lag_records_estimated
    assert lag.lag_bytes_estimated


def test_a_position_inside_of_a_batch() -> None:
    lag = measure(4, 10, Unmirrored(headers(0, [10]), True, None))
    assert lag.lag_records == 6
