"""What the generated codec code calls when a value is off its fast path."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from broker.wire.buffers import Buffer, Records
from broker.wire.errors import MalformedMessage
from broker.wire.limits import MAX_TAGS_PER_STRUCT

_SMALL_COUNT = 64


class FixedArray:
    """Pack and unpack of an array of one fixed-width primitive; short lengths have a prepared `struct.Struct`."""

    __slots__ = ("_letter", "_pack", "_unpack")

    def __init__(self, letter: str) -> None:
        self._letter = letter
        prepared = [struct.Struct(f">{count}{letter}") for count in range(_SMALL_COUNT)]
        self._pack: list[Callable[..., bytes]] = [one.pack for one in prepared]
        self._unpack = [one.unpack_from for one in prepared]

    def pack(self, values: Sequence[float]) -> bytes:
        count = len(values)
        if count < _SMALL_COUNT:
            return self._pack[count](*values)
        return struct.pack(f">{count}{self._letter}", *values)

    def unpack(self, count: int, buf: Buffer, position: int) -> list[float]:
        """`count` values at `position`; the caller has checked that they are inside the buffer."""
        if count < _SMALL_COUNT:
            return list(self._unpack[count](buf, position))
        return list(struct.unpack_from(f">{count}{self._letter}", buf, position))


def uvarint(value: int) -> bytes:
    """Unsigned LEB128 of a value below 2^32."""
    if not 0 <= value < 1 << 32:
        raise MalformedMessage(f"{value} does not fit an unsigned varint of 32 bits")
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_uvarint(buf: Buffer, position: int) -> tuple[int, int]:
    """Unsigned LEB128 of at most 32 bits -> (value, next position)."""
    value = shift = 0
    while True:
        byte = buf[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 28:
            raise MalformedMessage("a varint is longer than 32 bits")
    if value >= 1 << 32:
        raise MalformedMessage("a varint is larger than 32 bits")
    return value, position


def skip_tags(buf: Buffer, position: int, size: int, count: int) -> int:
    """Step over `count` tagged fields nobody here knows -> next position."""
    check_tag_count(count)
    for _ in range(count):
        _, position = read_uvarint(buf, position)
        length, position = read_uvarint(buf, position)
        position += length
        if position > size:
            raise MalformedMessage("a tagged field is longer than the message")
    return position


def check_tag_count(count: int) -> None:
    if count > MAX_TAGS_PER_STRUCT:
        raise MalformedMessage(f"{count} tagged fields in one struct")


def write_records(buffers: Records, out: list[Buffer], written: bytearray) -> bytearray:
    """Close `written`, append the record buffers uncopied, and return a new buffer to go on with."""
    out.append(written)
    if isinstance(buffers, bytes | bytearray | memoryview):
        out.append(buffers)
    else:
        out.extend(buffers)
    return bytearray()


def records_bytes(buffers: Records | None) -> int:
    """Length of a records field on the wire, -1 when it is null."""
    if buffers is None:
        return -1
    if isinstance(buffers, bytes | bytearray | memoryview):
        return len(buffers)
    return sum(map(len, buffers))


def null_refused(field: str) -> MalformedMessage:
    return MalformedMessage(f"{field} is null where the protocol has no null")


def too_long(field: str, length: int) -> MalformedMessage:
    return MalformedMessage(f"{field} claims a length of {length}, more than the message holds")
