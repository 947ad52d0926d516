"""Batches of a few hundred or thousand bytes that stand for far more, and a count of the work that they cause."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import FrameType
from typing import Any, Final

import cramjam

from broker.wire.batch import HEADER_BYTES, LOG_OVERHEAD, BatchHeader, pack_header
from broker.wire.compression import Compression, compress
from broker.wire.varint import varint

NOW_MS: Final = 1_700_000_000_000
MANY: Final = 300_000
HUGE_BYTES: Final = 16 << 20
EMPTY_RECORD: Final = bytes((12, 0, 0, 0, 1, 1, 0))
KEYED_RECORD: Final = bytes((14, 0, 0, 0, 2, 107, 1, 0))


def record(*, value: bytes = b"", headers: int = 0) -> bytes:
    body = bytes(3) + varint(1) + b"k" + varint(len(value)) + value + varint(headers) + bytes((0, 1)) * headers
    return varint(len(body)) + body


SHAPES: Final[dict[str, Callable[[], tuple[bytes, int]]]] = {
    # Name -> (the records, how many the header says that there are)
    "many records": lambda: (KEYED_RECORD * MANY, MANY),
    "many records without a key": lambda: (EMPTY_RECORD * MANY, MANY),
    "more records than it says": lambda: (KEYED_RECORD * MANY, 1),
    "says more records than it has": lambda: (KEYED_RECORD, 2**31 - 1),
    "many headers in one record": lambda: (record(headers=MANY), 1),
    "some headers in many records": lambda: (record(headers=600) * 500, 500),
    "one huge record": lambda: (record(value=bytes(HUGE_BYTES)), 1),
    "a record that claims to be huge": lambda: (varint(2**31) + bytes(100), 1),
}


def bomb(codec: Compression, records: bytes, count: int, *, raw: bool = False, **header: int) -> bytearray:
    """A batch that no client of good will sends; its header, framing and CRC are right. `raw` is snappy without
    xerial's framing.
    """
    body = bytes(cramjam.snappy.compress_raw(records)) if raw else compress(codec, records)
    batch = bytearray(HEADER_BYTES) + body
    fields = {
        "base_offset": 0,
        "batch_length": len(batch) - LOG_OVERHEAD,
        "partition_leader_epoch": -1,
        "magic": 2,
        "crc": 0,
        "attributes": int(codec),
        "last_offset_delta": count - 1,
        "base_timestamp": NOW_MS,
        "max_timestamp": NOW_MS,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "record_count": count,
    }
    pack_header(batch, BatchHeader(**{**fields, **header}))
    return batch


class Lines:
    """Lines of Python that this thread ran: the work, whatever else the machine does meanwhile."""

    def __init__(self) -> None:
        self.count = 0

    def trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            self.count += 1
        return self.trace


@contextmanager
def counted_lines() -> Iterator[Lines]:
    lines, before = Lines(), sys.gettrace()
    sys.settrace(lines.trace)
    try:
        yield lines
    finally:
        sys.settrace(before)


TURN_LINES_MAX: Final = 100_000
"""Of Python, between two turns of an event loop: a few milliseconds."""


class Turns:
    """The longest turn of the event loop, in lines."""

    def __init__(self, lines: Lines) -> None:
        self.longest = 0
        self._lines, self._before = lines, lines.count
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self.longest = max(self.longest, self._lines.count - self._before)
        self._before = self._lines.count
        self._next = self._loop.call_soon(self._turn)

    def stop(self) -> None:
        self._next.cancel()


@asynccontextmanager
async def counted_turns() -> AsyncIterator[Turns]:
    with counted_lines() as lines:
        turns = Turns(lines)
        try:
            yield turns
        finally:
            turns.stop()
