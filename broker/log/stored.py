"""Opening a batch that is in the log.

It was taken in by its header and CRC, perhaps by an earlier version that looked at less: what its records say may be
anything, and stand for more than anybody wants to look at. Whoever opens one goes through here, and has an answer for
a batch that cannot be read.
"""

from typing import Final

from broker.limits import (
    OPENED_AT_ONCE_BYTES_MAX,
    OPENED_AT_ONCE_RECORDS_MAX,
    OPENED_BATCH_BYTES_MAX,
    OPENED_BATCH_RECORDS_MAX,
)
from broker.wire.batch import peek
from broker.wire.buffers import Buffer
from broker.wire.errors import BatchBeyondLimits, CorruptBatch
from broker.wire.records import OpeningLimits, Record, decode_records

AT_ONCE: Final = OpeningLimits(OPENED_AT_ONCE_BYTES_MAX, OPENED_AT_ONCE_RECORDS_MAX)
MOST: Final = OpeningLimits(OPENED_BATCH_BYTES_MAX, OPENED_BATCH_RECORDS_MAX)
_TIMES_APART_MAX_MS = 2**63 - 1


def stored_records(batch: Buffer, limits: OpeningLimits = MOST) -> list[Record]:
    """The records of one batch: offsets strictly ascending and inside the batch's, times that one batch can hold.

    Raises CorruptBatch, BatchBeyondLimits.
    """
    header = peek(batch)
    records = decode_records(batch, limits)
    before = header.base_offset - 1
    for record in records:
        if record.offset <= before:
            raise CorruptBatch(f"a record of offset {record.offset} follows {before}")
        before = record.offset
    if before > header.last_offset:
        raise CorruptBatch(f"a record of offset {before} in a batch that ends at {header.last_offset}")
    times = [record.timestamp for record in records]
    if times and max(times) - min(times) > _TIMES_APART_MAX_MS:
        raise CorruptBatch("records whose times are further apart than 64 bits hold")
    return records


def holds_other_records(stored: Buffer, sent: Buffer) -> bool:
    """Whether what is stored is surely not what was sent: as many records, all with the same keys, values and headers.

    False where it cannot be told: after compaction, of batches too large to be opened at once, of damaged ones.
    """
    kept, came = peek(stored), peek(sent)
    if kept.crc == came.crc or kept.record_count != came.record_count:
        return False
    try:
        pairs = zip(stored_records(stored, AT_ONCE), stored_records(sent, AT_ONCE), strict=True)
        return any((a.key, a.value, a.headers) != (b.key, b.value, b.headers) for a, b in pairs)
    except (CorruptBatch, BatchBeyondLimits, ValueError):
        return False
