"""Opening a batch that is in the log.

It was taken in by its header and CRC, perhaps by an earlier version that looked at less: what its records say may be
anything. Whoever opens one goes through here, and has an answer for a batch that cannot be read.
"""

from broker.wire.batch import peek
from broker.wire.buffers import Buffer
from broker.wire.errors import CorruptBatch
from broker.wire.records import Record, decode_records

_TIMES_APART_MAX_MS = 2**63 - 1


def stored_records(batch: Buffer) -> list[Record]:
    """The records of one batch: offsets strictly ascending and inside the batch's, times that one batch can hold.

    Raises CorruptBatch.
    """
    header = peek(batch)
    records = decode_records(batch)
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
