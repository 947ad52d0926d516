"""Frames that no client of ours would send: what is closed, and what is answered."""

from __future__ import annotations

import struct

from broker.wire.codec import encode_bytes
from broker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.interop.side_by_side.asking import Case, Peer

METADATA, CREATE_TOPICS, API_VERSIONS, LIST_OFFSETS = 3, 19, 18, 2


def _text(data: bytes) -> bytes:
    return struct.pack(">h", len(data)) + data


def _count(number: int) -> bytes:
    return struct.pack(">i", number)


async def broken_frames(peer: Peer) -> None:
    topic = (await peer.topic()).encode()
    for label, frame in (
        ("nothing", b""),
        ("two bytes", b"\0\3"),
        ("half a header", b"\0\3\0\1\0\0"),
        ("a header without a client id", b"\0\3\0\1\0\0\0\7"),
    ):
        await peer.ask_frame(label, frame, METADATA, 1)
    whole = _count(1) + _text(topic)
    for label, body in (
        ("whole", whole),
        ("bytes behind", whole + b"xyz"),
        ("cut", whole[:-1]),
        ("no body", b""),
        ("a count without an end", _count(2**31 - 1) + _text(topic)),
        ("more than there are", _count(2) + _text(topic)),
        ("a count of -5", _count(-5)),
        ("a name of -5 bytes", _count(1) + struct.pack(">h", -5)),
        ("no name", _count(1) + struct.pack(">h", -1)),
        ("a name beyond the frame", _count(1) + struct.pack(">h", 900) + topic),
    ):
        await peer.ask_raw(label, METADATA, 1, body)
    await peer.ask_raw("no client id", METADATA, 1, whole, None)
    await peer.ask_raw("an empty client id", METADATA, 1, whole, b"")
    await peer.ask_raw("null topics to make", CREATE_TOPICS, 4, _count(-1) + _count(1000) + b"\0")
    await peer.ask_raw("null partitions", LIST_OFFSETS, 1, _count(-1) + _count(1) + _text(topic) + _count(-1))
    await peer.ask_raw("after all that", METADATA, 1, whole)


async def unknown_apis(peer: Peer) -> None:
    for key in (-1, 999, 32767):
        await peer.ask_raw(f"key {key}", key, 0, b"")
    for key in (0, 1, METADATA, 12, 20, 36):
        await peer.ask_raw(f"key {key}, version 99", key, 99, b"")
        await peer.ask_raw(f"key {key}, version -1", key, -1, b"")


async def tags(peer: Peer) -> None:
    topic = await peer.topic()
    body = encode_bytes(MetadataRequest([MetadataRequestTopic(name=topic)], False), 12)
    # A header of v2 ends with its tags, and so does the body.
    for label, header, request in (
        ("none", b"\0", body),
        ("one that nobody knows", b"\1\x63\3abc", body),
        ("one at the end", b"\0", body[:-1] + b"\1\x63\1a"),
        ("one that ends behind the frame", b"\0", body[:-1] + b"\1\x63\x7fa"),
        ("more than there are", b"\0", body[:-1] + b"\x05"),
        ("in no order", b"\0", body[:-1] + b"\2\x64\1a\x63\1b"),
        ("one twice", b"\0", body[:-1] + b"\2\x63\1a\x63\1b"),
    ):
        await peer.ask_raw(label, METADATA, 12, header + request)


async def api_versions(peer: Peer) -> None:
    for name, version in (
        ("farshore", "1.0"), ("", "1"), ("-x", "1"), ("x-", "1"), ("a b", "1"), ("ok", ""), ("ok", "1."), ("ü", "1"),
        ("a.b-c", "1_0"), ("x" * 300, "1"),
    ):  # fmt: skip
        answer = await peer.prepare(ApiVersionsRequest(name, version), 3, ApiVersionsResponse)
        peer.note(f"{name[:5]!r} {version!r}", answer.error_code)


CASES: tuple[Case, ...] = (broken_frames, unknown_apis, tags, api_versions)
