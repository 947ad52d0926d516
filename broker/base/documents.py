"""Values as documents for JSON, YAML and tables: names and units as the command line says them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Set
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache
from pathlib import PurePath
from typing import Any, Final
from uuid import UUID

HIDDEN: Final = "***"
"""Stands where something is that may be secret."""
_PLAIN: Final = frozenset({type(None), bool, int, float, str})


class Program(tuple[str, ...]):
    """A program and its arguments; documents and plans show that it has some, as they may be nobody else's to read."""

    __slots__ = ()


def to_document(value: object) -> Any:
    """JSON-able data of any value of ours; a value of an unknown type becomes its text."""
    if type(value) in _PLAIN:  # nearly all that there is, where there is much
        return value
    if value is None or isinstance(value, bool | int | float | str):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, Enum):
        return to_document(value.value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _fields((name, getattr(value, name)) for name in _names_of(type(value)))
    if isinstance(value, Mapping):
        return _fields((str(name), item) for name, item in value.items())
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return to_document(dump())
    names = getattr(value, "_fields", None)
    if isinstance(value, tuple) and names is not None:
        return _fields(zip(names, value, strict=True))
    return _scalar_or_list(value)


def iso_time(unix_ms: int) -> str:
    """Unix milliseconds as "2013-01-01T05:15:00.000Z"; a time outside of years 1 to 9999 as the number's text."""
    try:
        moment = datetime.fromtimestamp(unix_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(unix_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def read_time(text: str | None) -> int | None:
    """Unix milliseconds of what `iso_time` wrote. Raises ValueError."""
    return None if text is None else round(datetime.fromisoformat(text).timestamp() * 1000)


def _scalar_or_list(value: object) -> Any:
    if isinstance(value, Program):
        return [*value[:1], *(HIDDEN for _ in value[1:])]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, Set):
        return sorted((to_document(item) for item in value), key=str)
    if isinstance(value, UUID | PurePath):
        return str(value)
    if isinstance(value, Iterable):
        return [to_document(item) for item in value]
    return str(value)


def _fields(fields: Iterable[tuple[str, object]]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for name, value in fields:
        if name[:1] == "_":
            continue
        if name[-3:] == "_ms" and (value is None or isinstance(value, int | float)):
            stem = name.removesuffix("_ms")
            if stem == "at" or stem.endswith(("_at", "timestamp")):
                document[stem] = None if value is None or value < 0 else iso_time(int(value))
            else:
                document[f"{stem}_seconds"] = None if value is None else value / 1000
        else:
            document[name] = value if type(value) in _PLAIN else to_document(value)
    return document


@cache
def _names_of(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))
