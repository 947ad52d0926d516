"""A tombstone as Kafka's cleaner leaves it: marked, with the time until when it is kept in the place of its own."""

from __future__ import annotations

from broker.wire.batch import DELETE_HORIZON_MASK, HEADER_BYTES, LOG_OVERHEAD, pack_header, peek
from broker.wire.records import Record, encode_batch
from broker.wire.varint import varint


def kept_tombstone(offset: int, timestamp_ms: int, key: bytes, horizon_ms: int) -> bytearray:
    """A batch of one record; times of records are told as their distance from the header's."""
    body = bytes(1) + varint(timestamp_ms - horizon_ms) + bytes(1) + varint(len(key)) + key + varint(-1) + bytes(1)
    written = encode_batch([Record(0, timestamp_ms, key, None)], base_offset=offset)
    batch = written[:HEADER_BYTES] + varint(len(body)) + body
    header = peek(written)._replace(
        batch_length=len(batch) - LOG_OVERHEAD, attributes=DELETE_HORIZON_MASK, base_timestamp=horizon_ms
    )
    pack_header(batch, header)
    return batch
