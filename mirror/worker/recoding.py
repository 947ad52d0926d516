"""Batches that cannot pass through, opened and made anew: by far the dearest thing that is done to a batch.

What it costs follows from its records, not from its size: 800 bytes can hold a million of them, which take seconds. So
it is a function of bytes alone: what would keep the event loop for longer than a few milliseconds is done ahead of the
plan, in a thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker.wire.batch import CLIENT_ATTRIBUTES, BatchHeader, iter_batches
from broker.wire.errors import BatchBeyondLimits, CorruptBatch
from broker.wire.records import OPENING_LIMITS, OpeningLimits, Record, decode_records, encode_batch
from mirror.limits import MIB
from mirror.offsets.intervals import Piece

AT_ONCE: Final = OpeningLimits(max_bytes=MIB, max_records=1_000)
"""What is opened in the event loop of one partition's share of a fetch, records over all of its batches."""
AT_ONCE_BATCHES_MAX: Final = 16


class RecordTooLarge(Exception):
    """A record that no batch within the target's limit can hold."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


class Sealed(NamedTuple):
    """A batch of the source that is to be opened, as it came."""

    header: BatchHeader
    batch: memoryview


@dataclass(frozen=True, slots=True)
class Encoded:
    """Some of its records, densely, as a batch that is nobody's yet."""

    batch: bytearray
    pieces: tuple[Piece, ...]
    count: int


class Recoded(NamedTuple):
    """What was made of one batch, as far as that went, and what ended it."""

    batches: tuple[Encoded, ...]
    error: CorruptBatch | RecordTooLarge | None = None


def passes_through(header: BatchHeader, position: int, max_batch_bytes: int) -> bool:
    """Whether the batch can be produced with its records as they are.

    A source's cleaner notes in a batch until when it keeps the tombstones there (KIP-534). Carried over, the target's
    would go by that, and take one that came late before anybody could read it.
    """
    return (
        header.base_offset >= position
        and header.record_count == header.last_offset_delta + 1
        and not header.is_log_append_time
        and not header.attributes & ~CLIENT_ATTRIBUTES
        and header.size_bytes <= max_batch_bytes
    )


def find_sealed(records: memoryview, position: int, max_batch_bytes: int) -> list[Sealed]:
    """The batches of a fetch from `position` on that have to be opened, as far as they are of format 2 and whole."""
    found: list[Sealed] = []
    try:
        for header, batch in iter_batches(records):
            has_records = header.record_count > 0 and not header.is_control and header.next_offset > position
            if has_records and not passes_through(header, position, max_batch_bytes):
                found.append(Sealed(header, batch))
    except CorruptBatch:
        return found  # whoever plans the fetch meets it again, and says so
    return found


def recode_at_once(sealed: Iterable[Sealed], position: int, max_batch_bytes: int) -> dict[int, Recoded]:
    """As `recode_all`. Raises BatchBeyondLimits where it would keep the event loop for long."""
    listed = list(sealed)
    if len(listed) > AT_ONCE_BATCHES_MAX or sum(each.header.record_count for each in listed) > AT_ONCE.max_records:
        raise BatchBeyondLimits(f"{len(listed)} batches to open")
    return {each.header.base_offset: recode(each, position, max_batch_bytes, AT_ONCE) for each in listed}


def recode_all(sealed: Iterable[Sealed], position: int, max_batch_bytes: int) -> Mapping[int, Recoded]:
    """What is made of each, by its base offset. May run in a thread."""
    return {each.header.base_offset: recode(each, position, max_batch_bytes) for each in sealed}


def recode(sealed: Sealed, position: int, max_batch_bytes: int, limits: OpeningLimits = OPENING_LIMITS) -> Recoded:
    """The records from `position` on, in batches of at most `max_batch_bytes`; the CRC is not looked at.

    Raises BatchBeyondLimits where `limits` are not those that hold for every batch.
    """
    header, made = sealed.header, list[Encoded]()
    try:
        kept = [record for record in decode_records(sealed.batch, limits) if record.offset >= position]
        _encode(made, kept, header, max_batch_bytes)
    except BatchBeyondLimits as error:
        if limits != OPENING_LIMITS:
            raise
        return Recoded(tuple(made), error)
    except (CorruptBatch, RecordTooLarge) as error:
        return Recoded(tuple(made), error)
    return Recoded(tuple(made))


def _encode(made: list[Encoded], records: list[Record], header: BatchHeader, max_batch_bytes: int) -> None:
    """Densely, in halves where they are too large together. Raises RecordTooLarge."""
    if not records:
        return
    batch = encode_batch(records, compression=header.compression)
    if len(batch) <= max_batch_bytes:
        made.append(Encoded(batch, _pieces(records), len(records)))
        return
    if len(records) == 1:
        text = f"the record at offset {records[0].offset} needs a batch of {len(batch)} bytes"
        raise RecordTooLarge(f"{text}, the target's max.message.bytes is {max_batch_bytes}", records[0].offset)
    half = len(records) // 2
    _encode(made, records[:half], header, max_batch_bytes)
    _encode(made, records[half:], header, max_batch_bytes)


def _pieces(records: list[Record]) -> tuple[Piece, ...]:
    pieces: list[Piece] = []
    expected = -1
    for ordinal, record in enumerate(records):
        if record.offset != expected:
            pieces.append(Piece(record.offset, ordinal))
        expected = record.offset + 1
    return tuple(pieces)
