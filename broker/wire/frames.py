"""Requests and responses as frames: a 4-byte size, a header, a message."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from broker.wire.api import API, ApiKey, request_header_version, response_header_version
from broker.wire.buffers import Buffer
from broker.wire.codec import decode, encode_into
from broker.wire.errors import ErrorCode, MalformedMessage, UnsupportedVersion
from broker.wire.primitives import read_uvarint, skip_tags
from broker.wire.schema import Message

SIZE_BYTES: Final = 4
"""The size in front of a frame, int32, not counting itself."""

_UNSUPPORTED_VERSION = struct.pack(">h", ErrorCode.UNSUPPORTED_VERSION)
_SIZE = struct.Struct(">i")
_REQUEST_HEADER = struct.Struct(">hhih")
_REQUEST_START = struct.Struct(">ihhih")
_RESPONSE_START = struct.Struct(">ii")


@dataclass(frozen=True, slots=True)
class RequestHeader:
    """What stands before every request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """Read the header of a frame (without its size) -> (header, offset of the body).

    An unknown API key or version is no error here, so that it can be answered; the offset then is only that
    after the client id. Raises MalformedMessage.
    """
    try:
        key, version, correlation_id, length = _REQUEST_HEADER.unpack_from(frame, 0)
        offset = end = _REQUEST_HEADER.size
        client_id = None
        if length >= 0:
            end = offset + length
            if end > len(frame):
                raise MalformedMessage(f"the client id claims {length} bytes, more than the frame holds")
            client_id = str(frame[offset:end], "utf-8")
        api = API.get(key)
        if api is not None and version >= api.flexible_since:
            count, end = read_uvarint(frame, end)
            end = skip_tags(frame, end, len(frame), count)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedMessage(f"the request header cannot be read: {error}") from error
    return RequestHeader(key, version, correlation_id, client_id), end


def decode_request(frame: Buffer) -> tuple[RequestHeader, Message]:
    """Read a frame (without its size). Raises UnsupportedVersion for an API or version that is not in the tables."""
    header, offset = decode_request_header(frame)
    api = API.get(header.api_key)
    if api is None:
        raise UnsupportedVersion(f"API key {header.api_key} is not known")
    message, _ = decode(api.request, header.api_version, frame, offset)
    return header, message


def encode_request(header: RequestHeader, message: Message) -> list[Buffer]:
    """A whole request frame, size included, as buffers to be written one after the other."""
    client_id = header.client_id
    encoded = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(encoded)
    start = bytearray(_REQUEST_START.pack(0, header.api_key, header.api_version, header.correlation_id, length))
    start += encoded
    if request_header_version(header.api_key, header.api_version) >= 2:
        start.append(0)
    return _sized(encode_into(message, header.api_version, start), start)


def encode_response(api_key: int, api_version: int, correlation_id: int, message: Message) -> list[Buffer]:
    """A whole response frame, size included, as buffers to be written one after the other."""
    start = bytearray(_RESPONSE_START.pack(0, correlation_id))
    if response_header_version(api_key, api_version) >= 1:
        start.append(0)
    return _sized(encode_into(message, api_version, start), start)


def decode_response(api_key: int, api_version: int, frame: Buffer) -> tuple[int, Message]:
    """Read a response frame (without its size) -> (correlation id, message).

    A broker that does not know the version of an ApiVersions request answers UNSUPPORTED_VERSION in a v0 body,
    whatever was asked (KIP-511); that is read as v0.
    """
    header_version = response_header_version(api_key, api_version)
    correlation_id, offset = decode_response_header(header_version, frame)
    if api_key == ApiKey.API_VERSIONS and frame[offset : offset + 2] == _UNSUPPORTED_VERSION:
        api_version = 0
    message, _ = decode(API[api_key].response, api_version, frame, offset)
    return correlation_id, message


def decode_response_header(header_version: int, frame: Buffer) -> tuple[int, int]:
    """Read a response header of version 0 or 1 -> (correlation id, offset of the body)."""
    try:
        (correlation_id,) = _SIZE.unpack_from(frame, 0)
        offset = SIZE_BYTES
        if header_version >= 1:
            count, offset = read_uvarint(frame, offset)
            offset = skip_tags(frame, offset, len(frame), count)
    except (struct.error, IndexError) as error:
        raise MalformedMessage(f"the response header cannot be read: {error}") from error
    return correlation_id, offset


def _sized(buffers: list[Buffer], start: bytearray) -> list[Buffer]:
    """Put the size of all buffers into the first four bytes of the first."""
    try:
        _SIZE.pack_into(start, 0, sum(map(len, buffers)) - SIZE_BYTES)
    except struct.error as error:
        raise MalformedMessage(f"the frame is too large: {error}") from error
    return buffers
