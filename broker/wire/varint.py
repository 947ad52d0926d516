"""Zigzag varints, as records use them: the table for small values, and the slow path for the rest."""

from __future__ import annotations

from typing import Final

from broker.wire.errors import CorruptBatch

_TABLE_VALUES = 8192
_MAX_SHIFT_64 = 63


def varint(value: int) -> bytes:
    """Signed 64-bit zigzag varint. ValueError when the value does not fit."""
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{value} does not fit a varint of 64 bits")
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out)


SMALL_VARINTS: Final = tuple(varint(value) for value in range(_TABLE_VALUES))
"""`varint(n)` for n from 0 to 8191."""


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Signed zigzag varint of at most 64 bits -> (value, next position). IndexError at the end of the data."""
    byte = data[position]
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), position + 1
    follower = data[position + 1]
    if follower < 128:
        raw = byte & 127 | follower << 7
        return (raw >> 1) ^ -(raw & 1), position + 2
    raw = shift = 0
    while True:
        byte = data[position]
        position += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > _MAX_SHIFT_64:
            raise CorruptBatch("a varint in a record is longer than 64 bits")
    if raw >= 1 << 64:
        raise CorruptBatch("a varint in a record is larger than 64 bits")
    return (raw >> 1) ^ -(raw & 1), position
