"""Lag from what was seen. Pure."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.client.site import Site
from broker.wire.batch import BatchHeader, iter_batches, patch_base_offset
from broker.wire.records import ControlKind, Record, control_batch, encode_batch
from broker.wire.vocabulary import TopicPartition
from mirror.lag import Ends, PartitionLag, Unmirrored, measure_lag
from mirror.link import Link
from tests.broker.horizon import kept_tombstone

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
    assert (lag.lag_bytes, lag.lag_seconds, lag.lag_span_seconds) == (None, None, None)


def test_a_position_inside_of_a_batch() -> None:
    lag = measure(4, 10, Unmirrored(headers(0, [10]), True, None))
    assert lag.lag_records == 6


def marker(offset: int) -> tuple[BatchHeader, ...]:
    """The marker of a transaction: an offset without a record."""
    batch = control_batch(
        ControlKind.COMMIT,
        coordinator_epoch=0,
        producer_id=7,
        producer_epoch=0,
        timestamp_ms=NOW_MS - 9_000,
        base_offset=offset,
    )
    return tuple(header for header, _ in iter_batches(batch))


def test_markers_are_no_records_and_have_no_age() -> None:
    found = (*marker(0), *headers(1, [3]))
    lag = measure(0, 4, Unmirrored(found, True, NOW_MS))
    assert (lag.lag_offsets, lag.lag_records) == (4, 3)
    assert lag.oldest_unmirrored_timestamp_ms == NOW_MS - 5_000 + 1


def test_only_markers_are_a_lag_in_offsets_but_not_in_records_or_seconds() -> None:
    lag = measure(0, 1, Unmirrored(marker(0), True, NOW_MS))
    assert (lag.lag_offsets, lag.lag_records, lag.lag_records_estimated) == (1, 0, False)
    assert (lag.lag_bytes, lag.lag_bytes_estimated) == (0, False)
    assert (lag.lag_seconds, lag.lag_span_seconds, lag.oldest_unmirrored_timestamp_ms) == (0.0, 0.0, None)


def test_as_long_as_a_record_may_be_missing_the_lag_is_not_zero() -> None:
    """Compaction may have emptied the batch before the position as well as the part behind it: who knows."""
    lag = measure(9, 10, Unmirrored(headers(0, [1, 1]), True, None))
    assert (lag.lag_offsets, lag.lag_records) == (1, 1)


def test_timestamps_of_tomorrow_are_no_negative_lag() -> None:
    found = headers(0, [2], timestamp_ms=NOW_MS + 60_000)
    lag = measure(0, 2, Unmirrored(found, True, NOW_MS))
    assert (lag.lag_seconds, lag.lag_span_seconds) == (0.0, 0.0)
    assert lag.lag_records == 2


def test_how_long_a_tombstone_is_kept_is_not_when_it_was_written() -> None:
    """Kafka's cleaner writes a time of tomorrow into the header: the lag would be 0 while records are behind."""
    batch = kept_tombstone(0, NOW_MS - 60_000, b"k", horizon_ms=NOW_MS + 86_400_000)
    found = (*(header for header, _ in iter_batches(batch)), *headers(1, [1], NOW_MS - 1_001))
    lag = measure(0, 2, Unmirrored(found, True, NOW_MS - 1_000))
    assert (lag.lag_records, lag.lag_seconds, lag.lag_span_seconds) == (2, 60.0, 59.0)


def test_the_age_is_by_the_times_that_the_broker_stamped() -> None:
    batch = encode_batch([Record(0, NOW_MS + 60_000, b"k", b"")], log_append_time_ms=NOW_MS - 5_000)
    lag = measure(0, 1, Unmirrored(tuple(header for header, _ in iter_batches(batch)), True, NOW_MS - 5_000))
    assert (lag.lag_seconds, lag.lag_span_seconds) == (5.0, 0.0)


def test_the_age_is_that_of_the_oldest_not_of_the_newest() -> None:
    found = (*headers(0, [1], NOW_MS - 60_000), *headers(1, [1], NOW_MS - 1_001))
    lag = measure(0, 2, Unmirrored(found, True, NOW_MS - 1_000))
    assert (lag.lag_seconds, lag.lag_span_seconds) == (60.0, 59.0)


def test_a_position_behind_the_source_is_no_negative_lag() -> None:
    lag = measure(12, 10, Unmirrored(headers(9, [1]), True, NOW_MS))
    assert (lag.lag_offsets, lag.lag_records, lag.lag_bytes, lag.lag_seconds) == (0, 0, 0, 0.0)
    assert not lag.lag_records_estimated


def test_what_the_source_already_deleted_is_not_counted_as_to_come() -> None:
    lag = measure_lag(LINK, WHERE, Ends(40, 50, 10, 10), Unmirrored(headers(40, [10]), True, None), NOW_MS)
    assert (lag.mirrored_offset, lag.lag_offsets, lag.lag_records) == (10, 10, 10)


def test_the_names_of_both_sites_are_told() -> None:
    prefixed = Link("l", Site("east", "e:1"), Site("west", "w:1"), (".*",), "prefixed")
    lag = measure_lag(prefixed, WHERE, Ends(3, 3, 3, 8), None, NOW_MS)
    assert (lag.topic, lag.target_topic, lag.source_end_offset, lag.target_end_offset) == ("t", "east.t", 3, 8)


def test_markers_at_the_head_of_a_long_tail_do_not_hide_it() -> None:
    lag = measure(0, 1000, Unmirrored(marker(0), False, NOW_MS))
    assert (lag.lag_records, lag.lag_records_estimated) == (1000, True)
    assert (lag.lag_seconds, lag.lag_span_seconds) == (None, None)


@given(st.integers(0, 20), st.integers(0, 20), st.booleans(), st.sampled_from([-1, NOW_MS - 5_000]))
def test_no_time_is_said_to_be_zero_while_records_are_behind(
    start: int, behind: int, looked: bool, timestamp_ms: int
) -> None:
    found = headers(start, [behind], timestamp_ms) if behind else ()
    sample = Unmirrored(found, True, None) if looked and found else None
    lag = measure(start, start + behind, sample)
    if lag.lag_records:
        assert lag.lag_seconds != 0.0
        assert lag.lag_bytes != 0
    else:
        assert (lag.lag_seconds, lag.lag_bytes) == (0.0, 0)


def test_a_record_without_a_timestamp_does_not_look_as_old_as_time() -> None:
    found = (*headers(0, [1], timestamp_ms=-1), *headers(1, [1], NOW_MS - 2_001))
    lag = measure(0, 2, Unmirrored(found, True, NOW_MS - 2_000))
    assert (lag.lag_seconds, lag.lag_records) == (2.0, 2)
