"""Values in znodes, checked: what is taken as read goes into orders to brokers, and fails there for every topic."""

from __future__ import annotations

from typing import Any


def int32(value: Any) -> int:
    """What goes into orders as such. Raises TypeError, ValueError."""
    if not -(2**31) <= (number := int(value)) < 2**31:
        raise ValueError(f"{number} is no number of 32 bits")
    return number


def node_ids(listed: Any) -> tuple[int, ...]:
    """Raises TypeError, ValueError."""
    if not isinstance(listed, list) or not all(type(node) is int for node in listed):
        raise TypeError(f"{listed!r} is no list of node ids")
    if len(set(listed)) != len(listed):
        raise ValueError(f"{listed!r} names a broker twice")
    return tuple(int32(node) for node in listed)


def as_text(value: Any) -> str:
    """Raises TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
