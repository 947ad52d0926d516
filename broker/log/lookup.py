"""Finding records by their time. The answer is the record's own offset: the one batch that holds it is opened.

A batch is taken in by its header and CRC, so a client may have put one into the log whose records cannot be read. It
must not make the partition's times unusable: such a batch then counts as one record, of its first offset and its
largest timestamp.
"""

from collections.abc import Sequence

from broker.log.segment import Segment
from broker.log.stored import stored_records
from broker.wire.batch import BatchHeader
from broker.wire.errors import CorruptBatch


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
            for offset, record_ms in _times(segment, position, header, log_start_offset):
                if record_ms >= timestamp_ms:
                    return (offset, record_ms) if offset < up_to else None
    return None


def latest_timestamp(segments: Sequence[Segment], *, log_start_offset: int) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record that has the largest timestamp; None where no record has one."""
    best: tuple[int, int] | None = None
    for segment in segments:
        if segment.max_timestamp_ms < 0 or segment.next_offset <= log_start_offset:
            continue
        if best is not None and segment.max_timestamp_ms <= best[1]:
            continue
        found = _latest_in(segment, log_start_offset)
        if found is not None and found[1] > (-1 if best is None else best[1]):
            best = found
    return best


def _latest_in(segment: Segment, log_start_offset: int) -> tuple[int, int] | None:
    if segment.max_timestamp_offset >= log_start_offset:
        # One batch is known to have it.
        start, only = segment.position_of(segment.max_timestamp_offset), True
    else:
        start, only = segment.position_of(log_start_offset), False
    best: tuple[int, int] | None = None
    for position, header in segment.headers(start):
        if best is None or header.max_timestamp > best[1]:
            times = _times(segment, position, header, log_start_offset)
            best = max([*times, *([best] if best else [])], key=lambda pair: (pair[1], -pair[0]), default=None)
        if only:
            break
    return best


def _times(segment: Segment, position: int, header: BatchHeader, log_start_offset: int) -> list[tuple[int, int]]:
    """(offset, timestamp) of the batch's records from the log start on."""
    try:
        records = stored_records(segment.batch_at(position))
    except CorruptBatch:
        return [(max(header.base_offset, log_start_offset), header.max_timestamp)]
    return [(record.offset, record.timestamp) for record in records if record.offset >= log_start_offset]
