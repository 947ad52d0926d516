"""Digests of batches that nobody opens: from bytes as a broker stores them to sums by range of source offsets. Pure.

The mirror passes a batch through with its records as they came, compressed or not, and patches of its header what says
where it stands and who sent it. So where both sites have the same bytes but for that, they have the same records, and
one hash over bytes tells. Nothing else is told here: a batch that was made anew differs in its bytes, whatever its
records are, and is for who opens it.

A range's digest has what that of records has: their number, bytes, and three sums modulo 2^64, here of three parts of
one hash for each batch (`BatchHash`). And it has a number of batches of which nothing can be said unopened
(`unclear`): a range with any is equal to no other. A batch counts in each range that it has offsets in, with its whole
hash, and with the records that are there. So where both sites have the same digest, that range has the same records,
whatever its neighbours have.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, NamedTuple

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from broker.wire.batch import HEADER_BYTES, LOG_APPEND_TIME_MASK, TRANSACTIONAL_MASK, BatchHeader
from broker.wire.vocabulary import NO_LEADER_EPOCH
from monitoring.audit.model import ComparablePartition, Segment, Side, Span

KEY_BYTES: Final = 16
_NONCE: Final = bytes(12)
_LANES = struct.Struct(">qqq8x")
_MASK64: Final = 2**64 - 1
_SAME = struct.Struct(">qhiqqi")
"""What of a header is the same at both sites: the first record's source offset (at the target by the map), attributes,
last offset delta, base and max timestamp, record count."""


class DigestRow(NamedTuple):
    """Of one range what the batches of one task have in it; `why` is of a partition that was not read."""

    topic: str
    partition: int
    range_start: int
    records: int
    bytes: int
    content_1: int
    content_2: int
    ordered: int
    first_offset: int | None
    last_offset: int | None
    batches: int
    unclear: int
    why: str | None = None


@dataclass(frozen=True, slots=True)
class View:
    """One partition of one site as its batches are looked at: what of it is compared, and what its offsets stand for.

    `topic` is the source's name. `segments` have `target_start` for the site's own offset, also at the source, where an
    offset stands for itself. Offsets of `passed_over` are not compared. Both are sorted, apart, and known up to
    `known_to`.
    """

    topic: str
    partition: int
    span: Span
    segments: tuple[Segment, ...]
    passed_over: tuple[Span, ...]
    is_timed: bool
    known_to: int

    def between(self, start: int, end: int) -> View:
        """What is needed for batches that begin in [start, end) and do not reach behind `end`."""
        first = max(0, bisect_right(self.segments, start, key=lambda segment: segment.target_start) - 1)
        # At least one: before the first segment records have their place at its beginning, as in `lookup.blocks`.
        last = max(first + 1, bisect_right(self.segments, end, key=lambda segment: segment.target_start))
        return View(
            self.topic,
            self.partition,
            self.span,
            self.segments[first:last],
            tuple(span for span in self.passed_over if span.end > start and span.start < end),
            self.is_timed,
            min(self.known_to, end),
        )


def view_of(item: ComparablePartition, side: Side) -> View:
    """Of a whole partition at a site."""
    if side is Side.SOURCE:
        span, segments, passed_over = item.source, _as_they_are(item.source), item.left_out
    else:
        span, segments, passed_over = item.target, item.segments, item.foreign
    return View(item.topic, item.partition, span, segments, passed_over, item.timestamps_comparable, span.end)


def _as_they_are(span: Span) -> tuple[Segment, ...]:
    return (Segment(span.start, span.start, span.offsets),)


class BatchUnknown(Exception):
    """A batch that reaches behind what is known of the map: nothing can be said of its partition."""


@dataclass(slots=True)
class _Sums:
    records: int = 0
    bytes: int = 0
    lanes: list[int] = field(default_factory=lambda: [0, 0, 0])
    first_offset: int | None = None
    last_offset: int | None = None
    batches: int = 0
    unclear: int = 0


class BatchDigests:
    """Takes a partition's committed batches, each once, in any order; `rows` are the digests of their ranges."""

    def __init__(self, view: View, range_offsets: int, batch_hash: BatchHash) -> None:
        self._view = view
        self._width = range_offsets
        self._hash = batch_hash
        self._ranges: dict[int, _Sums] = {}

    def take(self, header: BatchHeader, batch: memoryview) -> None:
        """Count a batch in, whose CRC is right. Raises BatchUnknown."""
        view = self._view
        first, end = max(header.base_offset, view.span.start), min(header.next_offset, view.span.end)
        if first >= end:
            return
        if end > view.known_to:
            raise BatchUnknown(f"a batch of {header.record_count} records from offset {header.base_offset} on")
        met = _passed_over(view.passed_over, first, end)
        if met == end - first:
            return
        shift = self._shift(first, end)
        # Brokers set the epoch: without one the batch was made here, of messages of a format before batches, and which
        # messages are one batch depends on how they were fetched.
        is_made_here = header.partition_leader_epoch == NO_LEADER_EPOCH
        if met or is_made_here or shift is None or header.record_count != header.last_offset_delta + 1:
            self._leave(first, end)
        else:
            self._add(header, batch, Span(first, end), shift)

    def rows(self) -> Iterator[DigestRow]:
        """Sums over all that was taken, by range."""
        for start, sums in sorted(self._ranges.items()):
            content_1, content_2, ordered = (_signed(lane) for lane in sums.lanes)
            yield DigestRow(
                self._view.topic,
                self._view.partition,
                start,
                sums.records,
                sums.bytes,
                content_1,
                content_2,
                ordered,
                sums.first_offset,
                sums.last_offset,
                sums.batches,
                sums.unclear,
            )

    def _shift(self, first: int, end: int) -> int | None:
        """How much further each offset is at the source; None where the map does not have all of them as one piece."""
        segments = self._view.segments
        nth = bisect_right(segments, first, key=lambda segment: segment.target_start) - 1
        if nth < 0:
            return None
        found = segments[nth]
        return found.source_start - found.target_start if end <= found.target_start + found.length else None

    def _add(self, header: BatchHeader, batch: memoryview, inside: Span, shift: int) -> None:
        """Records have no gaps in their offsets: so many of them as offsets, in each range."""
        hashed = self._hash.of(header, batch, header.base_offset + shift, is_timed=self._view.is_timed)
        lanes = _LANES.unpack(hashed)
        at, end = inside.start + shift, inside.end + shift
        size = len(batch) - HEADER_BYTES
        while at < end:
            start = at - at % self._width
            to = min(start + self._width, end)
            sums = self._ranges.setdefault(start, _Sums())
            sums.records += to - at
            sums.batches += 1
            sums.bytes += size
            size = 0  # where the batch begins: they are not to be counted twice
            for nth, lane in enumerate(lanes):
                sums.lanes[nth] += lane
            low, high = at - shift, to - 1 - shift
            sums.first_offset = low if sums.first_offset is None else min(sums.first_offset, low)
            sums.last_offset = high if sums.last_offset is None else max(sums.last_offset, high)
            at = to

    def _leave(self, first: int, end: int) -> None:
        """Nothing is said of the ranges that these offsets are in, nor of those between."""
        low, high = self._place(first), self._place(end - 1)
        for start in range(low - low % self._width, high + 1, self._width):
            self._ranges.setdefault(start, _Sums()).unclear += 1

    def _place(self, offset: int) -> int:
        """As `lookup.look_up` and who ranges records by it: outside of the map the end of what is before it."""
        segments = self._view.segments
        if not segments:
            return 0
        found = segments[max(0, bisect_right(segments, offset, key=lambda segment: segment.target_start) - 1)]
        return found.source_start + min(max(0, offset - found.target_start), found.length)


class BatchHash:
    """A hash of batches for who has the key, which nobody had who wrote them.

    Of two batches that differ it is the same with a probability of at most 2^-128 for each 16 bytes that they have: the
    tag that AES-GCM gives to what it does not encrypt (GMAC) is a polynomial over a field of 2^128, and processors
    compute it faster than other hashes that are as good. But such tags add up, so each is hashed once more, with what
    stands before the records.
    """

    def __init__(self, key: bytes) -> None:
        """`key` has KEY_BYTES."""
        self._tag = AESGCM(key).encrypt

    def of(self, header: BatchHeader, batch: memoryview, source_offset: int, *, is_timed: bool) -> bytes:
        """32 bytes over all of a batch that is the records', and over where they stand at the source.

        Not over what a mirror or a broker sets: base offset, leader epoch, producer and sequence, the CRC over these,
        and whether it was in a transaction. Without times also not over what says them, or that a broker set them.
        """
        attributes, times = header.attributes & ~TRANSACTIONAL_MASK, (header.base_timestamp, header.max_timestamp)
        if not is_timed:
            attributes, times = attributes & ~LOG_APPEND_TIME_MASK, (0, 0)
        same = _SAME.pack(source_offset, attributes, header.last_offset_delta, *times, header.record_count)
        # Nothing is encrypted, and no tag is shown: one nonce does for all of them.
        return sha256(same + self._tag(_NONCE, b"", batch[HEADER_BYTES:])).digest()


def _passed_over(spans: Sequence[Span], first: int, end: int) -> int:
    """How many offsets of [first, end) are in `spans`, which are sorted and apart."""
    found, nth = 0, max(0, bisect_right(spans, first, key=lambda span: span.start) - 1)
    while nth < len(spans) and spans[nth].start < end:
        found += max(0, min(end, spans[nth].end) - max(first, spans[nth].start))
        nth += 1
    return found


def _signed(lane: int) -> int:
    """Modulo 2^64, as Spark has such sums."""
    return ((lane & _MASK64) ^ 1 << 63) - (1 << 63)
