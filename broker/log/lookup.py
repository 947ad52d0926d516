"""Finding records by their time. The answer is the record's own offset: the one batch that holds it is opened.

A batch is taken in by its header and CRC, so a client may have put one into the log whose records cannot be read, whose
largest timestamp none of them has, or that is a million records in 800 bytes. It must not make the partition's times
unusable: a batch that cannot be opened, or not within what is left of the lookup's limits, counts as one record, of its
first offset and its largest timestamp.
"""

from collections.abc import Iterator, Sequence
from heapq import nlargest
from itertools import islice
from typing import TypeAlias

from broker.limits import (
    LOOKUP_SEGMENTS_MAX,
    OPENED_AT_ONCE_FOR_LOOKUP_MAX,
    OPENED_FOR_LOOKUP_MAX,
    PASSED_AT_ONCE_BATCHES_MAX,
)
from broker.log.segment import Segment
from broker.log.store import LogStore
from broker.log.stored import AT_ONCE, MOST, stored_records
from broker.wire.batch import BatchHeader
from broker.wire.errors import BatchBeyondLimits, CorruptBatch
from broker.wire.vocabulary import NO_TIMESTAMP

Found: TypeAlias = tuple[int, int] | None
"""(offset, timestamp) of a record."""


class TimeLookup:
    """One lookup in `segments`, in their order. With `at_once` it raises BatchBeyondLimits where it would take the
    event loop longer than a few milliseconds, and is to be made again in a thread.
    """

    def __init__(self, segments: Sequence[Segment], *, log_start_offset: int, at_once: bool) -> None:
        self.segments = segments
        self._log_start_offset = log_start_offset
        self._at_once = at_once
        self._limits = AT_ONCE if at_once else MOST
        self._passed = 0
        self._opened = 0

    def first_at_or_after(self, timestamp_ms: int, up_to: int) -> Found:
        """The first record whose timestamp is >= `timestamp_ms`, None when there is none before `up_to`."""
        for segment in self.segments:
            if segment.max_timestamp_ms < timestamp_ms:
                continue
            start = segment.position_of(segment.time_index.search_from(timestamp_ms))
            for position, header in self._headers(segment, start):
                if header.base_offset >= up_to:
                    return None
                if header.max_timestamp < timestamp_ms or header.last_offset < self._log_start_offset:
                    continue
                for offset, record_ms in self._times(segment, position, header):
                    if record_ms >= timestamp_ms:
                        return (offset, record_ms) if offset < up_to else None
        return None

    def latest(self) -> Found:
        """The first record that has the largest timestamp; None where no record has one."""
        best: Found = None
        for segment in latest_of(self.segments, self._log_start_offset):
            if best is not None and segment.max_timestamp_ms < best[1]:
                break
            found = self._latest_in(segment)
            if found is not None and found[1] >= 0:
                best = max(found, best or found, key=_later)
        return best

    def close(self) -> None:
        """For a lookup in segments that were opened for it."""
        for segment in self.segments:
            segment.close()

    def _latest_in(self, segment: Segment) -> Found:
        if segment.max_timestamp_offset >= self._log_start_offset:
            # One batch is known to have it.
            start, only = segment.position_of(segment.max_timestamp_offset), True
        else:
            start, only = segment.position_of(self._log_start_offset), False
        headers = islice(self._headers(segment, start), 1 if only else None)
        claims = nlargest(OPENED_FOR_LOOKUP_MAX, headers, key=lambda found: (found[1].max_timestamp, -found[0]))
        best: Found = None
        for position, header in claims:
            if best is not None and header.max_timestamp < best[1]:
                break
            best = max([*self._times(segment, position, header), *([best] if best else [])], key=_later, default=None)
        return best

    def _headers(self, segment: Segment, start: int) -> Iterator[tuple[int, BatchHeader]]:
        for found in segment.headers(start):
            self._passed += 1
            if self._at_once and self._passed > PASSED_AT_ONCE_BATCHES_MAX:
                raise BatchBeyondLimits(f"more than {PASSED_AT_ONCE_BATCHES_MAX} batches to pass")
            yield found

    def _times(self, segment: Segment, position: int, header: BatchHeader) -> list[tuple[int, int]]:
        """(offset, timestamp) of the batch's records from the log start on."""
        start = self._log_start_offset
        closed = [(max(header.base_offset, start), header.max_timestamp)]
        try:
            self._opened += 1
            if self._opened > (OPENED_AT_ONCE_FOR_LOOKUP_MAX if self._at_once else OPENED_FOR_LOOKUP_MAX):
                raise BatchBeyondLimits(f"{self._opened} batches to open for one lookup")
            if header.size_bytes > self._limits.max_bytes:
                raise BatchBeyondLimits(f"a batch of {header.size_bytes} bytes to open")
            records = stored_records(segment.batch_at(position), self._limits)
        except BatchBeyondLimits:
            if self._at_once:
                raise
            return closed
        except CorruptBatch:
            return closed
        return [(record.offset, record.timestamp) for record in records if record.offset >= start]


def _later(found: tuple[int, int]) -> tuple[int, int]:
    """The key by which of two records the later counts, and of two of one time the first."""
    return found[1], -found[0]


def lookups_apart(store: LogStore, timestamp_ms: int) -> Iterator[TimeLookup]:
    """Lookups in segments opened once more, which nothing that happens to the log disturbs: one after the other, until
    one finds something, each to be closed. NO_TIMESTAMP asks for the latest time. Raises OSError.
    """
    at, latest = store.log_start_offset, timestamp_ms == NO_TIMESTAMP
    while not store.closed:
        chosen = latest_of(store.segments, at) if latest else _holding(store.segments, timestamp_ms, at)
        if not chosen:
            return
        yield TimeLookup(
            [segment.reader() for segment in chosen], log_start_offset=store.log_start_offset, at_once=False
        )
        if latest:
            return
        at = chosen[-1].next_offset


def latest_of(segments: Sequence[Segment], log_start_offset: int) -> list[Segment]:
    """The few segments whose times claim to be the largest, the larger ones first."""
    live = [segment for segment in segments if segment.next_offset > log_start_offset and segment.max_timestamp_ms >= 0]
    return sorted(live, key=lambda s: (-s.max_timestamp_ms, s.base_offset))[:LOOKUP_SEGMENTS_MAX]


def _holding(segments: Sequence[Segment], timestamp_ms: int, from_offset: int) -> list[Segment]:
    """The first few segments that may hold a record of this time or a later one, from an offset on."""
    found = (s for s in segments if s.next_offset > from_offset and s.max_timestamp_ms >= timestamp_ms)
    return list(islice(found, LOOKUP_SEGMENTS_MAX))
