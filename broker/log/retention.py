"""When a segment is full, and which segments have had their time. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from broker.limits import SEGMENT_BYTES_MAX, SEGMENT_OFFSETS_MAX
from broker.log.config import FOREVER, UNLIMITED, LogConfig
from broker.wire.batch import BatchHeader


class SegmentFacts(NamedTuple):
    """`end_offset` (exclusive) is where the next segment begins, or the log ends. `largest_timestamp_ms` is that of the
    records, or the file's where they have none.
    """

    end_offset: int
    size_bytes: int
    largest_timestamp_ms: int


def is_full(
    config: LogConfig,
    *,
    size_bytes: int,
    base_offset: int,
    first_timestamp_ms: int,
    batch: BatchHeader,
    log_end_offset: int,
) -> bool:
    """True when the batch must open a new segment. By time as in Kafka: what the records say has passed, not the
    clock.
    """
    if size_bytes == 0:
        return False
    if size_bytes + batch.size_bytes > min(config.segment_bytes, SEGMENT_BYTES_MAX):
        return True
    if log_end_offset + batch.last_offset_delta - base_offset > SEGMENT_OFFSETS_MAX:
        return True
    return first_timestamp_ms >= 0 and batch.max_timestamp - first_timestamp_ms > config.segment_ms


def unsegmented(config: LogConfig) -> LogConfig:
    """A segment then ends only where its files cannot take more."""
    return replace(config, segment_bytes=SEGMENT_BYTES_MAX, segment_ms=FOREVER)


def segments_to_delete(
    segments: Sequence[SegmentFacts], config: LogConfig, *, now_ms: int, log_start_offset: int, high_watermark: int
) -> int:
    """How many of the oldest segments may go; the last one, which is being written, counts only if it holds something.

    A segment goes when it lies wholly before the log start offset, or, with the delete policy, when its newest record
    is older than `retention.ms`, or when the rest still holds `retention.bytes`. Nothing at or above the high
    watermark ever goes.
    """
    excess_bytes = sum(segment.size_bytes for segment in segments) - config.retention_bytes
    for count, segment in enumerate(segments):
        is_last = count == len(segments) - 1
        if segment.end_offset > high_watermark or (is_last and segment.size_bytes == 0):
            return count
        before_start = segment.end_offset <= log_start_offset and not is_last
        too_old = (
            config.deleted_by_retention
            and config.retention_ms != UNLIMITED
            and segment.largest_timestamp_ms < now_ms - config.retention_ms
        )
        too_much = config.deleted_by_retention and config.retention_bytes >= 0 and excess_bytes >= segment.size_bytes
        if not (before_start or too_old or too_much):
            return count
        excess_bytes -= segment.size_bytes
    return len(segments)
