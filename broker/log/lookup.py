"""Finding records by their time. The answer is the record's own offset: the one batch that holds it is opened."""

from collections.abc import Sequence

from broker.log.segment import Segment
from broker.wire.records import decode_records


def first_at_or_after(
    segments: Sequence[Segment], timestamp_ms: int, *, log_start_offset: int, up_to: int
) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record whose timestamp is >= `timestamp_ms`, or None when there is none before
    `up_to`.
    """
    for segment in segments:
        if segment.max_timestamp_ms < timestamp_ms:
            continue
        start = segment.position_of(segment.time_index.search_from(timestamp_ms))
        for position, header in segment.headers(start):
            if header.base_offset >= up_to:
                return None
            if header.max_timestamp < timestamp_ms or header.last_offset < log_start_offset:
                continue
            for record in decode_records(segment.batch_at(position)):
                if record.timestamp >= timestamp_ms and record.offset >= log_start_offset:
                    return (record.offset, record.timestamp) if record.offset < up_to else None
    return None


def latest_timestamp(segments: Sequence[Segment], *, log_start_offset: int) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record that has the largest timestamp; None where no record has one."""
    best: tuple[int, int, Segment] | None = None
    for segment in segments:
        timestamp_ms, batch_offset = segment.max_timestamp_ms, segment.max_timestamp_offset
        if batch_offset < log_start_offset:
            timestamp_ms, batch_offset = _largest_from(segment, log_start_offset)
        if timestamp_ms >= 0 and (best is None or timestamp_ms > best[0]):
            best = timestamp_ms, batch_offset, segment
    if best is None:
        return None
    _, batch_offset, segment = best
    records = decode_records(segment.batch_at(segment.position_of(batch_offset)))
    kept = [record for record in records if record.offset >= log_start_offset]
    if not kept:
        return None
    latest = max(kept, key=lambda record: (record.timestamp, -record.offset))
    return latest.offset, latest.timestamp


def _largest_from(segment: Segment, offset: int) -> tuple[int, int]:
    """(largest timestamp, base offset of the first batch that has it) from the batch that holds `offset` on."""
    largest = (-1, segment.base_offset)
    for _, header in segment.headers(segment.position_of(offset)):
        if header.max_timestamp > largest[0]:
            largest = header.max_timestamp, header.base_offset
    return largest
