"""Encode and decode messages, by the code that `broker.wire.compiler` makes of their tables."""

from __future__ import annotations

import struct
import sys
from typing import TypeVar

from broker.wire.buffers import Buffer
from broker.wire.compiler import decoder, encoder
from broker.wire.errors import MalformedMessage
from broker.wire.limits import MAX_ERROR_TEXT_CHARS
from broker.wire.schema import Message

_VERSION = struct.Struct(">h")

M = TypeVar("M", bound=Message)


def encode_into(message: Message, version: int, start: bytearray) -> list[Buffer]:
    """Append the message to `start` -> the buffers that make up the whole, of which `start` is the first.

    Record bytes are not copied: they stand in the list as the buffers they came in. Fields that `version`
    does not have are left out. Raises UnsupportedVersion, and MalformedMessage for a value that has no form
    on the wire (null where there is none, a number out of its range).
    """
    out: list[Buffer] = []
    try:
        last = encoder(type(message), version)(message, start, out)
    except (struct.error, TypeError, AttributeError, ValueError) as error:
        raise MalformedMessage(f"{type(message).__name__} v{version} cannot be encoded: {error}") from error
    if last or not out:
        out.append(last)
    return out


def encode(message: Message, version: int) -> list[Buffer]:
    """The message as buffers to be written one after the other; see `encode_into`."""
    return encode_into(message, version, bytearray())


def encode_bytes(message: Message, version: int) -> bytes:
    """The message as one `bytes`, records copied."""
    return b"".join(encode_into(message, version, bytearray()))


def encode_prefixed(message: Message, version: int) -> bytes:
    """The message behind its version as int16: how the consumer protocol's data travels."""
    return b"".join(encode_into(message, version, bytearray(_VERSION.pack(version))))


def decode_prefixed(cls: type[M], buf: Buffer, *, max_items: int = sys.maxsize) -> tuple[M, int]:
    """Read a message behind its version -> (message, version on the wire).

    A version newer than the tables is read as the newest there is: of such data only the end ever grows. Raises
    MalformedMessage, also for a negative version.
    """
    if len(buf) < _VERSION.size:
        raise MalformedMessage(f"{cls.__name__} needs a version, {len(buf)} bytes are too few")
    (version,) = _VERSION.unpack_from(buf, 0)
    if version < 0:
        raise MalformedMessage(f"{cls.__name__} cannot have version {version}")
    message, _ = decode(cls, min(version, cls.VERSIONS[1]), buf, _VERSION.size, max_items=max_items)
    return message, version


def decode(cls: type[M], version: int, buf: Buffer, offset: int = 0, *, max_items: int = sys.maxsize) -> tuple[M, int]:
    """Read one message at `offset` -> (message, offset after it).

    `records` fields are memoryview slices of `buf`, everything else is copied out of it. Bytes after the
    message are left alone. Raises UnsupportedVersion, and MalformedMessage for anything that cannot be
    read, and TooManyItems (one of its kind) for more than `max_items` elements of arrays and tagged fields in all:
    the memory used is bounded by the size of `buf`, but as much as a hundred times as large.
    """
    try:
        result: tuple[M, int] = decoder(cls, version)(buf, offset, len(buf), max_items)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        text = str(error)[:MAX_ERROR_TEXT_CHARS]
        raise MalformedMessage(f"{cls.__name__} v{version} cannot be read: {text}") from error
    return result
