"""Producer state on disk. Unlike Kafka's form it holds all five batches, so a repeat is known also after a restart.

Big-endian: version (uint16), CRC32C of the rest (uint32), producers (uint32); each producer: id, epoch, coordinator
epoch, last timestamp, first offset of the open transaction, batches (uint8); each batch: first and last sequence,
first and last offset, timestamp.
"""

import struct
from collections import deque
from collections.abc import Iterable

from crc32c import crc32c

from broker.limits import PRODUCER_BATCHES_REMEMBERED
from broker.log.producers import ProducedBatch, ProducerState

VERSION = 1
_HEAD = struct.Struct(">HII")
_PRODUCER = struct.Struct(">qhiqqB")
_BATCH = struct.Struct(">iiqqq")


def encode_snapshot(states: Iterable[ProducerState]) -> bytes:
    body = bytearray()
    count = 0
    for state in states:
        count += 1
        body += _PRODUCER.pack(
            state.producer_id,
            state.producer_epoch,
            state.coordinator_epoch,
            state.last_timestamp_ms,
            state.transaction_first_offset,
            len(state.batches),
        )
        for batch in state.batches:
            body += _BATCH.pack(*batch)
    return _HEAD.pack(VERSION, crc32c(bytes(body)), count) + bytes(body)


def decode_snapshot(data: bytes) -> list[ProducerState]:
    """Raises ValueError for a snapshot that is torn, damaged or of another version."""
    try:
        version, crc, count = _HEAD.unpack_from(data)
        if version != VERSION or crc != crc32c(data[_HEAD.size :]):
            raise ValueError(f"producer snapshot of version {version} is damaged or unknown")
        position = _HEAD.size
        states = []
        for _ in range(count):
            producer_id, epoch, coordinator_epoch, timestamp_ms, first_offset, batches = _PRODUCER.unpack_from(
                data, position
            )
            position += _PRODUCER.size
            remembered: deque[ProducedBatch] = deque(maxlen=PRODUCER_BATCHES_REMEMBERED)
            for _ in range(batches):
                remembered.append(ProducedBatch(*_BATCH.unpack_from(data, position)))
                position += _BATCH.size
            states.append(ProducerState(producer_id, epoch, coordinator_epoch, timestamp_ms, first_offset, remembered))
    except struct.error as error:
        raise ValueError(f"producer snapshot is cut short: {error}") from error
    return states
