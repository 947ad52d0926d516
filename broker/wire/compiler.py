"""Field tables -> straight-line Python code, one function per (message class, version, direction).

The generated code has no loop over fields: runs of fixed-width fields are one `struct` call, nested structs
are inlined into loops, lengths have a one-byte fast path, and a struct without tagged fields costs one byte
test. Functions are made on first use and kept for the life of the process; there is one per class and
version, so the cache is bounded by the tables.
"""

from __future__ import annotations

import struct
import uuid as uuids
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from broker.wire import primitives
from broker.wire.buffers import Buffer
from broker.wire.decode_writer import DecodeWriter
from broker.wire.encode_writer import EncodeWriter
from broker.wire.errors import MalformedMessage, TooManyItems, UnsupportedVersion
from broker.wire.schema import FIXED_WIDTH_BYTES, ZERO_UUID, Kind, Message

M = TypeVar("M", bound=Message)

Encoder: TypeAlias = Callable[[Any, bytearray, list[Buffer]], bytearray]
"""(message, buffer to begin in, closed buffers) -> the buffer in which it ended, not yet among the closed ones."""

Decoder: TypeAlias = Callable[[Buffer, int, int, int], tuple[Any, int]]
"""(buffer, position, size of the buffer, elements that there may be) -> (message, next position)."""

_HELPERS: dict[str, Any] = {
    "ZERO_UUID": ZERO_UUID,
    "UUID": uuids.UUID,
    "Malformed": MalformedMessage,
    "TooManyItems": TooManyItems,
    "uvarint": primitives.uvarint,
    "read_uvarint": primitives.read_uvarint,
    "skip_tags": primitives.skip_tags,
    "check_tag_count": primitives.check_tag_count,
    "write_records": primitives.write_records,
    "records_bytes": primitives.records_bytes,
    "null_refused": primitives.null_refused,
    "too_long": primitives.too_long,
    "new": object.__new__,
    **{f"ARRAY_{kind.name}": primitives.FixedArray(kind.value) for kind in FIXED_WIDTH_BYTES if kind is not Kind.UUID},
}

_encoders: dict[tuple[type[Message], int], Encoder] = {}
_decoders: dict[tuple[type[Message], int], Decoder] = {}


def _check_version(cls: type[Message], version: int) -> None:
    low, high = cls.VERSIONS
    if not low <= version <= high:
        raise UnsupportedVersion(f"{cls.__name__} has versions {low} to {high}, not {version}")


def _execute(source: str, constants: dict[str, Any], name: str) -> Any:
    """Run generated source that defines the function `run` and return it. The text comes from our tables only."""
    scope = {**_HELPERS, **constants}
    exec(compile(source, f"<{name}>", "exec"), scope)
    return scope["run"]


def _structs(formats: dict[str, str], method: str) -> dict[str, Any]:
    return {name: getattr(struct.Struct(form), method) for name, form in formats.items()}


def encoder(cls: type[Message], version: int) -> Encoder:
    """The encoder of one class and version; raises UnsupportedVersion."""
    made = _encoders.get((cls, version))
    if made is None:
        _check_version(cls, version)
        writer = EncodeWriter(cls, version)
        source = writer.source()
        constants = {**writer.constants, **_structs(writer.formats, "pack")}
        made = _execute(source, constants, f"encode {cls.__name__} v{version}")
        _encoders[cls, version] = made
    return made


def decoder(cls: type[Message], version: int) -> Decoder:
    """The decoder of one class and version; raises UnsupportedVersion."""
    made = _decoders.get((cls, version))
    if made is None:
        _check_version(cls, version)
        writer = DecodeWriter(cls, version)
        source = writer.source()
        constants = {**writer.constants, **_structs(writer.formats, "unpack_from")}
        made = _execute(source, constants, f"decode {cls.__name__} v{version}")
        _decoders[cls, version] = made
    return made
