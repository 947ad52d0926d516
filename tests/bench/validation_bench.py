"""How deep a produced batch is looked at, and what that costs beside its CRC: in this process, without any socket."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from broker.log.validation import check_records
from broker.wire.batch import HEADER_BYTES, peek, verify_crc
from broker.wire.compression import Compression
from broker.wire.framing import check_framing
from broker.wire.records import Record, encode_batch
from tests.bench.measure import GB

BATCH_PAYLOAD_BYTES = 64 * 1024
RECORD_SIZES_BYTES = (1024, 100)
MEASURED_S = 0.3


class Looks(NamedTuple):
    """CPU-seconds per GB of records before compression."""

    codec: str
    record_bytes: int
    crc: float
    framing: float
    full: float


def bench_validation(values: Sequence[bytes]) -> Iterator[Looks]:
    text = b"".join(values[:200])
    for size_bytes in RECORD_SIZES_BYTES:
        pieces = [text[at : at + size_bytes] for at in range(0, BATCH_PAYLOAD_BYTES, size_bytes)]
        records = [Record(0, 1_700_000_000_000, b"%d" % number, piece) for number, piece in enumerate(pieces)]
        plain_bytes = len(encode_batch(records)) - HEADER_BYTES
        for codec in Compression:
            batch = memoryview(encode_batch(records, compression=codec))
            each = [_cpu_s(check, batch) / plain_bytes * GB for check in (verify_crc, _framing, check_records)]
            yield Looks(codec.name.lower(), size_bytes, *each)


def _framing(batch: memoryview) -> None:
    check_framing(batch, peek(batch))


def _cpu_s(check: Callable[[memoryview], None], batch: memoryview) -> float:
    """CPU-seconds of one call."""
    check(batch)
    started, calls = time.process_time(), 0
    while time.process_time() - started < MEASURED_S:
        check(batch)
        calls += 1
    return (time.process_time() - started) / calls
