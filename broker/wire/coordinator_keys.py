"""The topic of committed offsets, and which partition a coordinator keeps a group or a transactional id in."""

from __future__ import annotations

from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"


def java_string_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 code units, in signed 32 bits."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for(key: str, partitions: int) -> int:
    """Where Kafka puts a group or a transactional id: abs(hash) mod count, with the abs of -2^31 being 0."""
    value = java_string_hash(key)
    return (0 if value == -(1 << 31) else abs(value)) % partitions
